// The statement: what every account was owed in a period and what it got.

import { get } from "./api.js";
import { bars } from "./bars.js";
import { h } from "./dom.js";
import { clock, NONE, number, percent } from "./format.js";
import { account, elsewhere, empty, segments } from "./parts.js";
import { traceButton } from "./save.js";

export const title = "Statement";

const PERIODS = [
  ["1", "24 hours"],
  ["7", "7 days"],
  ["30", "30 days"],
];
const SLOW = 20000; // it looks at whole hours: older than this many ms it is asked for again
const cache = { key: "", at: 0, statement: null };

function pathOf(days) {
  return `/v1/statement?from=${Math.floor(Date.now() / 1000) - days * 86400}`;
}

export async function load(params) {
  const days = Number(params.get("days") ?? 7);
  if (cache.key !== String(days) || performance.now() - cache.at > SLOW) {
    Object.assign(cache, { key: String(days), at: performance.now(), statement: await get(pathOf(days)) });
  }
  return { days, statement: cache.statement, as_of: cache.statement.as_of, age: cache.statement.age_seconds };
}

export function draw({ days, statement }) {
  const { totals, rows, notes } = statement;
  const leaves = rows.filter((row) => row.leaf && (row.owed_gpu_hours || row.delivered_gpu_hours || row.unallocated_gpu_hours));
  return [
    h("div", { class: "heading" }, h("h1", {}, "Statement"), h("p", { class: "dim" }, `${clock(statement.from_at)} to ${clock(statement.to_at)}, GPU-hours of an average device`)),
    h("div", { class: "tools" }, segments("Period", PERIODS, String(days), (value) => `#/statement?days=${value}`), traceButton(), jsonButton(days)),
    h(
      "div",
      { class: "tiles" },
      tile(number(totals.capacity_gpu_hours), "there were"),
      tile(number(totals.owed_gpu_hours), "owed"),
      tile(number(totals.delivered_gpu_hours), "delivered"),
      tile(totals.delivered_over_owed === null ? NONE : percent(totals.delivered_over_owed, 1), "of owed, over the period"),
      tile(totals.delivered_over_owed_hourly === null ? NONE : percent(totals.delivered_over_owed_hourly, 1), "of owed, hour by hour"),
      tile(number(totals.unallocated_gpu_hours), "unallocated, free"),
      tile(number(totals.lost_gpu_hours), "lost to preemption"),
    ),
    notes.map((note) => h("p", { class: "dim" }, note)),
    leaves.length
      ? h(
          "section",
          { class: "panel", "aria-label": "Owed and delivered by account" },
          bars(
            "Delivered (upper) beside owed (lower), GPU-hours",
            leaves.map((row) => ({ label: row.account, value: row.delivered_gpu_hours, second: row.owed_gpu_hours, text: `${number(row.delivered_gpu_hours)} of ${number(row.owed_gpu_hours)}`, kind: "delivered" })),
            { name: "statement" },
          ),
        )
      : empty("Nobody was owed anything yet", "Accounts appear here when their jobs have run or waited.", "divvy submit --account ACCOUNT --gpus 1 --min-runtime 15m -- CMD"),
    table(rows),
    elsewhere(`divvy statement --from ${days}d --json`, pathOf(days)),
  ];
}

function jsonButton(days) {
  return h("button", { type: "button", class: "quiet", "data-act": "saveJson", "data-path": `${pathOf(days)}&hours=true`, "data-name": "divvy-statement.json" }, "Save as JSON, with hours");
}

function tile(value, label) {
  return h("div", { class: "tile" }, h("b", {}, value), h("span", {}, label));
}

function table(rows) {
  const head = ["Account", "Share", "Asked for", "Owed", "Delivered", "Of owed", "By the hour", "Carried", "Unallocated", "Lost"];
  const keys = ["demand_gpu_hours", "owed_gpu_hours", "delivered_gpu_hours"];
  const last = ["carried_gpu_hours", "unallocated_gpu_hours", "lost_gpu_hours"];
  const figure = (label, text) => h("td", { class: "num", "data-label": label }, text);
  return h(
    "table",
    { class: "rows wide" },
    h("thead", {}, h("tr", {}, head.map((text, at) => h("th", { scope: "col", class: at ? "num" : null }, text)))),
    h(
      "tbody",
      {},
      rows.map((row) =>
        h(
          "tr",
          { "data-key": row.account },
          h("td", { "data-label": "Account" }, h("a", { href: `#/budgets?account=${encodeURIComponent(row.account)}` }, account(row.account))),
          figure("Share", percent(row.share, 1)),
          keys.map((key, at) => figure(head[2 + at], number(row[key]))),
          figure("Of owed", row.delivered_over_owed === null ? NONE : percent(row.delivered_over_owed, 1)),
          figure("By the hour", row.delivered_over_owed_hourly === null ? NONE : percent(row.delivered_over_owed_hourly, 1)),
          last.map((key, at) => figure(head[7 + at], number(row[key]))),
        ),
      ),
    ),
  );
}
