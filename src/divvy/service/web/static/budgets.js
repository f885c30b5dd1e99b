// Budgets: the tree, owed against delivered, the number that the queue is sorted by, and its history.

import { get } from "./api.js";
import * as chart from "./chart.js";
import { h } from "./dom.js";
import { clock, many, NONE, number, ordinal, percent } from "./format.js";
import { account, balance, elsewhere, empty, example, segments } from "./parts.js";
import { maySplit } from "./rights.js";

export const title = "Budgets";

const PERIODS = [
  ["1", "24 hours"],
  ["7", "7 days"],
  ["30", "30 days"],
];
const SLOW = 20000; // a statement looks at whole hours: older than this many ms it is asked for again
const cache = { key: "", at: 0, statement: null, history: null };

function chosen(accounts, params) {
  const wanted = params.get("account");
  return accounts.find((one) => one.path === wanted) ?? accounts.find((one) => one.leaf) ?? accounts[0];
}

function statementPath(path, days) {
  const from = Math.floor(Date.now() / 1000) - days * 86400;
  return `/v1/statement?account=${encodeURIComponent(path)}&from=${from}&hours=true`;
}

export async function load(params) {
  const budget = await get("/v1/budget");
  const view = chosen(budget.accounts, params);
  const days = Number(params.get("days") ?? 7);
  const key = `${view?.path} ${days} ${budget.version}`;
  if (view && (cache.key !== key || performance.now() - cache.at > SLOW)) {
    const [statement, history] = await Promise.all([get(statementPath(view.path, days)), get("/v1/budget/history")]);
    Object.assign(cache, { key, at: performance.now(), statement, history });
  }
  return { budget, view, days, ...cache, as_of: budget.as_of, age: budget.age_seconds };
}

export function draw({ budget, view, days, statement, history }, params) {
  if (!view) {
    return [h("h1", {}, "Budgets"), empty("No budget yet", "Write the account tree into a file and apply it:", 'divvy budget apply budget.toml --reason "first budget"')];
  }
  const policy = budget.document.policy ?? {};
  return [
    h(
      "div",
      { class: "heading" },
      h("h1", {}, "Budgets"),
      example(/the sample organisation$/.test(history.versions.at(-1)?.reason) ? "example" : ""),
      h("p", { class: "dim" }, `version ${budget.version}; window ${policy.lookback ?? "7d"}, floor ${policy.floor ?? "0.7"}, longest minimum runtime ${policy.max_min_runtime ?? "8h"}`),
    ),
    tree(budget.accounts, view, params),
    h("p", { class: "dim" }, "Balance is used over owed within the window: the very number that the queue is sorted by, lowest first. 1 is exactly served."),
    elsewhere("divvy budget show --json", "/v1/budget"),
    delivered(view, statement, days, params),
    past(history),
  ];
}

// -- the tree -----------------------------------------------------------------------------------------

function tree(accounts, view, params) {
  const head = [["Account"], ["Share", "num"], ["Balance"], ["Served", "num"], ["Used / owed, GPU-hours"], ["Held", "num"], ["Floor", "num"], ["Unallocated", "num"], ["Waiting", "num"], ["Share", "act"]];
  return h(
    "table",
    { class: "rows wide tree" },
    h("thead", {}, h("tr", {}, head.map(([text, kind]) => h("th", { scope: "col", class: kind ?? null }, kind === "act" ? h("span", { class: "unseen" }, "Change the share") : text)))),
    h("tbody", {}, accounts.map((one) => row(one, view, params))),
  );
}

function row(one, view, params) {
  const depth = one.path.split(".").length - 1;
  const name = one.path.slice(one.path.lastIndexOf(".") + 1);
  const query = new URLSearchParams(params);
  query.set("account", one.path);
  query.delete("job");
  const cell = (label, content, kind = null) => h("td", { "data-label": label, class: kind }, content);
  return h(
    "tr",
    { "data-key": one.path, "data-act": "choose", "data-path": one.path, "aria-selected": one.path === view.path ? "true" : null, "data-leaf": one.leaf },
    h(
      "td",
      { "data-label": "Account", class: "account", style: { "--depth": depth } },
      h("a", { href: `#/budgets?${query}`, title: one.path }, name),
      one.owners.length ? h("span", { class: "sub" }, `owned by ${one.owners.join(", ")}`) : null,
    ),
    cell("Share", [h("b", {}, `${number(one.share)}%`), h("span", { class: "sub" }, `${percent(one.effective_share, 1)} of all`)], "num"),
    cell("Balance", balance(one.balance)),
    cell("Served", one.rank === null ? NONE : ordinal(one.rank + 1), "num"),
    cell("Used / owed", usage(one)),
    cell("Held", number(one.held), "num"),
    cell("Floor", number(one.floor), "num"),
    cell("Unallocated", number(one.unallocated), "num"),
    cell("Waiting", one.waiting ? [number(one.waiting), h("span", { class: "sub" }, `for ${number(one.waiting_gpus)}`)] : "0", "num"),
    h(
      "td",
      { class: "num", "data-label": "" },
      maySplit(one.parent)
        ? h("button", { type: "button", class: "quiet", "data-act": "changeShare", "data-path": one.path, "aria-label": `Change the share of ${one.path}` }, "Change")
        : null,
    ),
  );
}

