// Turns times marked data-time, which the server writes in UTC, into the reader's own clock.

const format = new Intl.DateTimeFormat(undefined, {
  month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23",
});

function localise(root) {
  root.querySelectorAll("time[data-time]").forEach((element) => {
    const at = new Date(element.dateTime);
    if (!Number.isNaN(at.getTime())) element.textContent = format.format(at);
  });
}

localise(document);
// Swapped fragments come from the server with UTC again.
document.addEventListener("htmx:load", (event) => localise(event.target.parentNode ?? event.target));
