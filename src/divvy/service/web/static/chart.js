// Owed against delivered over time, as SVG: areas for what was delivered, a stepped line for what was owed.

import { h, s } from "./dom.js";
import { clock, number } from "./format.js";
import { saveButtons } from "./save.js";

const HEIGHT = 220;
const NARROWEST = 300;
const wired = new WeakSet();
const EDGE = { left: 44, right: 8, top: 10, bottom: 24 };
const MOST_POINTS = 192;

/** Return the hours of several rows added up, in at most `MOST_POINTS` steps of equal length. */
function pointsOf(rows) {
  const hours = new Map();
  for (const row of rows) {
    for (const hour of row.hours ?? []) {
      const sum = hours.get(hour.at) ?? { at: hour.at, owed: 0, delivered: 0, unallocated: 0, demand: 0 };
      for (const key of ["owed", "delivered", "unallocated", "demand"]) sum[key] += hour[key];
      hours.set(hour.at, sum);
    }
  }
  const sorted = [...hours.values()].sort((a, b) => a.at - b.at);
  const step = Math.ceil(sorted.length / MOST_POINTS) || 1;
  const points = [];
  for (let at = 0; at < sorted.length; at += step) {
    const part = sorted.slice(at, at + step);
    const mean = (key) => part.reduce((sum, hour) => sum + hour[key], 0) / part.length;
    points.push({ at: part[0].at, hours: part.length, owed: mean("owed"), delivered: mean("delivered"), unallocated: mean("unallocated"), demand: mean("demand") });
  }
  return points;
}

/** Return a chart of a statement's rows, with the same figures as a table below it. */
export function draw(rows, days) {
  const points = pointsOf(rows);
  const width = Math.max(document.getElementById("main").clientWidth - 42, NARROWEST);
  if (points.length < 2) {
    return h("p", { class: "dim" }, "The chart begins when the first two hours are over.");
  }
  const most = niceCeiling(Math.max(...points.map((p) => Math.max(p.owed, p.delivered + p.unallocated)), 0.1));
  const x = (index) => EDGE.left + (index / points.length) * (width - EDGE.left - EDGE.right);
  const y = (value) => HEIGHT - EDGE.bottom - (value / most) * (HEIGHT - EDGE.top - EDGE.bottom);
  const steps = (value) => points.map((p, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(value(p)).toFixed(1)}H${x(i + 1).toFixed(1)}`).join("");
  const area = (low, high) => {
    const back = points.map((p, i) => [x(i + 1), x(i), y(low(p))]).reverse();
    return `${steps(high)}${back.map(([right, left, v]) => `L${right.toFixed(1)} ${v.toFixed(1)}H${left.toFixed(1)}`).join("")}Z`;
  };
  return h(
    "figure",
    { class: "chart", "data-chart": "owed-delivered" },
    s(
      "svg",
      { viewBox: `0 0 ${width} ${HEIGHT}`, "data-width": width, role: "img", "aria-label": `Devices owed and delivered over the last ${days === 1 ? "24 hours" : `${days} days`}; the figures are in the table below` },
      s("defs", {}, s("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, s("rect", { width: 2, height: 6, class: "hatch" }))),
      axes(points, most, x, y, days, width),
      s("path", { class: "delivered", d: area(() => 0, (p) => p.delivered) }),
      s("path", { class: "unallocated", d: area((p) => p.delivered, (p) => p.delivered + p.unallocated), fill: "url(#hatch)" }),
      s("path", { class: "owed", d: steps((p) => p.owed) }),
      s("line", { class: "cursor", y1: EDGE.top, y2: HEIGHT - EDGE.bottom, x1: -9, x2: -9, "data-own": true }),
      s("rect", { class: "touch", x: EDGE.left, y: 0, width: width - EDGE.left - EDGE.right, height: HEIGHT, "data-points": JSON.stringify(points.map((p) => [p.at, p.hours, p.owed, p.delivered, p.unallocated, p.demand])) }),
    ),
    h(
      "figcaption",
      {},
      h("span", { class: "key" }, h("i", { class: "k-owed" }), "owed"),
      h("span", { class: "key" }, h("i", { class: "k-delivered" }), "delivered"),
      h("span", { class: "key" }, h("i", { class: "k-unallocated" }), "unallocated, free of charge"),
      saveButtons("owed-delivered"),
      h("span", { class: "readout dim", "data-own": true }, "devices, mean of each hour"),
    ),
    table(points),
  );
}

function axes(points, most, x, y, days, width) {
  const lines = [0, 0.5, 1].map((part) => [
    s("line", { class: "line", x1: EDGE.left, x2: width - EDGE.right, y1: y(most * part), y2: y(most * part) }),
    s("text", { class: "label", x: EDGE.left - 6, y: y(most * part) + 4, "text-anchor": "end" }, number(most * part)),
  ]);
  const every = Math.max(Math.ceil(points.length / Math.min(7, width / 90)), 1);
  const times = points
    .map((p, i) => [p, i])
    .filter(([, i]) => i % every === Math.floor(every / 2))
    .map(([p, i]) => s("text", { class: "label", x: x(i), y: HEIGHT - 6, "text-anchor": "middle" }, when(p.at, days)));
  return [lines, times];
}

function when(at, days) {
  const then = new Date(at * 1000);
  if (days === 1) return then.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
  return then.toLocaleDateString([], { day: "numeric", month: "short" });
}

function niceCeiling(value) {
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 8, 10].map((n) => n * size).find((n) => n >= value) ?? 10 * size;
}

function table(points) {
  const columns = ["From", "Owed", "Delivered", "Unallocated", "Demand"];
  return h(
    "details",
    {},
    h("summary", {}, "As a table"),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Owed and delivered as a table" },
      h(
        "table",
        { class: "rows" },
        h("thead", {}, h("tr", {}, columns.map((text, i) => h("th", { scope: "col", class: i ? "num" : null }, text)))),
        h(
          "tbody",
          {},
          [...points].reverse().map((p) =>
            h("tr", {}, h("td", {}, clock(p.at)), [p.owed, p.delivered, p.unallocated, p.demand].map((value) => h("td", { class: "num" }, number(value, 2)))),
          ),
        ),
      ),
    ),
  );
}

/** Make charts say the figures under the pointer. */
export function wire(main) {
  for (const touch of main.querySelectorAll(".touch")) {
    if (wired.has(touch)) continue;
    wired.add(touch);
    touch.addEventListener("pointermove", (event) => {
      const points = JSON.parse(touch.dataset.points);
      const box = touch.getBoundingClientRect();
      const index = Math.min(Math.max(Math.floor(((event.clientX - box.left) / box.width) * points.length), 0), points.length - 1);
      const [at, , owed, delivered, unallocated] = points[index];
      const line = touch.previousElementSibling;
      const width = Number(touch.ownerSVGElement.dataset.width);
      const place = EDGE.left + ((index + 0.5) / points.length) * (width - EDGE.left - EDGE.right);
      line.setAttribute("x1", place);
      line.setAttribute("x2", place);
      touch.closest("figure").querySelector(".readout").textContent = `${clock(at)}: owed ${number(owed, 2)}, delivered ${number(delivered, 2)}, unallocated ${number(unallocated, 2)}`;
    });
  }
}
