// Draws the roofline from the data that the page carries; everything is computed on the server.

const chart = document.querySelector("[data-roofline]");
const data = JSON.parse(document.getElementById("roofline-data").textContent);
const DASH = { measured: "solid", datasheet: "dash", modelled: "dot" };
const ROOM = 1.7; // a name fits between two slopes whose bandwidths differ by this factor
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "hexagon", "cross"];

// A colour token as the browser resolves it in the present theme.
function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function scaled(value, unit) {
  const steps = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
  const [size, letter] = steps.find(([step]) => value >= step) || steps.at(-1);
  return `${Number((value / size).toPrecision(3))} ${letter}${unit}`;
}

function time(us) {
  const steps = [[1e6, "s"], [1e3, "ms"], [1, "µs"], [1e-3, "ns"]];
  const [size, unit] = steps.find(([step]) => us >= step) || steps.at(-1);
  return `${Number((us / size).toPrecision(3))} ${unit}`;
}

// Plotly reads a little HTML in its texts, and names may come from anywhere.
const plain = (text) => String(text)
  .replace(/[<>&]/g, (sign) => ({ "<": "‹", ">": "›", "&": "＆" })[sign])
  .replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, "�");

function roofTraces(theme) {
  return data.lines.map((line) => {
    const { roof } = line;
    const label = `${plain(roof.name)} ${scaled(roof.value, roof.unit)}`;
    return {
      type: "scatter", mode: "lines", x: line.x, y: line.y, name: `${label} · ${roof.source}`,
      visible: line.shown ? true : "legendonly", showlegend: !theme.narrow,
      line: { dash: DASH[roof.source] || "dot", width: line.binding ? 2.2 : 1.2, color: line.binding ? theme.ink : theme.soft },
      hoverlabel: { align: "left" },
      hovertemplate: `<b>${label}</b> ${roof.dtype}<br>${plain(roof.source)}: ${plain(roof.detail).replace(/(.{60}\S*) /g, "$1<br>")}<extra></extra>`,
    };
  });
}

function hover(point) {
  const share = point.share === null ? "no roof known" : `${(100 * point.share).toPrecision(3)}% of ${plain(point.roof)}`;
  return [
    `<b>c${point.candidate}</b> ${plain(point.case)}`,
    `${time(point.median_us)}, ${plain(point.baseline)} ${time(point.baseline_us)}`,
    `${point.speedup.toFixed(2)}× (95% ${point.ci95[0].toFixed(2)}–${point.ci95[1].toFixed(2)})`,
    `${scaled(point.bytes_per_s, "B/s")}, ${scaled(point.flops_per_s, "FLOP/s")} ${plain(point.dtype)}`,
    `${share}${point.above ? `<br>${plain(point.above)}` : ""}`,
    `${plain(point.device)}`, `${plain(point.timer)}, ${point.samples} pairs`,
  ].join("<br>");
}

function pointTraces(theme) {
  const cases = [...new Set(data.points.map((point) => point.case))];
  const last = Math.max(...data.points.map((point) => point.rank), 2);
  // The best is named once per intensity, at its highest point: cases of one intensity share a column.
  const named = new Map();
  for (const point of data.points.filter((one) => one.rank === 1)) {
    if (!(named.get(point.intensity)?.flops_per_s > point.flops_per_s)) named.set(point.intensity, point);
  }
  return cases.map((name, index) => {
    // Best last, so that it is drawn on top.
    const points = data.points.filter((point) => point.case === name).sort((a, b) => b.rank - a.rank);
    const strength = (point) => 1 - 0.75 * (point.rank - 1) / (last - 1);
    return {
      type: "scatter", mode: "markers+text", name: plain(name), x: points.map((p) => p.intensity), y: points.map((p) => p.flops_per_s),
      text: points.map((p) => (p === named.get(p.intensity) ? `c${p.candidate}` : "")), textposition: "middle right",
      textfont: { color: theme.ink, size: 12 }, cliponaxis: false,
      marker: {
        symbol: points.map((p) => (p.rank === 1 ? "star" : SYMBOLS[index % SYMBOLS.length])),
        size: points.map((p) => (p.rank === 1 ? 14 : 8)), color: theme.accent,
        opacity: points.map(strength), line: { width: points.map((p) => (p.rank === 1 ? 1.2 : 0.5)), color: theme.panel },
      },
      customdata: points.map((p) => data.links[p.candidate]),
      hovertext: points.map(hover), hovertemplate: "%{hovertext}<extra></extra>", hoverlabel: { align: "left" },
    };
  });
}

