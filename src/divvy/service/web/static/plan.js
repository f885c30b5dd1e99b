// Plan: what would change on the whole fleet and why: jobs, then slices and their price, then routes.

import { h } from "./dom.js";
import { clock, duration, many, NONE, number, percent } from "./format.js";
import { account, copyable, elsewhere, empty, tile } from "./parts.js";
import { choice, exampleChip, fetchOne, listed, origin, publishHint } from "./shown.js";

export const title = "Plan";

const MOST = 100;
const HINT = publishHint("divvy plan --services FILE", "plan");

export async function load(params) {
  const { documents, as_of, age } = await listed("plan");
  const entry = documents.find((one) => one.name === params.get("doc")) ?? documents[0];
  return { documents, entry, shown: await fetchOne(entry), as_of, age };
}

export function draw({ documents, entry, shown, as_of }) {
  if (!entry) {
    return [
      h("div", { class: "heading" }, h("h1", {}, "Plan")),
      empty("No plan is shown yet", "A plan says which jobs would start and give way, how GPUs would be cut and where caches would go, before anything happens. Make one and put it here:", HINT),
      h("p", {}, "Without a control plane's own fleet, ", h("code", {}, "divvy plan --fleet FILE.toml"), " plans for one that a file describes. Nothing is carried out."),
      elsewhere("divvy publish --list --json", "/v1/shown"),
    ];
  }
  const { document: plan } = shown;
  const { jobs } = plan;
  const cuts = plan.slices.filter((one) => one.steps.length);
  const moves = plan.routes.filter((one) => one.change !== "same");
  return [
    h("div", { class: "heading" }, h("h1", {}, "Plan"), exampleChip(entry), h("p", { class: "dim" }, entry.title)),
    choice("Plans", documents, entry, (name) => `#/plan?doc=${encodeURIComponent(name)}`),
    h("p", { class: "dim" }, `made at ${clock(plan.at)}, ${duration(Math.max(as_of - entry.at, 0))} on the page; a fleet that has moved on refuses it`),
    h(
      "div",
      { class: "tiles" },
      tile(number(plan.changes), plan.changes === 1 ? "change" : "changes"),
      tile(number(jobs.start.length), "jobs to start"),
      tile(number(jobs.preempt.length), "to preempt"),
      tile(number(jobs.hold.length), "slots to hold"),
      tile(number(cuts.length), "services to cut anew"),
      tile(number(moves.length), "routes to change"),
    ),
    plan.changes ? h("p", {}, "Carry it out with ", copyable(applied(entry, plan))) : h("p", {}, "Nothing would change."),
    started(jobs.start),
    preempted(jobs.preempt),
    held(jobs),
    waiting(jobs.wait),
    services(plan),
    routes(plan.routes),
    origin(entry),
    elsewhere(entry.command || `divvy publish --print ${entry.name}`, `/v1/shown/${encodeURIComponent(entry.name)}`),
  ];
}

/** Return the command that carries a plan out: of what it was made, where that was told. */
function applied(entry, plan) {
  const made = /^divvy plan\b(.*)$/.exec(entry.command)?.[1].split("|")[0].replace(/\s--json\b/, "").trimEnd() ?? "";
  return `divvy apply --version ${plan.version}${made}`;
}

function table(name, columns, rows, draw) {
  if (!rows.length) return null;
  const shown = rows.slice(0, MOST);
  return h(
    "section",
    { class: "panel planned", "aria-label": name },
    h("h2", {}, name),
    h(
      "div",
      { class: "scroll tall", tabindex: "0", role: "region", "aria-label": `${name}, table` },
      h("table", { class: "rows" }, h("thead", {}, h("tr", {}, columns.map((text) => h("th", { scope: "col", class: text === "GPUs" ? "num" : null }, text)))), h("tbody", {}, shown.map(draw))),
    ),
    rows.length > shown.length ? h("p", { class: "dim" }, `The first ${shown.length} of ${number(rows.length)}.`) : null,
  );
}

const places = (placement) => placement.map(([node, gpus]) => `${node} \u00d7${gpus}`).join(", ") || NONE;
const why = (one) => h("td", {}, one.text, " ", h("code", { class: "dim" }, one.reason));
const id = (job) => h("td", {}, h("span", { class: "id" }, job));
const count = (value) => h("td", { class: "num" }, number(value));

