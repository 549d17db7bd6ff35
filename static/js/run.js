// The live run page: puts arriving steps into the trace, refreshes what stands around it, and moves
// through the trace by keyboard. Without it the page is the same page, as of loading.

import { onKey } from "./base.js";
import { Stream } from "./stream.js";

const KEPT_ROWS = 1500; // while following; older rows leave the page and are one click away
const PANEL_MS = 700; // between two refreshes of what stands around the trace, or longer:
const PANEL_SHARE = 5; // a busy server is asked at most this fraction of the time
const LOOK_MS = 5000; // between two refreshes that no step asked for
const LOOK_SHARE = 50;
const TELLING = new Set(["run", "candidate", "evaluation", "budget", "control", "message"]);

const page = document.querySelector("[data-run]");
const trace = page.querySelector("[data-trace]");
const health = page.querySelector("[data-health]");
const below = page.querySelector("[data-new]");
const find = page.querySelector("[data-find]");
const asked = page.querySelector("#run-said");
const types = new Set(page.dataset.types.split(" "));
const needle = new URLSearchParams(location.search).get("q") ?? "";
const rows = () => [...trace.querySelectorAll(".ev[data-seq]:not(.filtered)")];
const gone = { count: 0 };

// --- the sticky head's height, for everything that sticks or scrolls below it
const head = page.querySelector(".run-head");
new ResizeObserver(() => {
  const sticky = getComputedStyle(head).position === "sticky";
  page.style.setProperty("--head-h", sticky ? `${head.offsetHeight}px` : "0px");
}).observe(head);
const drawer = page.querySelector("[data-drawer]");
const narrow = matchMedia("(max-width: 700px)");
const fitDrawer = () => { drawer.open = !narrow.matches; };
fitDrawer();
narrow.addEventListener("change", fitDrawer);

// --- following the tail
let atTail = page.dataset.atTail === "true";
let unseen = 0;

function nearEnd() {
  const last = live ?? rows().at(-1);
  return !last || last.getBoundingClientRect().bottom <= innerHeight + 48;
}

function toEnd() {
  unseen = 0;
  below.hidden = true;
  (live ?? rows().at(-1))?.scrollIntoView({ block: "end" });
}

function sayNew() {
  below.hidden = unseen === 0;
  below.textContent = `${unseen} new ↓`;
}

below.addEventListener("click", () => {
  if (atTail) toEnd();
  else location.assign(page.dataset.url);
});
addEventListener("scroll", () => { if (unseen && atTail && nearEnd()) { unseen = 0; sayNew(); } }, { passive: true });

function wanted(item) {
  if (document.getElementById(`seq-${item.seq}`)) return false; // written while the page was made
  return types.has(item.type) && (!needle || item.html.toLowerCase().includes(needle.toLowerCase()));
}

// --- what an agent is saying now: shown until the step it becomes is here, and never kept
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff\ud800-\udfff]/gu;
const SHOWN_CHARACTERS = 6000; // of a long text the end is what is new
const writing = page.querySelector("[data-writing]");
let live = null;

const visible = (text) => text.replaceAll(INVISIBLE, (mark) => {
  const code = mark.codePointAt(0);
  return code < 0x20 ? String.fromCharCode(0x2400 + code) : `⟦U+${code.toString(16).toUpperCase().padStart(4, "0")}⟧`;
});

function speaker() {
  const briefs = [...trace.querySelectorAll("[data-agent]")];
  return briefs.at(-1)?.textContent ?? page.dataset.agent;
}

function liveRow(author) {
  const row = document.createElement("div");
  row.className = "ev ev-live";
  row.innerHTML = `<span class="seq num" aria-hidden="true">…</span><span class="ic" aria-hidden="true">✦</span>
    <div class="ev-body"><b><bdi data-author></bdi></b> <span class="soft">is writing…</span> <span class="text" data-text></span><span class="caret" aria-hidden="true"></span></div>`;
  row.querySelector("[data-author]").textContent = author;
  return row;
}

function showText(text) {
  if (!text) { endText(); return; } // given up: no step will come of it
  if (!atTail || !types.has("message")) return;
  const follow = nearEnd();
  if (!live) {
    live = liveRow(speaker());
    trace.querySelector("[data-empty]")?.remove();
    trace.insertBefore(live, writing);
    writing.textContent = `${live.querySelector("[data-author]").textContent} is writing`; // spoken once, not at each word
  }
  const end = text.length > SHOWN_CHARACTERS ? `…${text.slice(-SHOWN_CHARACTERS)}` : text;
  live.querySelector("[data-text]").textContent = visible(end);
  if (follow) toEnd();
}

function endText() {
  live?.remove();
  live = null;
  writing.textContent = "";
}

