// Serving: what routers serve now: slices with their state and wait, models with the objective that they meet.

import { bars } from "./bars.js";
import { h } from "./dom.js";
import { clock, duration, many, NONE, number, percent } from "./format.js";
import { elsewhere, empty, tile } from "./parts.js";
import { choice, exampleChip, fetchOne, listed, origin } from "./shown.js";

export const title = "Serving";

const MOST_ROWS = 128;
const SILENT = 4; // so many pauses without news, and what is shown is old
const HINT = `divvy serve --backends FILE --publish ${location.origin}`;
const STATES = { up: "up", down: "down", held: "draining", draining: "draining" };

export async function load(params) {
  const { documents, as_of, age } = await listed("serving");
  const entry = documents.find((one) => one.name === params.get("doc")) ?? documents[0];
  return { documents, entry, shown: await fetchOne(entry), as_of, age };
}

export function draw({ documents, entry, shown, as_of }) {
  if (!entry) {
    return [
      h("div", { class: "heading" }, h("h1", {}, "Serving")),
      empty("No router shows itself yet", "A router sends the queries of a model to slices of unequal speed. Start one so that it says here what it serves:", HINT),
      h("p", {}, "DIVVY_TOKEN holds the token of an administrator; ", h("code", {}, "divvy lab slices --backends FILE"), " starts slices to try it with."),
      elsewhere("divvy publish --list --json", "/v1/shown"),
    ];
  }
  const { document: router } = shown;
  const quiet = Math.max(as_of - entry.at, 0);
  return [
    h("div", { class: "heading" }, h("h1", {}, "Serving"), exampleChip(entry), h("p", { class: "dim" }, entry.title)),
    choice("Routers", documents, entry, (name) => `#/serving?doc=${encodeURIComponent(name)}`),
    news(entry, router, quiet),
    router.models.map(model),
    router.backends.length ? slices(router) : h("p", {}, "The router has no slices; its back-ends file names none."),
    origin(entry),
    elsewhere(`divvy publish --print ${entry.name}`, `/v1/shown/${encodeURIComponent(entry.name)}`),
    h("p", { class: "dim" }, "The router itself: ", h("code", {}, `GET ${router.address}/divvy/v1/backends`), " and ", h("code", {}, "/metrics"), "."),
  ];
}

/** Return how fresh the figures are; a router that ended or went silent is said, not hidden. */
function news(entry, router, quiet) {
  if (router.state === "ended") return h("p", { class: "bad", role: "status" }, `This router ended at ${clock(entry.at)}; the figures are its last.`);
  if (quiet > router.every_seconds * SILENT) {
    return h("p", { class: "bad", role: "status" }, `Nothing was heard of this router for ${duration(quiet)}: the figures are from ${clock(entry.at)}.`);
  }
  return h("p", { class: "dim" }, `serving since ${clock(router.started_at)}; it tells every ${number(router.every_seconds)} seconds`);
}

function model(one) {
  const asked = one.met + one.late + one.refused + one.lost;
  const ends = [
    ["answered in time", one.met, "one"],
    ["answered late", one.late, "peer"],
    ["refused", one.refused, "peer"],
    ["lost", one.lost, "peer"],
  ];
  return h(
    "section",
    { class: "panel", "aria-label": `Model ${one.model}`, "data-key": `model ${one.model}` },
    h("h2", {}, one.model, h("span", { class: "sub" }, `rule ${one.rule}`)),
    h(
      "div",
      { class: "tiles small" },
      tile(one.attainment === null ? NONE : percent(one.attainment, 1), "of queries met the objective", `in the last ${duration(one.recent_seconds)}; refused and lost ones count as not met`),
      tile(one.rate_qps === null ? NONE : number(one.rate_qps), "answers a second", `in the last ${duration(one.recent_seconds)}`),
      tile(`${number(one.slo_ms)} ms`, "objective", "of queries that name none"),
      tile(number(one.waiting), "wait now"),
      tile(asked ? percent(one.met / asked, 1) : NONE, "met since the start"),
    ),
    asked ? bars("How queries ended since the start", ends.map(([label, value, kind]) => ({ label, value, kind, text: `${number(value)} (${percent(value / asked, 1)})` })), { name: `served-${one.model}` }) : h("p", { class: "dim" }, "Nobody has asked yet."),
    h("p", { class: "dim" }, `${many(one.retried, "time")} sent to another slice; ${number(one.cancelled)} left by their client.`),
  );
}

const COLUMNS = [["Slice"], ["Model"], ["State"], ["In flight", "num"], ["Wait", "num"], ["Served", "num"], ["Rate", "num"], ["Busy", "num"], ["Drift", "num"]];

function slices(router) {
  const rows = router.backends.slice(0, MOST_ROWS);
  const rest = router.backends.length - rows.length + router.left_out;
  return [
    h("h2", { class: "above" }, "Slices"),
    h(
      "table",
      { class: "rows wide serving", "aria-label": "Slices" },
      h("thead", {}, h("tr", {}, COLUMNS.map(([text, kind]) => h("th", { scope: "col", class: kind ?? null }, text)))),
      h("tbody", {}, rows.map(row)),
    ),
    rest > 0 ? h("p", { class: "dim" }, `The first ${number(rows.length)} of ${number(rows.length + rest)} slices.`) : null,
    h("p", { class: "dim" }, "Wait: predicted until a slice is done with what it has. Drift: how many times the profile's time runs really take; estimates are corrected by it."),
  ];
}

function row(one) {
  const figure = (label, text, sub = null) => h("td", { class: "num", "data-label": label }, text, sub ? h("span", { class: "sub" }, sub) : null);
  return h(
    "tr",
    { "data-key": one.name },
    h("td", { "data-label": "Slice" }, h("b", {}, one.name), h("span", { class: "sub" }, `${many(one.gpcs, "compute slice")}`)),
    h("td", { "data-label": "Model" }, one.model),
    h("td", { "data-label": "State" }, h("span", { class: "chip", "data-state": STATES[one.state] ?? "down" }, one.state)),
    figure("In flight", number(one.in_flight), one.queued ? `${number(one.queued)} given` : null),
    figure("Wait", `${number(one.wait_ms)} ms`),
    figure("Served", number(one.served), one.failed ? `${number(one.failed)} failed` : null),
    figure("Rate", one.rate_qps === null ? NONE : `${number(one.rate_qps)}/s`),
    figure("Busy", percent(one.busy)),
    figure("Drift", `${number(one.correction, 2)}\u00d7`),
  );
}
