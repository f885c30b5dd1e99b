// What if: the jobs of the last hours, replayed as they were and under other shares or another policy.

import { call, get, Problem } from "./api.js";
import { bars } from "./bars.js";
import { h } from "./dom.js";
import { clock, duration, many, NONE, number, percent } from "./format.js";
import { account, copyable, empty, refusal } from "./parts.js";

export const title = "What-if";

const AGAIN = 3000; // a replay that takes longer is asked for again after so many ms
const answers = new Map(); // by question: { document } or { problem }

function questionOf(params) {
  const shares = {};
  for (const part of (params.get("shares") ?? "").split(",").filter(Boolean)) {
    const cut = part.lastIndexOf(":");
    shares[part.slice(0, cut)] = Number(part.slice(cut + 1));
  }
  return { shares, policy: params.get("policy") ?? "", hours: Number(params.get("hours") ?? 24) };
}

export async function load(params) {
  const [budget, named] = await Promise.all([get("/v1/budget"), get("/v1/policies")]);
  const question = questionOf(params);
  const key = `${JSON.stringify(question)} ${params.get("asked")}`;
  let found = answers.get(key);
  if (params.get("asked") && !found) {
    found = await ask(question);
    if (answers.size > 20) answers.clear();
    if (found.problem?.code !== "whatif-computing") answers.set(key, found);
    else setTimeout(() => dispatchEvent(new Event("resize")), AGAIN);
  }
  return { budget, policies: named.policies, question, found, as_of: budget.as_of, age: budget.age_seconds };
}

async function ask(question) {
  try {
    return { document: await call("POST", "/v1/whatif", question) };
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    return { problem: error };
  }
}

export function draw({ budget, policies, question, found }) {
  const leaves = budget.accounts;
  return [
    h("div", { class: "heading" }, h("h1", {}, "What if"), h("p", { class: "dim" }, "the same jobs, replayed under other shares or another policy; nothing is changed")),
    form(leaves, policies, question),
    found ? result(found) : ready(leaves),
    h("footer", { class: "elsewhere", "aria-label": "The same data elsewhere" }, h("span", { class: "dim" }, "Same data"), copyable(command(question)), copyable(curl(question))),
  ];
}

function command({ shares, policy, hours }) {
  const options = Object.entries(shares).map(([path, share]) => `--share ${path}=${share}`);
  return ["divvy whatif", ...options, policy ? `--policy ${policy}` : "", `--hours ${hours}`, "--json"].filter(Boolean).join(" ");
}

function curl(question) {
  const url = new URL("/v1/whatif", location.origin).href;
  return `curl -H "Authorization: Bearer $DIVVY_TOKEN" -H "Content-Type: application/json" -d '${JSON.stringify(question)}' ${url}`;
}

function ready(accounts) {
  if (!accounts.length) return empty("No budget yet", "A what-if compares two budgets. Write the first one:", 'divvy budget apply budget.toml --reason "first budget"');
  return h(
    "div",
    { class: "empty" },
    h("h2", {}, "Ready to run"),
    h("p", {}, "What if every account had as much as its siblings? Or set shares of your own above."),
    h("div", { class: "line" }, h("button", { type: "button", "data-act": "askEqual" }, "Ask with equal shares"), h("button", { type: "button", "data-act": "askFifo" }, "Ask with first come, first served")),
  );
}

function form(accounts, policies, question) {
  return h(
    "form",
    { class: "panel whatif", "data-act": "askWhatIf", "data-key": "question", "aria-label": "The question" },
    h(
      "div",
      { class: "tools" },
      h("label", {}, "Policy ", h("select", { name: "policy", "data-own": true }, h("option", { value: "" }, "as it is"), policies.map((one) => h("option", { value: one.name, selected: one.name === question.policy }, one.name)))),
      h("label", {}, "Jobs of the last ", h("select", { name: "hours", "data-own": true }, [[1, "hour"], [24, "24 hours"], [168, "7 days"]].map(([hours, text]) => h("option", { value: String(hours), selected: hours === question.hours }, text)))),
      h("button", { type: "submit" }, "Ask"),
    ),
    h(
      "fieldset",
      {},
      h("legend", {}, "Shares, percent of the parent"),
      h(
        "ul",
        { class: "shares" },
        accounts.map((one) =>
          h("li", { "data-key": one.path, style: { "--depth": one.path.split(".").length - 1 } }, h("label", {}, h("span", {}, account(one.path)), h("input", { type: "number", min: "0", max: "100", step: "any", name: one.path, value: question.shares[one.path] ?? one.share, "data-now": one.share }))),
        ),
      ),
    ),
  );
}

