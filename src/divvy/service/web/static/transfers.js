// Transfers: how devices are linked, what is wrong with that, and which way bytes go.

import { getText } from "./api.js";
import { chartWidth } from "./bars.js";
import { h, s } from "./dom.js";
import { many, NONE, number, percent } from "./format.js";
import { elsewhere, empty, tile } from "./parts.js";
import { saveButtons } from "./save.js";
import { choice, exampleChip, fetchOne, listed, origin, publishHint } from "./shown.js";

export const title = "Transfers";

const MOST_FLOWS = 40;
const MOST_DEVICES = 24;
const pictures = new Map();
const SHOW = publishHint("divvy topo show MATRIX.txt", "node");
const PLAN = publishHint("divvy route plan --topo MATRIX.txt --transfers random:n=12,seed=1", "batch");

export async function load(params) {
  const { documents, as_of, age } = await listed("transfers");
  const topos = documents.filter((one) => one.kind === "divvy.topo/1");
  const routes = documents.filter((one) => one.kind !== "divvy.topo/1");
  const topo = topos.find((one) => one.name === params.get("topo")) ?? topos[0];
  const route = routes.find((one) => one.name === params.get("plan")) ?? routes[0];
  const [graph, plan, picture] = await Promise.all([fetchOne(topo), fetchOne(route), pictureOf(topo)]);
  return { topos, routes, topo, route, graph, plan, picture, as_of, age };
}

async function pictureOf(entry) {
  if (!entry) return null;
  const key = `${entry.name} ${entry.at}`;
  if (!pictures.has(key)) {
    const text = await getText(`/v1/shown/${encodeURIComponent(entry.name)}/picture`);
    pictures.set(key, `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`);
  }
  return pictures.get(key);
}

export function draw({ topos, routes, topo, route, graph, plan, picture }, params) {
  const link = (name) => (value) => {
    const query = new URLSearchParams(params);
    query.set(name, value);
    return `#/transfers?${query}`;
  };
  return [
    h("div", { class: "heading" }, h("h1", {}, "Transfers"), h("p", { class: "dim" }, "how devices are linked, and which way bytes go")),
    topo
      ? h(
          "section",
          { class: "panel", "aria-label": "Topology" },
          h("div", { class: "heading" }, h("h2", {}, `Topology of ${topo.title}`), exampleChip(topo)),
          choice("Topologies", topos, topo, link("topo")),
          origin(topo),
          graphParts(graph.document, picture),
          elsewhere(topo.command || SHOW, `/v1/shown/${encodeURIComponent(topo.name)}`),
        )
      : empty("No topology is shown yet", "Save what nvidia-smi topo -m prints (or an NCCL XML, hwloc, ibstat) and put it here; --live reads this machine:", SHOW),
    route
      ? h(
          "section",
          { class: "panel", "aria-label": "Routes" },
          h("div", { class: "heading" }, h("h2", {}, route.kind === "divvy.route.plan/1" ? `Plan for ${route.title}` : route.title), exampleChip(route)),
          choice("Plans", routes, route, link("plan")),
          origin(route),
          route.kind === "divvy.route.plan/1" ? planParts(plan.document) : explained(plan.document),
          elsewhere(route.command || PLAN, `/v1/shown/${encodeURIComponent(route.name)}`),
        )
      : empty("No routes are shown yet", "A plan says for each transfer which way its bytes go, when it ends, what limits it and what was rejected:", PLAN),
  ];
}

// -- the graph ------------------------------------------------------------------------------------------

function graphParts(graph, picture) {
  const devices = graph.vertices.filter((one) => one.kind === "gpu" || one.kind === "nic").map((one) => one.id);
  return [
    h(
      "figure",
      { class: "chart", "data-chart": "topology" },
      h("figcaption", {}, h("b", {}, `${many(graph.vertices.length, "place")}, ${many(graph.links.length, "link")}; width is rate`), saveButtons("topology")),
      h("div", { class: "picture", tabindex: "0", role: "region", "aria-label": "Picture of the topology" }, h("img", { src: picture, alt: `${graph.name}: ${counted(graph)}; the labels are in the table below` })),
    ),
    matrix(graph, devices),
    findings(graph.warnings),
  ];
}

function counted(graph) {
  const counts = new Map();
  for (const one of graph.vertices) counts.set(one.kind, (counts.get(one.kind) ?? 0) + 1);
  return [...counts].map(([kind, count]) => `${count} ${kind}`).join(", ");
}

function matrix(graph, devices) {
  if (devices.length < 2) return null;
  const shown = devices.slice(0, MOST_DEVICES);
  const labels = new Map(graph.pairs.flatMap(({ a, b, label }) => [[`${a} ${b}`, label], [`${b} ${a}`, label]]));
  const cell = (a, b) => (a === b ? "" : labels.get(`${a} ${b}`) ?? "?");
  return h(
    "details",
    { class: "matrix" },
    h("summary", {}, "Link matrix"),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Link matrix" },
      h(
        "table",
        { class: "links" },
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, h("span", { class: "unseen" }, "Device")), shown.map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, shown.map((a) => h("tr", {}, h("th", { scope: "row" }, a), shown.map((b) => h("td", { "data-near": nearness(cell(a, b)) }, cell(a, b)))))),
      ),
    ),
    devices.length > shown.length ? h("p", { class: "dim" }, `The first ${shown.length} of ${devices.length} devices.`) : null,
  );
}

function nearness(label) {
  if (/^(NV|XGMI)/.test(label)) return "3";
  return { PIX: "2", PXB: "2", PHB: "1", NODE: "1", SYS: "0" }[label] ?? null;
}

