// The candidate page: j and k walk through the run's candidates.

import { onKey } from "./base.js";

for (const [key, selector] of [["j", "[data-next]"], ["k", "[data-previous]"]]) {
  const link = document.querySelector(selector);
  if (link) onKey(key, () => link.click());
}