// -- the answer -----------------------------------------------------------------------------------------

function result({ document, problem }) {
  if (problem) {
    if (problem.code === "whatif-computing") return h("div", { class: "empty", role: "status" }, h("h2", {}, "Replaying"), h("p", {}, "The jobs are being replayed twice, at the lowest priority. The answer appears here."));
    return refusal(problem);
  }
  const [now, other] = document.sides;
  const { basis, change, asked } = document;
  return [
    h("p", { class: "dim" }, `${many(basis.jobs, "job")} since ${clock(basis.from_at)} on ${many(basis.gpus, "device")}, replayed under budget version ${basis.budget_version} and ${basis.policy}, and as asked under ${asked.policy}. ${basis.drawn ? `${number(basis.drawn)} of them are not over: how long they run is drawn from jobs like them. ` : ""}This is a forecast by replay, not a measurement.`),
    h(
      "div",
      { class: "tiles" },
      pair(now.occupancy_while_contended, other.occupancy_while_contended, "occupied while jobs wait", percent),
      pair(now.delivered_over_owed.period, other.delivered_over_owed.period, "delivered of owed", (value) => percent(value, 1)),
      pair(change.all.wait_seconds.p50[0], change.all.wait_seconds.p50[1], "median wait", duration),
      pair(change.all.wait_seconds.p90[0], change.all.wait_seconds.p90[1], "wait, 9 of 10 below", duration),
      pair(now.preemptions, other.preemptions, "preemptions", number),
    ),
    h(
      "section",
      { class: "panel", "aria-label": "Median wait by account" },
      bars(
        "Median wait now (upper) and as asked (lower), seconds",
        change.by_account.map((one) => ({ label: one.account, value: one.wait_seconds.p50[0], second: one.wait_seconds.p50[1], text: `${duration(one.wait_seconds.p50[0])} \u2192 ${duration(one.wait_seconds.p50[1])}`, kind: "delivered" })),
        { name: "whatif-waits" },
      ),
    ),
    byAccount(change),
  ];
}

function pair(before, after, label, text) {
  const told = (value) => (value === null || value === undefined ? NONE : text(value));
  return h("div", { class: "tile pair-tile" }, h("b", {}, told(after)), h("span", {}, `${label}; now ${told(before)}`));
}

function byAccount(change) {
  const head = ["Account", "Share", "Jobs", "Wait longer", "Wait shorter", "Charged GPU-hours", "Median wait"];
  return h(
    "table",
    { class: "rows wide" },
    h("thead", {}, h("tr", {}, head.map((text, at) => h("th", { scope: "col", class: at ? "num" : null }, text)))),
    h(
      "tbody",
      {},
      change.by_account.map((one) => {
        const arrow = ([before, after], text) => `${text(before)} \u2192 ${text(after)}`;
        const cells = [arrow(one.share, (value) => percent(value, 1)), number(one.jobs), number(one.longer), number(one.shorter), arrow(one.charged_gpu_hours, (value) => number(value, 2)), arrow(one.wait_seconds.p50, duration)];
        return h("tr", { "data-key": one.account }, h("td", { "data-label": "Account" }, account(one.account)), cells.map((text, at) => h("td", { class: "num", "data-label": head[at + 1] }, text)));
      }),
    ),
  );
}

// -- asking ---------------------------------------------------------------------------------------------

function go(navigate, changes) {
  navigate({ shares: null, policy: null, asked: String(Date.now()), ...changes });
}

export const actions = {
  askWhatIf(element, { navigate }) {
    const shares = [...element.querySelectorAll("input[data-now]")].filter((one) => one.value !== "" && Number(one.value) !== Number(one.dataset.now)).map((one) => `${one.name}:${Number(one.value)}`);
    go(navigate, { shares: shares.join(",") || null, policy: element.elements.policy.value || null, hours: element.elements.hours.value });
  },

  async askEqual(_element, { navigate }) {
    const { accounts } = await get("/v1/budget");
    const siblings = (one) => accounts.filter((other) => other.parent === one.parent).length;
    const shares = accounts.map((one) => `${one.path}:${Math.floor(10000 / siblings(one)) / 100}`);
    go(navigate, { shares: shares.join(",") });
  },

  askFifo(_element, { navigate }) {
    go(navigate, { policy: "fifo" });
  },
};