// The best candidate's line of ancestors, as far as they were timed.
function trajectory(theme) {
  const x = [], y = [];
  for (const name of new Set(data.points.map((point) => point.case))) {
    const known = new Map(data.points.filter((point) => point.case === name).map((point) => [point.candidate, point]));
    const seen = new Set();
    let point = [...known.values()].find((one) => one.rank === 1);
    while (point && !seen.has(point.candidate)) {
      seen.add(point.candidate);
      x.push(point.intensity);
      y.push(point.flops_per_s);
      point = known.get(point.parent);
    }
    x.push(null);
    y.push(null);
  }
  return { type: "scatter", mode: "lines", x, y, hoverinfo: "skip", showlegend: false, line: { color: theme.accent, width: 1.2 } };
}

function impossible(theme) {
  if (!data.impossible) return [];
  const [x, y] = data.impossible;
  return [{ type: "scatter", mode: "lines", x, y, fill: "toself", fillcolor: theme.suspectFill, line: { width: 0 }, hoverinfo: "skip", showlegend: false }];
}

// Where on their slopes the names stand, as shares of the slope: one after the other, and right of the
// points if there is room, so that neither near lines nor points write over them.
function stations(slopes) {
  const share = (line, x) => Math.log(x / line.x[0]) / Math.log(line.x[1] / line.x[0]);
  const furthest = Math.max(0, ...slopes.map((line) => Math.max(...data.points.map((point) => share(line, point.intensity)))));
  const first = furthest < 0.45 ? furthest + 0.14 : 0.3;
  const step = Math.min(0.16, (0.92 - first) / Math.max(1, slopes.length));
  return new Map([...slopes].sort((a, b) => b.roof.value - a.roof.value).map((line, index) => [line, first + index * step]));
}

// Each roof carries its name: along its slope, the slowest below its line and the others above.
// Of the flat ones the highest has it above. Between two lines too near for a name there is none: the
// legend and the list of roofs have it.
function roofLabels(theme, place) {
  const shown = data.lines.filter((line) => line.shown);
  const slopes = shown.filter((line) => line.roof.unit === "B/s");
  const slowest = Math.min(...slopes.map((line) => line.roof.value));
  const highest = Math.max(...shown.filter((line) => line.roof.unit !== "B/s").map((line) => line.roof.value));
  const station = stations(slopes);
  const size = chart._fullLayout;
  return shown.map((line) => {
    const { roof } = line;
    const text = `${plain(roof.name)} ${scaled(roof.value, roof.unit)}`;
    const color = line.binding ? theme.ink : theme.soft;
    if (roof.unit !== "B/s") return place(line.x[1], roof.value, text, color, { xanchor: "right", yanchor: roof.value === highest ? "bottom" : "top" });
    const below = roof.value === slowest && slopes.length > 1;
    if (!below && slopes.some((other) => other.roof.value > roof.value && other.roof.value < ROOM * roof.value)) return null;
    const [rise, run] = [size?.yaxis?._length / (size?.yaxis?.range[1] - size?.yaxis?.range[0]), size?.xaxis?._length / (size?.xaxis?.range[1] - size?.xaxis?.range[0])];
    const angle = rise && run ? -Math.atan2(rise, run) * 180 / Math.PI : 0;
    const x = line.x[0] * (line.x[1] / line.x[0]) ** (theme.narrow && slopes.length < 3 ? 0.45 : station.get(line));
    return place(x, x * roof.value, text, color, { textangle: angle, yshift: below ? -10 : 10, xshift: below ? 6 : -6 });
  }).filter(Boolean);
}