function append(items) {
  const follow = nearEnd(); // before the text that is being written makes room for its step
  endText();
  const shown = items.filter(wanted);
  if (items.some((item) => TELLING.has(item.type))) refreshPanels();
  if (items.some((item) => item.type === "control")) asked.replaceChildren(); // it took effect
  if (!shown.length) return;
  if (!atTail) { unseen += shown.length; sayNew(); return; }
  trace.querySelector("[data-empty]")?.remove();
  const template = document.createElement("template");
  template.innerHTML = shown.map((item) => item.html).join("");
  for (const row of template.content.querySelectorAll(".ev")) {
    row.classList.add("fresh");
    applyFind(row);
  }
  trace.insertBefore(template.content, writing);
  if (follow) { trim(); toEnd(); } else { unseen += shown.length; sayNew(); }
}

function trim() {
  const all = trace.querySelectorAll(".ev[data-seq]");
  if (all.length <= KEPT_ROWS) return;
  for (const row of [...all].slice(0, all.length - KEPT_ROWS)) row.remove();
  gone.count += 1;
  const first = trace.querySelector(".ev");
  trace.querySelector(".more")?.remove();
  const link = document.createElement("a");
  link.className = "more";
  const query = new URLSearchParams(location.search);
  query.set("before", first.dataset.seq);
  link.href = `${page.dataset.url}?${query}`;
  link.textContent = "Load earlier steps";
  trace.prepend(link);
}

// --- what stands around the trace
let panelTimer = null;
let panelAt = -Infinity;
let panelTook = 0;
let asking = false;
let again = false; // news came while the last answer was on its way

function refreshPanels() {
  if (asking) again = true;
  if (asking || panelTimer) return;
  const pause = Math.max(PANEL_MS, PANEL_SHARE * panelTook) - (performance.now() - panelAt);
  panelTimer = setTimeout(loadPanels, Math.max(0, pause));
}

async function loadPanels() {
  panelTimer = null;
  asking = true;
  const from = performance.now();
  const answer = htmx.ajax("GET", `${page.dataset.url}panel/`, { source: page, swap: "none" });
  await answer.catch(() => {}); // away: the stream's chip says so, and the next step asks again
  asking = false;
  panelAt = performance.now();
  panelTook = panelAt - from;
  if (again) refreshPanels();
  again = false;
}

// --- stream
const CHIPS = {
  connecting: ["idle", "○"], live: ["ok", "●"], reconnecting: ["warn", "◌"],
  stale: ["warn", "⚠"], ended: ["idle", "■"],
};

function words({ state, lastSeq, gaps, lag, wait, polls }) {
  const seq = lastSeq ? `seq 1–${lastSeq}` : "no steps yet";
  const lost = `${gaps} gap${gaps === 1 ? "" : "s"}`;
  const delay = lag === null ? "" : ` · lag ${lag < 0.095 ? lag.toFixed(2) : lag.toFixed(1)} s`;
  switch (state) {
    case "live": return `live · ${seq} · ${lost}${delay}`;
    case "connecting": return "connecting…";
    case "reconnecting": return `${polls ? "polling" : "offline"} · ${seq} · reconnecting in ${wait} s`;
    case "stale": return `stale · ${seq} · no word from the server`;
    default: return `ended · ${seq} · ${lost}`;
  }
}

let said = "";
function showHealth(report) {
  if (report.state !== "live") endText(); // nobody knows what is being said now
  const [colour, icon] = CHIPS[report.state];
  const text = words(report);
  if (text === said) return;
  said = text;
  health.className = `chip ${colour}`;
  // Spoken only when the state changes: numbers change several times a second.
  if (health.dataset.state !== report.state) page.querySelector("[data-health-said]").textContent = `stream ${report.state}`;
  health.dataset.state = report.state;
  const sign = document.createElement("span");
  sign.setAttribute("aria-hidden", "true");
  sign.textContent = icon;
  health.replaceChildren(sign, ` ${text}`);
}

async function poll(after) {
  const response = await fetch(`${page.dataset.url}events/?after=${after}`, { headers: { Accept: "text/html" } });
  if (!response.ok || !response.headers.has("X-Last-Seq")) return null; // signed out, or not ours
  const parsed = new DOMParser().parseFromString(await response.text(), "text/html");
  const items = [...parsed.querySelectorAll(".ev")].map((row) => ({
    seq: Number(row.dataset.seq), type: row.dataset.type, at: row.dataset.at, html: row.outerHTML,
  }));
  return { items, lastSeq: Number(response.headers.get("X-Last-Seq")), status: response.headers.get("X-Run-Status") };
}

const ended = ["finished", "stopped", "failed"].includes(page.dataset.status) || page.dataset.imported === "true";
if (!ended) {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  new Stream({
    url: `${scheme}://${location.host}/ws/runs/${page.dataset.run}/`,
    lastSeq: Number(page.dataset.lastSeq),
    status: page.dataset.status,
    onItems: append,
    onText: showText,
    onHealth: showHealth,
    onStatus: refreshPanels,
    poll,
  });
  // State that no step announces: a stop request, a queue reason, a driver gone silent.
  (function look() {
    setTimeout(() => {
      if (health.dataset.state === "ended") return;
      if (!document.hidden) refreshPanels();
      look();
    }, Math.max(LOOK_MS, LOOK_SHARE * panelTook));
  })();
}

