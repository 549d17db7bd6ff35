// Buttons that copy the text of another element: data-copy holds its id.

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copy);
  const label = button.dataset.label || (button.dataset.label = button.textContent);
  try {
    await navigator.clipboard.writeText(source.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(source); // no clipboard without HTTPS: one key is left to press
    button.textContent = "Selected: press Ctrl C";
  }
  setTimeout(() => { button.textContent = label; }, 2500);
});
