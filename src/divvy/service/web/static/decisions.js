// Decisions: the journal of passes; each says why, and can be decided again.

import { get } from "./api.js";
import { h } from "./dom.js";
import { clock, many, number } from "./format.js";
import { account, copyable, elsewhere, empty } from "./parts.js";
import { traceButton } from "./save.js";

export const title = "Decisions";

const MOST = 30;
const MOST_LINES = 6;

function pathOf(params) {
  const before = params.get("before");
  return `/v1/decisions?limit=${MOST}${before ? `&before=${encodeURIComponent(before)}` : ""}`;
}

function commandOf(params) {
  const before = Number.parseInt(params.get("before") ?? "", 10);
  return `divvy decisions --limit ${MOST}${Number.isNaN(before) ? "" : ` --before ${before}`} --json`;
}

export async function load(params) {
  const answer = await get(pathOf(params));
  return { answer, as_of: answer.as_of, age: answer.age_seconds };
}

export function draw({ answer }, params) {
  const { passes } = answer;
  return [
    h(
      "div",
      { class: "heading" },
      h("h1", {}, "Decisions"),
      h("p", { class: "dim" }, "passes that started or preempted something, newest first; any can be decided again"),
      traceButton(),
    ),
    passes.length ? table(passes) : empty("Nothing was decided yet", "Passes appear here when they start or preempt a job. Submit one:", "divvy submit --account ACCOUNT --gpus 1 --min-runtime 15m -- CMD"),
    h(
      "p",
      { class: "tools" },
      params.get("before") ? h("a", { href: "#/decisions" }, "Newest") : null,
      answer.next ? h("a", { href: `#/decisions?before=${answer.next}` }, "Older") : null,
    ),
    elsewhere(commandOf(params), pathOf(params)),
  ];
}

function table(passes) {
  return h(
    "table",
    { class: "rows wide decisions" },
    h("thead", {}, h("tr", {}, [["Pass", "num"], ["When"], ["What was decided"], ["Again"]].map(([text, kind]) => h("th", { scope: "col", class: kind ?? null }, text)))),
    h("tbody", {}, passes.map(row)),
  );
}

function row(pass) {
  const lines = pass.decisions.slice(0, MOST_LINES);
  const rest = pass.decisions.length - lines.length;
  return h(
    "tr",
    { "data-key": String(pass.seq) },
    h("td", { class: "num", "data-label": "Pass" }, String(pass.seq)),
    h("td", { "data-label": "When" }, clock(pass.at)),
    h(
      "td",
      { "data-label": "What was decided" },
      h("ul", { class: "plain" }, lines.map(decision), pass.slots.slice(0, MOST_LINES).map(slot)),
      rest > 0 ? h("span", { class: "dim" }, `and ${many(rest, "more decision")}`) : null,
    ),
    h("td", { "data-label": "Again" }, copyable(`divvy replay ${pass.seq}`)),
  );
}

function job(name) {
  return h("a", { class: "id", href: `#/decisions?job=${encodeURIComponent(name)}` }, name);
}

function decision(one) {
  const where = one.placement.map((place) => `${place.node} \u00d7${place.gpus}`).join(", ");
  return h(
    "li",
    {},
    h("b", { class: one.kind === "preempt" ? "bad" : "good" }, one.kind === "preempt" ? "preempt " : "start "),
    job(one.job),
    " of ",
    account(one.account),
    `, ${many(one.gpus, "device")}${where ? ` on ${where}` : ""}`,
    one.by ? [" for ", job(one.by)] : null,
    h("span", { class: "sub" }, one.reason.text, one.balance !== null && one.victim_balance !== null ? ` (balance ${number(one.balance, 2)} against ${number(one.victim_balance, 2)})` : ""),
  );
}

function slot(one) {
  return h("li", {}, h("b", {}, one.kind === "lapse" ? "give up the slot of " : "hold a slot for "), job(one.job), one.due_at ? ` until ${clock(one.due_at)}` : "");
}