function ridgeLines(theme) {
  return data.ridges.map((ridge) => ({
    type: "line", x0: ridge.intensity, x1: ridge.intensity, y0: data.domain[2], y1: ridge.flops_per_s, line: { color: theme.strong, width: 1, dash: "dot" },
  }));
}

function annotations(theme) {
  const [left, right, , top] = data.domain;
  const place = (x, y, text, color, more = {}) => ({ x: Math.log10(x), y: Math.log10(y), text, showarrow: false, font: { size: 11, color }, ...more });
  const bottom = data.domain[2];
  const found = data.ridges.map((ridge) => place(ridge.intensity, bottom, `ridge ${Number(ridge.intensity.toPrecision(3))} FLOP/B`, theme.soft, { yshift: 10, ...(theme.narrow ? { xanchor: "right", xshift: -4 } : { xanchor: "left", xshift: 4 }) }));
  found.push(...roofLabels(theme, place));
  if (data.impossible) found.push(place(left, top, "impossible", theme.suspect, { xanchor: "left", yanchor: "top", xshift: 8, yshift: -6 }));
  return found;
}

function decades(bottom, top) {
  const first = Math.ceil(Math.log10(bottom)), count = Math.floor(Math.log10(top)) - first + 1;
  const tickvals = Array.from({ length: Math.max(0, count) }, (_, index) => 10 ** (first + index));
  return { tickmode: "array", minor: { ticks: "" }, tickvals, ticktext: tickvals.map((value) => scaled(value, "FLOP/s")) };
}

function layout(theme, narrow) {
  const [left, right, bottom, top] = data.domain;
  const axis = { type: "log", gridcolor: theme.line, linecolor: theme.strong, zeroline: false, tickfont: { color: theme.soft, size: 11 }, automargin: true, exponentformat: "SI", dtick: 1, minor: { ticks: "outside", ticklen: 3, tickcolor: theme.strong } };
  return {
    height: narrow ? 460 : 560, margin: { l: 62, r: narrow ? 12 : 24, t: 10, b: 46 }, paper_bgcolor: "transparent", plot_bgcolor: "transparent",
    font: { family: "system-ui, sans-serif", size: 12, color: theme.ink },
    xaxis: { ...axis, range: [Math.log10(left), Math.log10(right)], title: { text: "arithmetic intensity, FLOP/byte", standoff: 6, font: { size: 12, color: theme.soft } } },
    yaxis: { ...axis, ...decades(bottom, top), range: [Math.log10(bottom), Math.log10(top)], title: { text: "" } },
    shapes: ridgeLines(theme),
    legend: { orientation: "h", y: narrow ? -0.24 : -0.14, font: { size: 11, color: theme.soft }, itemsizing: "constant" },
    hoverlabel: { bgcolor: theme.panel, bordercolor: theme.strong, font: { color: theme.ink, size: 12 } },
    annotations: annotations(theme), hovermode: "closest", dragmode: "pan",
  };
}

function draw() {
  const theme = {
    ink: colour("--ink"), soft: colour("--soft"), faint: colour("--faint"), line: colour("--line"), strong: colour("--line-strong"),
    narrow: chart.clientWidth < 600, panel: colour("--panel"), accent: colour("--accent"), suspect: colour("--suspect"), suspectFill: colour("--suspect-bg"),
  };
  const traces = [...impossible(theme), ...roofTraces(theme), trajectory(theme), ...pointTraces(theme)];
  const options = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
  return window.Plotly.react(chart, traces, layout(theme, theme.narrow), options);
}

async function start() {
  chart.querySelector("[data-loading]")?.remove();
  await draw();
  await draw(); // again: only now is it known how steep a slope looks
  let width = chart.clientWidth;
  new ResizeObserver(() => {
    if (Math.abs(chart.clientWidth - width) < 8) return;
    width = chart.clientWidth;
    draw();
  }).observe(chart);
  chart.on("plotly_click", ({ points }) => { if (points[0].customdata) location.href = points[0].customdata; });
  document.addEventListener("themechange", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

if (window.Plotly) start();
else chart.querySelector("[data-loading]").textContent = "The chart could not be loaded; the table below holds the same numbers.";
