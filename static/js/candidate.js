// The candidate page: j and k walk through the run's candidates, n and p through the findings beside
// the source. Lines of the source and of a level that belong together light up together, and a click
// on one brings the other into view.

import { onKey } from "./base.js";

for (const [key, selector] of [["j", "[data-next]"], ["k", "[data-previous]"]]) {
  const link = document.querySelector(selector);
  if (link) onKey(key, () => link.click());
}

const notes = [...document.querySelectorAll(".line-note > summary")];

function step(by) {
  if (!notes.length) return;
  const now = notes.indexOf(document.activeElement);
  const next = notes[now < 0 && by < 0 ? notes.length - 1 : (now + by + notes.length) % notes.length];
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "center" });
}
onKey("n", () => step(1));
onKey("p", () => step(-1));

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

// Both boxes at the first line that they have in common.
function meet() {
  const box = code.querySelector(".level-text");
  const first = box?.querySelector("[data-source]");
  const line = first && document.getElementById(`L${first.dataset.source}`);
  if (!line) return;
  reveal(first, box);
  reveal(line, code.querySelector(".own"));
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
  const line = document.getElementById(`L${number}`);
  if (first && box) reveal(first, box);
  if (line) reveal(line, code.querySelector(".own"));
  light(number);
}

if (code) {
  code.addEventListener("htmx:afterSwap", meet);
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
else if (code && !location.hash.startsWith("#L")) meet();