function usage(one) {
  const { usage_gpu_hours: used, entitlement_gpu_hours: owed } = one;
  if (used === null || owed === null) return NONE;
  const most = Math.max(used, owed, 1e-9);
  return h(
    "span",
    { class: "usage", title: `${number(used)} used of ${number(owed)} owed` },
    h("span", { class: "figures" }, number(used), h("span", { class: "dim" }, ` / ${number(owed)}`)),
    h("span", { class: "pair", "aria-hidden": "true" }, h("i", { style: { width: `${(used / most) * 100}%` } }), h("em", { style: { left: `${(owed / most) * 100}%` } })),
  );
}

// -- owed against delivered -----------------------------------------------------------------------------

/** Return the statement of one account: its own row, or the sum of its leaves. */
function rowsOf(path, statement) {
  const own = statement.rows.find((one) => one.account === path);
  return own ? [own] : statement.rows;
}

function delivered(view, statement, days, params) {
  const rows = rowsOf(view.path, statement);
  const sum = (key) => rows.reduce((total, one) => total + one[key], 0);
  const [owed, got, free, lost] = ["owed_gpu_hours", "delivered_gpu_hours", "unallocated_gpu_hours", "lost_gpu_hours"].map(sum);
  const ratio = rows.length === 1 ? rows[0].delivered_over_owed_hourly : null;
  return h(
    "section",
    { class: "panel", "aria-label": `Owed and delivered, ${view.path}` },
    h(
      "div",
      { class: "heading" },
      h("h2", {}, "Owed and delivered: ", account(view.path)),
      segments("Period", PERIODS, String(days), (value) => link(params, { days: value === "7" ? null : value })),
    ),
    h(
      "div",
      { class: "tiles small" },
      figure(number(owed), "GPU-hours owed"),
      figure(number(got), "delivered"),
      figure(ratio === null ? (owed ? percent(Math.min(got / owed, 1), 1) : NONE) : percent(ratio, 1), ratio === null ? "of owed, over the period" : "of owed, hour by hour"),
      figure(number(free), "unallocated, free"),
      figure(number(lost), "lost to preemption"),
    ),
    chart.draw(rows, days),
    elsewhere(`divvy statement --account ${view.path} --from ${days}d --hourly --json`, statementPath(view.path, days)),
  );
}

function link(params, changes) {
  const next = new URLSearchParams(params);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) next.delete(name);
    else next.set(name, value);
  }
  const query = next.toString();
  return `#/budgets${query ? `?${query}` : ""}`;
}

function figure(value, label) {
  return h("div", { class: "tile" }, h("b", {}, value), h("span", {}, label));
}

// -- history ------------------------------------------------------------------------------------------

function past(history) {
  return h(
    "section",
    { class: "panel", "aria-label": "History of the budget" },
    h("div", { class: "heading" }, h("h2", {}, "History"), h("p", { class: "dim" }, many(history.versions.length, "version"))),
    h(
      "ol",
      { class: "timeline" },
      history.versions.slice(0, 50).map((one) =>
        h(
          "li",
          { "data-key": String(one.version) },
          h("time", {}, clock(one.at)),
          h("b", {}, `version ${one.version}`),
          ` by ${one.author || "the system"}: ${one.reason || "no reason given"}`,
          one.changes.length ? h("ul", { class: "plain" }, one.changes.map((change) => h("li", {}, changed(change)))) : null,
        ),
      ),
    ),
    elsewhere("divvy budget history --json", "/v1/budget/history"),
  );
}

function changed({ path, from, to }) {
  const share = /^accounts\.(.+)\.share$/.exec(path);
  const [name, unit] = share ? [share[1], "%"] : [path, ""];
  const text = (value) => (typeof value === "object" ? JSON.stringify(value) : `${value}${unit}`);
  if (from === null) return `${name}: ${text(to)} (new)`;
  if (to === null) return `${name}: removed (was ${text(from)})`;
  return `${name}: ${text(from)} \u2192 ${text(to)}`;
}

export const after = (main) => chart.wire(main);

export const actions = {
  choose(element, { navigate }) {
    navigate({ account: element.dataset.path });
  },
};
