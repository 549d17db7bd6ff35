// The launch form: fields that do not apply to what is chosen are hidden. The server leaves them out
// by itself, so the form is the same without this.

const form = document.getElementById("launch");

function chosen(name) {
  const controls = [...form.elements].filter((control) => control.name === name && !control.closest("[hidden]"));
  return (controls.find((control) => control.type !== "radio" || control.checked) ?? {}).value;
}

function applies(condition) {
  return condition.split("|").some((part) => {
    const [name, value] = part.split("=");
    return chosen(name) === value;
  });
}

// In the order of the page: what stands in a hidden field chooses nothing.
function fit() {
  for (const part of form.querySelectorAll("[data-when]")) part.hidden = !applies(part.dataset.when);
}

// A wall clock that nobody typed follows the agent: one that talks needs longer.
function suggest() {
  const { searchMinutes, talkMinutes } = form.dataset;
  const typed = form.elements.minutes;
  if (![searchMinutes, talkMinutes].includes(typed.value)) return;
  typed.value = chosen("agent") === "search" ? searchMinutes : talkMinutes;
}

form.addEventListener("change", (event) => {
  if (event.target.name === "agent") suggest();
  fit();
});
// A field that was refused is never hidden from whoever must put it right.
if (!form.querySelector("[data-when] .error")) fit();
