// The whole fleet as one SVG, for saving: a block for each node, allocation above, utilisation below.

import { s } from "./dom.js";
import { DEVICE_STATES } from "./parts.js";

const CELL = 9;
const USE = 5;
const GAP = 10;
const LINE = 12;
const WIDTH = 1200;

/** Return nodes as an SVG element with colours of its own; `colour` gives the value of a CSS variable. */
export function fleetMap(nodes, colour) {
  const most = nodes.reduce((max, node) => Math.max(max, node.gpus), 1);
  const [wide, high] = [Math.max(most * CELL, 56) + GAP, LINE + CELL + USE + GAP];
  const columns = Math.max(Math.floor(WIDTH / wide), 1);
  const height = Math.ceil(nodes.length / columns) * high + 30;
  return s(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${height}`, width: WIDTH, height, "font-family": "sans-serif" },
    s("rect", { width: "100%", height: "100%", fill: colour("--panel") }),
    nodes.map((node, at) => block(node, (at % columns) * wide + 6, Math.floor(at / columns) * high + 4, colour)),
    legend(height - 12, colour),
  );
}

function block(node, x, y, colour) {
  return [
    s("text", { x, y: y + 8, "font-size": 8, fill: colour("--muted") }, node.name),
    node.devices.map((device, place) => {
      const left = x + place * CELL;
      const used = device.utilisation === null ? 0 : device.utilisation * USE;
      return [
        s("rect", { x: left, y: y + LINE, width: CELL - 1, height: CELL - 1, ...look(device.state, colour) }, s("title", {}, `${node.name} device ${device.index}: ${device.state}`)),
        s("rect", { x: left, y: y + LINE + CELL, width: CELL - 1, height: USE, fill: device.utilisation === null ? "none" : colour("--track"), stroke: device.utilisation === null ? colour("--free-line") : "none", "stroke-width": 0.5 }),
        used ? s("rect", { x: left, y: y + LINE + CELL + USE - used, width: CELL - 1, height: used, fill: colour("--use") }) : null,
      ];
    }),
  ];
}

function look(state, colour) {
  if (state === "free" || state === "draining") return { fill: "none", stroke: colour("--free-line"), "stroke-dasharray": state === "draining" ? "2 1" : "none" };
  return { fill: colour(`--${state}`) };
}

function legend(y, colour) {
  return Object.entries(DEVICE_STATES).map(([state, { name }], at) => [
    s("rect", { x: 6 + at * 110, y: y - 8, width: 9, height: 9, ...look(state, colour) }),
    s("text", { x: 19 + at * 110, y, "font-size": 10, fill: colour("--ink") }, name),
  ]);
}