// --- links to steps
function target(seq) {
  const row = document.getElementById(`seq-${seq}`);
  if (!row) return false;
  trace.querySelector(".targeted")?.classList.remove("targeted");
  row.classList.add("targeted");
  row.scrollIntoView({ block: "start" });
  row.focus({ preventScroll: true });
  return true;
}

page.addEventListener("click", (event) => {
  const link = event.target.closest("a.seq, a[data-jump]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const seq = link.dataset.jump ?? link.closest(".ev").dataset.seq;
  if (!target(seq)) return; // not in this window: the link loads the one that holds it
  event.preventDefault();
  const query = new URLSearchParams(location.search);
  query.set("seq", seq);
  query.delete("before");
  query.delete("after");
  history.replaceState(null, "", `?${query}#seq-${seq}`);
  if (narrow.matches) drawer.open = false;
});

const named = location.hash.match(/^#seq-(\d+)$/);
if (named) {
  if (!target(named[1]) && new URLSearchParams(location.search).get("seq") !== named[1]) {
    location.replace(`?seq=${named[1]}${location.hash}`);
  }
} else if (!ended && atTail && rows().length > 12) {
  toEnd();
}

// --- finding within the rows at hand; Enter asks the server for the whole run
function applyFind(row) {
  const text = find.value.trim().toLowerCase();
  row.classList.toggle("filtered", Boolean(text) && !row.textContent.toLowerCase().includes(text));
}

let findTimer = null;
find.addEventListener("input", () => {
  clearTimeout(findTimer);
  findTimer = setTimeout(() => trace.querySelectorAll(".ev").forEach(applyFind), 120);
});

// --- keys
function current() {
  const focused = document.activeElement?.closest?.(".ev");
  if (focused && trace.contains(focused)) return focused;
  return trace.querySelector(".targeted:not(.filtered)");
}

function firstVisible() {
  const top = head.getBoundingClientRect().bottom;
  return rows().find((row) => row.getBoundingClientRect().bottom > top + 8);
}

function step(candidates, direction) {
  const all = rows();
  const from = current();
  let chosen;
  if (!from) chosen = candidates.length === all.length ? firstVisible() : candidates[0];
  else {
    const here = Number(from.dataset.seq);
    chosen = direction > 0
      ? candidates.find((row) => Number(row.dataset.seq) > here)
      : candidates.findLast((row) => Number(row.dataset.seq) < here);
  }
  if (!chosen) return;
  trace.querySelector(".targeted")?.classList.remove("targeted");
  chosen.classList.add("targeted");
  chosen.focus({ preventScroll: true });
  chosen.scrollIntoView({ block: "nearest" });
}

onKey("j", () => step(rows(), 1));
onKey("k", () => step(rows(), -1));
onKey("c", () => {
  const found = rows().filter((row) => row.dataset.type === "candidate");
  const from = current();
  const later = from ? found.filter((row) => Number(row.dataset.seq) > Number(from.dataset.seq)) : found;
  step(later.length ? found : found.slice(0, 1), later.length ? 1 : -1);
});
onKey("e", () => {
  const folds = [...(current()?.querySelectorAll("details") ?? [])];
  const open = folds.some((fold) => !fold.open);
  folds.forEach((fold) => { fold.open = open; });
});
onKey("/", () => {
  if (narrow.matches) drawer.open = true;
  find.focus();
  find.select();
});
onKey("G", () => { if (atTail) { toEnd(); rows().at(-1)?.focus({ preventScroll: true }); } else location.assign(page.dataset.url); });
find.addEventListener("keydown", (event) => { if (event.key === "Escape") { find.value = ""; find.dispatchEvent(new Event("input")); find.blur(); } });

// --- asking something of the run: dialogs instead of the page that the same links lead to
const dialogs = Object.fromEntries([...page.querySelectorAll("[data-dialog]")].map((dialog) => [dialog.dataset.dialog, dialog]));

function show(name) {
  dialogs[name].querySelector("[data-said]").replaceChildren();
  dialogs[name].showModal();
  dialogs[name].querySelector("textarea, input[type=text]")?.focus();
}

page.addEventListener("click", (event) => {
  if (event.target.closest("[data-close]")) { event.target.closest("dialog").close(); return; }
  const link = event.target.closest("[data-open]");
  if (!link || !dialogs[link.dataset.open] || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  show(link.dataset.open);
});

// Taken: what was asked stands in the head as pending until its step is here.
document.addEventListener("run-asked", (event) => {
  const form = event.target.closest("[data-ask]");
  if (form) {
    if (form.elements.text) form.elements.text.value = "";
    form.querySelector("button").disabled = false;
    form.closest("dialog").close();
  }
  refreshPanels();
});
document.addEventListener("htmx:afterRequest", (event) => {
  event.target.querySelectorAll?.("button[aria-busy]").forEach((button) => {
    button.disabled = false;
    button.removeAttribute("aria-busy");
  });
});

onKey("p", () => page.querySelector("#act-pause")?.click());
onKey("s", () => page.querySelector("#act-steer")?.click());