function findings(warnings) {
  if (!warnings.length) return h("p", { class: "good" }, "Nothing is wrong with what was read.");
  return [
    h("h3", {}, many(warnings.length, "warning")),
    h("ul", { class: "plain" }, warnings.map((one) => h("li", {}, h("code", {}, one.code), ` ${one.where}: ${one.text} `, h("span", { class: "dim" }, `Do this: ${one.fix}`)))),
  ];
}

// -- a plan ---------------------------------------------------------------------------------------------

const bytes = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

function size(count) {
  const [unit, name] = count >= 1e9 ? [1e9, "GB"] : count >= 1e6 ? [1e6, "MB"] : [1e3, "kB"];
  return `${bytes.format(count / unit)} ${name}`;
}

function time(seconds) {
  return seconds >= 1 ? `${number(seconds)} s` : seconds >= 1e-3 ? `${bytes.format(seconds * 1e3)} ms` : `${bytes.format(seconds * 1e6)} \u00b5s`;
}

function planParts(plan) {
  const flows = [...plan.transfers].sort((a, b) => b.bytes - a.bytes);
  const shown = flows.slice(0, MOST_FLOWS);
  return [
    h(
      "div",
      { class: "tiles" },
      tile(time(plan.makespan_s), "until the last byte"),
      tile(plan.of_bound === null ? NONE : `${number(plan.of_bound, 3)}\u00d7`, "the lower bound"),
      tile(size(flows.reduce((sum, one) => sum + one.bytes, 0)), `in ${many(flows.length, "transfer")}`),
      plan.unplanned.length ? tile(String(plan.unplanned.length), "without a route") : null,
    ),
    gantt(shown, plan.makespan_s),
    h(
      "div",
      { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Largest flows" },
      h(
        "table",
        { class: "rows" },
        h("thead", {}, h("tr", {}, ["From, to", "Bytes", "Route", "What limits it", "Rejected"].map((text, at) => h("th", { scope: "col", class: at === 1 ? "num" : null }, text)))),
        h("tbody", {}, shown.map(flowRow)),
      ),
    ),
    flows.length > shown.length ? h("p", { class: "dim" }, `The largest ${shown.length} of ${number(flows.length)}.`) : null,
    plan.unplanned.length ? h("ul", { class: "plain" }, plan.unplanned.map((one) => h("li", {}, `${one.id}: ${one.reason} `, h("code", {}, one.code)))) : null,
  ];
}

function flowRow(one) {
  return h(
    "tr",
    { "data-key": one.id },
    h("td", {}, `${one.from} \u2192 ${one.to}`, h("span", { class: "sub" }, `ends after ${time(one.finish)}`)),
    h("td", { class: "num" }, size(one.bytes)),
    h("td", {}, one.routes.map((route) => h("div", {}, `${percent(route.share)} ${route.kind}`, route.via.length ? h("span", { class: "sub" }, `via ${route.via.join(", ")}`) : null))),
    h("td", {}, one.bottleneck),
    h("td", {}, one.rejected.length ? h("details", {}, h("summary", {}, many(one.rejected.length, "way")), h("ul", { class: "plain" }, one.rejected.map((other) => h("li", {}, h("b", {}, other.kind), `: ${other.why}`)))) : NONE),
  );
}

/** Return when each transfer runs, as bars along time. */
function gantt(flows, end) {
  const width = chartWidth(1280);
  const [left, row] = [112, 18];
  const height = flows.length * row + 26;
  const x = (at) => left + (at / Math.max(end, 1e-12)) * (width - left - 8);
  return h(
    "figure",
    { class: "chart", "data-chart": "route-plan" },
    h("figcaption", {}, h("b", {}, "When each transfer runs"), saveButtons("route-plan")),
    s(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${flows.length} transfers over ${time(end)}; the figures are in the table below` },
      [0, 0.5, 1].map((part) => [
        s("line", { class: "line", x1: x(end * part), x2: x(end * part), y1: 2, y2: height - 20 }),
        s("text", { class: "label", x: x(end * part), y: height - 6, "text-anchor": part === 0 ? "start" : part === 1 ? "end" : "middle" }, time(end * part)),
      ]),
      flows.map((one, at) => [
        s("text", { class: "label ink", x: 0, y: at * row + 13 }, `${one.from} \u2192 ${one.to}`),
        s("rect", { class: `flow k-${one.routes[0]?.kind.split("-")[0] ?? "none"}`, x: x(one.start), y: at * row + 4, width: Math.max(x(one.finish) - x(one.start), 2), height: row - 7, rx: 2 }, s("title", {}, `${one.from} to ${one.to}: ${size(one.bytes)} by ${one.routes.map((route) => route.kind).join(", ")}`)),
      ]),
    ),
    h(
      "p",
      { class: "legend-line" },
      [...new Set(flows.map((one) => one.routes[0]?.kind.split("-")[0]))].filter(Boolean).map((kind) => h("span", { class: "key" }, h("i", { class: `k-${kind}` }), kind)),
    ),
  );
}

function explained(plan) {
  return [
    h("div", { class: "tiles" }, tile(time(plan.predicted_s), "predicted"), tile(`${number(plan.gb_per_s)} GB/s`, "one way"), tile(size(plan.bytes), "to move")),
    h("p", {}, `Limited by ${plan.bottleneck}.`),
    h(
      "table",
      { class: "rows" },
      h("thead", {}, h("tr", {}, ["Way", "Predicted", "Rate", "Limited by"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, plan.candidates.map((one) => h("tr", {}, h("td", {}, one.kind, one.chosen ? " (chosen)" : ""), h("td", {}, time(one.predicted_s)), h("td", {}, `${number(one.gb_per_s)} GB/s`), h("td", {}, one.bottleneck)))),
    ),
  ];
}
