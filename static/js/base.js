// What every page shares: the theme switch, the shortcut list, and keys that stand down inside inputs.

const root = document.documentElement;

export function onKey(key, handler) {
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select, [contenteditable]");
    if (typing || event.ctrlKey || event.metaKey || event.altKey || event.key !== key) return;
    event.preventDefault();
    handler(event);
  });
}

function setTheme(theme) {
  if (theme === "system") delete root.dataset.theme;
  else root.dataset.theme = theme;
  localStorage.setItem("theme", theme);
  document.dispatchEvent(new CustomEvent("themechange"));
}

const select = document.querySelector("[data-theme-select]");
if (select) {
  select.value = localStorage.getItem("theme") || "system";
  select.addEventListener("change", () => setTheme(select.value));
}

const help = document.querySelector("[data-shortcuts]");
if (help) onKey("?", () => (help.open ? help.close() : help.showModal()));

// Say on every submit button that work has begun, so nobody presses twice.
document.addEventListener("submit", (event) => {
  const button = event.submitter;
  if (!button || event.defaultPrevented) return;
  setTimeout(() => { button.disabled = true; button.setAttribute("aria-busy", "true"); });
});
// A page restored from the back-forward cache must not keep its buttons disabled.
window.addEventListener("pageshow", () => {
  document.querySelectorAll("button[aria-busy]").forEach((button) => {
    button.disabled = false;
    button.removeAttribute("aria-busy");
  });
});

// A refusal (422) is an answer to show, not an error to hide.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.xhr.status === 422) event.detail.shouldSwap = true;
});
// Ctrl+Enter sends a text that is being written.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  if (event.target.matches("[data-submit-keys]")) event.target.form.requestSubmit();
});
