// Slices: how GPUs are cut, what that serves beside the alternatives, what a change costs.

import { bars, chartWidth } from "./bars.js";
import { h, s } from "./dom.js";
import { many, NONE, number, percent } from "./format.js";
import { copyable, elsewhere, empty, tile } from "./parts.js";
import { saveButtons } from "./save.js";
import { choice, exampleChip, fetchOne, listed, origin, publishHint } from "./shown.js";

export const title = "Slices";

const ROW = 44;
const HIGH = 30;
const MOST_GPUS = 64;
const HINT = publishHint("divvy slices plan --profile PROFILE.csv --sku A100-80GB --gpus 2", "chat");

export async function load(params) {
  const { documents, as_of, age } = await listed("slices");
  const entry = documents.find((one) => one.name === params.get("doc")) ?? documents[0];
  return { documents, entry, shown: await fetchOne(entry), as_of, age };
}

export function draw({ documents, entry, shown }) {
  if (!entry) {
    return [
      h("div", { class: "heading" }, h("h1", {}, "Slices")),
      empty("No plan is shown yet", "A plan says how GPUs are cut into slices for a model and its traffic, and what that serves. Make one and put it here:", HINT),
      h("p", {}, "Without a profile of your own, ", h("code", {}, "--profile fitted:resnet50"), " plans for a published one. What is running is not touched."),
      elsewhere("divvy publish --list --json", "/v1/shown"),
    ];
  }
  const { document: plan } = shown;
  const parts = { "divvy.slices.plan/1": planned, "divvy.slices.pack/1": packed, "divvy.slices.apply/1": changed };
  return [
    h("div", { class: "heading" }, h("h1", {}, "Slices"), exampleChip(entry), h("p", { class: "dim" }, entry.title)),
    choice("Documents", documents, entry, (name) => `#/slices?doc=${encodeURIComponent(name)}`),
    origin(entry),
    parts[entry.kind](plan, entry),
    elsewhere(entry.command || HINT, `/v1/shown/${encodeURIComponent(entry.name)}`),
  ];
}

// -- a plan for one model ---------------------------------------------------------------------------------

function planned(plan) {
  const rates = [
    { label: "this plan", value: plan.rate_qps, text: `${number(plan.rate_qps)} queries/s (${plan.dispatcher.split(":")[0]})`, kind: "one" },
    { label: "best equal slices", value: plan.baseline.qps, text: `${number(plan.baseline.qps)} (${plan.baseline.best_homogeneous})`, kind: "peer" },
    { label: "best PARIS + ELSA", value: plan.paris_qps, text: number(plan.paris_qps), kind: "peer" },
    { label: "upper bound: no schedule on any legal layout serves more", value: plan.bound_qps, text: number(plan.bound_qps), kind: "bound" },
  ];
  return [
    h(
      "div",
      { class: "tiles" },
      tile(number(plan.rate_qps), "queries a second", "found on the search seeds, holds on every fresh one"),
      tile(percent(plan.of_bound), "of the upper bound"),
      tile(`${number(plan.slo_ms)} ms`, `for ${number(plan.percentile)}% of ${plan.per_bucket ? "every batch bucket" : "all queries"}`),
      tile(plan.p99_ms === null ? NONE : `${number(plan.p99_ms)} ms`, "p99 at that rate"),
      tile(plan.baseline.qps ? `${number(plan.rate_qps / plan.baseline.qps, 2)}\u00d7` : NONE, "the best equal slices"),
    ),
    h("section", { class: "panel", "aria-label": "Layout" }, layout(plan.sku, plan.layout, "slice-layout")),
    h("section", { class: "panel", "aria-label": "Rates" }, bars("Rate that meets the objective", rates, { name: "slice-rates" })),
    buckets(plan),
    h(
      "section",
      { class: "panel", "aria-label": "Why this plan" },
      h("h2", {}, "Why this plan"),
      h("ul", { class: "plain" }, plan.explanation.map((line) => h("li", {}, line))),
    ),
    plan.emit ? h("section", { class: "panel", "aria-label": "Commands" }, h("h2", {}, `As ${plan.emit.form}`), h("pre", { class: "code", tabindex: "0" }, plan.emit.text)) : null,
  ];
}

function buckets(plan) {
  return h(
    "section",
    { class: "panel", "aria-label": "Latency by batch size" },
    h("h2", {}, "Latency by batch size"),
    h(
      "table",
      { class: "rows" },
      h("thead", {}, h("tr", {}, ["Batches", "p95", "p99", "Objective", "Queries"].map((text, at) => h("th", { scope: "col", class: at && at !== 3 ? "num" : null }, text)))),
      h(
        "tbody",
        {},
        plan.buckets.map((one) =>
          h("tr", {}, h("td", {}, one.batches.join(" to ")), h("td", { class: "num" }, `${number(one.p95_ms)} ms`), h("td", { class: "num" }, `${number(one.p99_ms)} ms`), h("td", {}, one.met ? "met" : h("b", { class: "bad" }, "not met alone")), h("td", { class: "num" }, number(one.queries))),
        ),
      ),
    ),
  );
}

// -- the layout, one row for each GPU -----------------------------------------------------------------------

