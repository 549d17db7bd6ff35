// The compare page: step through changes, keys for the switches, pickers that submit themselves.

import { onKey } from "./base.js";

const changes = [...document.querySelectorAll("[data-change]")];
const position = document.querySelector("[data-position]");
let current = -1;

function show(index) {
  if (!changes.length) return;
  changes[current]?.classList.remove("current");
  current = (index + changes.length) % changes.length;
  const change = changes[current];
  change.classList.add("current");
  change.focus({ preventScroll: true });
  change.scrollIntoView({ block: "center" });
  if (position) position.textContent = `change ${current + 1} of ${changes.length}`;
  history.replaceState(null, "", `#${change.id}`);
}

onKey("n", () => show(current + 1));
onKey("p", () => show(current < 0 ? changes.length - 1 : current - 1));

for (const [key, selector] of [["s", "[data-swap]"], ["u", "[data-view]"], ["w", "[data-blanks]"]]) {
  const link = document.querySelector(selector);
  if (link) onKey(key, () => link.click());
}

const pickers = document.querySelector("[data-pickers]");
pickers?.addEventListener("change", () => {
  if (pickers.elements.a.value && pickers.elements.b.value) pickers.requestSubmit();
});

// A shared address may point into a folded stretch, or at a change.
function openTarget() {
  const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (!target) return;
  const fold = target.closest("details");
  if (fold && !fold.open) { fold.open = true; target.scrollIntoView({ block: "center" }); }
  if (changes.includes(target)) show(changes.indexOf(target));
}
openTarget();
window.addEventListener("hashchange", openTarget);
