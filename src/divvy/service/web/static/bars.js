// Bars side by side, as SVG: one row for each thing, its figure in words beside its length.

import { h, s } from "./dom.js";
import { saveButtons } from "./save.js";

const ROW = 34;
const LABEL = 15;

/**
 * Return a chart of rows {label, value, text, kind, note}; `kind` gives the colour, the label says the same.
 * Where a row has `second`, both are drawn: the upper bar is the value, the lower one the second.
 */
export function bars(title, rows, { name, width = chartWidth() } = {}) {
  const known = rows.filter((row) => row.value !== null);
  const most = Math.max(...known.flatMap((row) => [row.value, row.second ?? 0]), 1e-9);
  const room = width - 150;
  const height = rows.length * ROW + 4;
  return h(
    "figure",
    { class: "chart bars", "data-chart": name },
    h("figcaption", {}, h("b", {}, title), saveButtons(name)),
    s(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}: ${rows.map((row) => `${row.label} ${row.text}`).join("; ")}` },
      rows.map((row, at) => drawRow(row, at * ROW, most, room)),
    ),
  );
}

function drawRow(row, top, most, room) {
  const long = (value) => Math.max((value / most) * room, 1.5);
  const two = row.second !== undefined && row.second !== null;
  const high = two ? 6 : 10;
  const y = top + LABEL + 4;
  return [
    s("text", { class: "label ink", x: 0, y: top + LABEL - 2 }, row.label),
    row.value === null ? null : s("rect", { class: `meter ${row.kind ?? "one"}`, x: 0, y, width: long(row.value), height: high, rx: 2 }),
    two ? s("rect", { class: "meter two", x: 0, y: y + high + 1, width: long(row.second), height: high, rx: 2 }) : null,
    s("text", { class: "label", x: (row.value === null ? 0 : Math.max(long(row.value), two ? long(row.second) : 0)) + 8, y: y + 9 }, row.text),
  ];
}

/** Return how wide a chart may be: the page without the frame of a panel. */
export function chartWidth(most = 760) {
  return Math.max(Math.min(document.getElementById("main").clientWidth - 42, most), 300);
}