/** Return how many memory slices a GPU has, and how many a profile takes; as the driver's tables have it. */
function sizes(sku) {
  const whole = sku.startsWith("A30") ? 4 : 8;
  const total = Number(/(\d+)GB/.exec(sku)?.[1] ?? 0) || { "A30": 24, "H200": 141, "H100-NVL": 94, "B200": 180 }[sku] || 0;
  return {
    whole,
    of(profile) {
      const gigabytes = Number(/\.(\d+)gb/.exec(profile)?.[1] ?? 0);
      const compute = Number(/^(\d)g/.exec(profile)?.[1] ?? 1);
      if (total && gigabytes) return Math.min(Math.max(Math.round((gigabytes / total) * whole), 1), whole);
      return whole === 4 ? compute : { 1: 1, 2: 2, 3: 4, 4: 4, 7: 8 }[compute] ?? compute;
    },
  };
}

function layout(sku, gpus, name, told = (slice) => slice.profile) {
  const { whole, of } = sizes(sku);
  const width = chartWidth();
  const cell = (width - 62) / whole;
  const shown = gpus.slice(0, MOST_GPUS);
  const height = shown.length * ROW + 22;
  const words = shown.map((one) => `GPU ${one.gpu}: ${one.slices.map((slice) => `${told(slice)} at ${slice.start}`).join(", ") || "not used"}`).join("; ");
  return h(
    "figure",
    { class: "chart layout", "data-chart": name },
    h("figcaption", {}, h("b", {}, `Layout of ${many(gpus.length, "GPU")}, by memory slice`), saveButtons(name)),
    s(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words },
      Array.from({ length: whole }, (_, at) => s("text", { class: "label", x: 62 + (at + 0.5) * cell, y: 12, "text-anchor": "middle" }, String(at))),
      shown.map((one, at) => [
        s("text", { class: "label ink", x: 0, y: 22 + at * ROW + HIGH / 2 + 4 }, `GPU ${one.gpu}`),
        s("rect", { class: "floor", x: 62, y: 20 + at * ROW, width: whole * cell, height: HIGH + 4, rx: 4 }),
        one.slices.map((slice) => block(slice, 62 + slice.start * cell, 22 + at * ROW, of(slice.profile) * cell, told)),
      ]),
    ),
    gpus.length > shown.length ? h("p", { class: "dim" }, `The first ${shown.length} of ${number(gpus.length)} GPUs.`) : null,
  );
}

function block(slice, x, y, width, told) {
  const compute = /^(\d)g/.exec(slice.profile)?.[1] ?? "1";
  const text = told(slice);
  return [
    s("rect", { class: `slice g${compute}`, x: x + 2, y, width: width - 4, height: HIGH, rx: 3 }, s("title", {}, `${text} at memory slice ${slice.start}`)),
    s("text", { class: `on g${compute}`, x: x + width / 2, y: y + HIGH / 2 + 4, "text-anchor": "middle" }, width > 7 * text.length ? text : text.split(".")[0]),
  ];
}

// -- several models; a change -------------------------------------------------------------------------------

function packed(pack) {
  const told = (slice) => (slice.model ? `${slice.model} ${slice.profile.split(".")[0]}` : `spare ${slice.profile.split(".")[0]}`);
  return [
    h("div", { class: "tiles" }, tile(String(pack.gpus), "GPUs"), tile(String(pack.lower_bound_gpus), "at least, by the bound"), tile(`${number(pack.headroom, 2)}\u00d7`, "all rates, still met")),
    h("section", { class: "panel", "aria-label": "Layout" }, layout(pack.sku, pack.layout, "slice-layout", told)),
    h(
      "section",
      { class: "panel", "aria-label": "Models" },
      h("h2", {}, "Models"),
      h(
        "table",
        { class: "rows" },
        h("thead", {}, h("tr", {}, ["Model", "Rate", "Objective", "Achieved", ""].map((text) => h("th", { scope: "col" }, text)))),
        h("tbody", {}, pack.models.map((one) => h("tr", {}, h("td", {}, one.model), h("td", {}, `${number(one.rate_qps)}/s`), h("td", {}, `${number(one.slo_ms)} ms`), h("td", {}, `${number(one.achieved_ms)} ms`), h("td", {}, one.met ? "met" : h("b", { class: "bad" }, "not met"))))),
      ),
    ),
  ];
}

function changed(change) {
  return [
    h(
      "div",
      { class: "tiles" },
      tile(change.seconds.map((value) => number(value)).join(" to "), "seconds it takes"),
      tile(number(change.lost_gpc_seconds), "compute-slice seconds lost"),
      tile(change.applied ? "done" : "not applied", change.emulator ? "on an emulator: no GPU was touched" : "on real GPUs"),
    ),
    h("section", { class: "panel", "aria-label": "Keeps serving" }, layout(change.sku, change.kept.map((slices, gpu) => ({ gpu, slices })), "slices-kept")),
    h(
      "section",
      { class: "panel", "aria-label": "Steps" },
      h("h2", {}, "Steps"),
      h(
        "table",
        { class: "rows" },
        h("thead", {}, h("tr", {}, ["Act", "GPU", "Slice", "Start", "State"].map((text) => h("th", { scope: "col" }, text)))),
        h("tbody", {}, change.steps.map((one) => h("tr", {}, h("td", {}, one.act), h("td", {}, String(one.gpu)), h("td", {}, one.profile), h("td", {}, String(one.start)), h("td", {}, one.state)))),
      ),
    ),
    change.applied ? null : h("p", {}, "Carry it out with ", copyable("divvy slices apply PLAN.json --yes")),
  ];
}
