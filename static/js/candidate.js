// The candidate page: j and k walk through the run's candidates; lines of the source and of a level
// that belong together light up together, and a click on one brings the other into view.

import { onKey } from "./base.js";

for (const [key, selector] of [["j", "[data-next]"], ["k", "[data-previous]"]]) {
  const link = document.querySelector(selector);
  if (link) onKey(key, () => link.click());
}

const code = document.querySelector("[data-code]");

const numberOf = (node) => {
  const level = node.closest("[data-source]");
  return level ? level.dataset.source : node.closest(".cl")?.id.slice(1);
};
const levelLines = (number) => code.querySelectorAll(`[data-source="${number}"]`);

function light(number) {
  code.querySelectorAll(".lit").forEach((line) => line.classList.remove("lit"));
  if (!number || !code.querySelector(".level-text")) return;
  levelLines(number).forEach((line) => line.classList.add("lit"));
  document.getElementById(`L${number}`)?.classList.add("lit");
}

// Scrolls the box that the line lies in, never the page.
function reveal(line, box) {
  const [inner, outer] = [line.getBoundingClientRect(), box.getBoundingClientRect()];
  if (inner.top < outer.top || inner.bottom > outer.bottom) {
    box.scrollTop += inner.top - outer.top - outer.height / 3;
  }
}

// The first line of the level that is from this source line; from another window if need be.
async function showLevel(number) {
  let box = code.querySelector(".level-text");
  if (!box) return;
  if (!levelLines(number).length) {
    const address = `${box.dataset.fragment.replace(/&(from|line)=\d+/g, "")}&line=${number}`;
    await window.htmx.ajax("GET", address, { target: "#level" });
    box = code.querySelector(".level-text");
  }
  const [first] = levelLines(number);
  if (first && box) reveal(first, box);
  light(number);
}

if (code) {
  // Only a mouse that moves: lines that scroll under one that rests are not pointed at.
  let rested = "";
  code.addEventListener("mousemove", (event) => {
    const place = `${event.clientX} ${event.clientY}`;
    if (place !== rested) light(numberOf(event.target));
    rested = place;
  });
  code.addEventListener("focusin", (event) => light(numberOf(event.target)));
  code.addEventListener("click", (event) => {
    const link = event.target.closest("a.src, .cl a.ln");
    if (!link || !code.querySelector(".level-text")) return;
    const number = numberOf(link);
    const own = code.querySelector(".own");
    const line = document.getElementById(`L${number}`);
    event.preventDefault();
    history.replaceState(null, "", `#L${number}`);
    if (link.matches(".src") && line) {
      reveal(line, own);
      light(number);
    } else {
      showLevel(number);
    }
  });
}

// An address may ask for the lines of a source line.
const asked = new URLSearchParams(location.search).get("line");
if (code && asked) showLevel(asked);