function started(rows) {
  return table("Jobs to start", ["Job", "Account", "GPUs", "Where", "Why"], rows, (one) => h("tr", { "data-key": one.job }, id(one.job), h("td", {}, account(one.account)), count(one.gpus), h("td", {}, places(one.placement), one.protected ? null : h("span", { class: "sub" }, "unallocated")), why(one)));
}

function preempted(rows) {
  return table("Jobs to preempt", ["Job", "Account", "GPUs", "For", "Why"], rows, (one) =>
    h("tr", { "data-key": one.job }, id(one.job), h("td", {}, account(one.account)), count(one.gpus), h("td", {}, one.by ?? "a drain", h("span", { class: "sub" }, `balance ${told(one.balance)} against ${told(one.victim_balance)}`)), why(one)),
  );
}

/** Return a balance; one that has no bound is a word already. */
function told(balance) {
  return typeof balance === "number" ? number(balance, 2) : balance;
}

function held(jobs) {
  const rows = [...jobs.hold, ...jobs.lapse];
  return table("Dated slots", ["Job", "What", "Where", "Due"], rows, (one) => h("tr", { "data-key": one.job }, id(one.job), h("td", {}, one.nodes ? "hold" : "give up"), h("td", {}, one.nodes ? places(one.nodes) : NONE), h("td", {}, one.due ? clock(one.due) : NONE)));
}

function waiting(rows) {
  return table("Tried, and wait", ["Job", "GPUs", "Free", "Why"], rows, (one) => h("tr", { "data-key": one.job }, id(one.job), count(one.needed), h("td", {}, `${number(one.free)} free, ${number(one.reclaimable)} to be had back, ${number(one.protected)} protected`), why(one)));
}

function services(plan) {
  const cut = new Map(plan.slices.map((one) => [one.service, one]));
  return plan.services.map((one) => service(one, cut.get(one.service)));
}

function service(one, cut) {
  const changes = cut?.steps.length ? cut : null;
  return h(
    "section",
    { class: "panel planned", "aria-label": `Service ${one.service}`, "data-key": `service ${one.service}` },
    h("h2", {}, "Slices of ", one.service),
    h("p", { class: "dim" }, account(one.account), `: ${many(one.allocated_gpus, "GPU")} allocated, ${number(one.lent_gpus)} lent, ${number(one.wanted_gpus)} wanted; ${number(one.serves_qps)} queries/s within the objective, ${number(one.rate_qps)} asked`),
    cut ? h("p", {}, cut.reason) : null,
    changes ? price(changes) : h("p", { class: "dim" }, "Its GPUs stay as they are cut."),
  );
}

function price(cut) {
  const { seconds, lost_gpc_seconds: lost } = cut.price;
  return [
    h("dl", { class: "facts" }, h("dt", {}, "Price"), h("dd", {}, `${seconds.map((value) => number(value)).join(" to ")} seconds; ${number(lost)} compute-slice seconds out of service`)),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": `GPUs of ${cut.service}, table` },
      h(
        "table",
        { class: "rows" },
        h("thead", {}, h("tr", {}, ["GPU", "From", "To"].map((text) => h("th", { scope: "col" }, text)))),
        h("tbody", {}, cut.gpus.slice(0, MOST).map((one) => h("tr", { "data-key": one.lease }, h("td", {}, `${one.node} device ${one.device}`), h("td", {}, layout(one.from)), h("td", {}, layout(one.to))))),
      ),
    ),
    h("details", {}, h("summary", {}, many(cut.steps.length, "step"), ", in safe order"), h("ol", {}, cut.steps.slice(0, MOST).map((text) => h("li", {}, text)))),
  ];
}

const layout = (slices) => slices.map((one) => one.profile).join(" + ") || "not cut";

function routes(rows) {
  return table("Routes", ["From, to", "Way", "Predicted", "Change", "Why"], rows, (one) =>
    h(
      "tr",
      { "data-key": `${one.prefill} ${one.decode} ${one.from}` },
      h("td", {}, `${one.from} \u2192 ${one.to ?? NONE}`, h("span", { class: "sub" }, `${one.prefill} to ${one.decode}`)),
      h("td", {}, one.routes.map((part) => `${percent(part.share)} ${part.kind}`).join(", ") || NONE),
      h("td", {}, typeof one.predicted_ms === "number" ? `${number(one.predicted_ms)} ms` : NONE),
      h("td", {}, one.change === "same" ? h("span", { class: "dim" }, "same") : h("b", {}, one.change)),
      h("td", {}, one.reason),
    ),
  );
}
