// Claims: what others publish, beside what was measured here, under which conditions, with what has to be corrected.

import { get } from "./api.js";
import { h } from "./dom.js";
import { number } from "./format.js";
import { copyable, elsewhere } from "./parts.js";

export const title = "Claims";

const PARTS = { budgets: "Budgets", slices: "Slices", transfers: "Transfers" };
let kept = null; // they change with an installation, not with the fleet

export async function load() {
  kept ??= await get("/v1/claims");
  return { claims: kept.claims, as_of: Date.now() / 1000, age: 0 };
}

export function draw({ claims }) {
  return [
    h("div", { class: "heading" }, h("h1", {}, "Claims"), h("p", { class: "dim" }, "what others publish beside what was measured here; missed targets included")),
    Object.entries(PARTS).map(([part, name]) => [h("h2", { class: "part" }, name), claims.filter((one) => one.part === part).map(panel)]),
    elsewhere("divvy bench claims --json", "/v1/claims"),
  ];
}

function panel(one) {
  return h(
    "section",
    { class: "panel claim", "aria-label": one.claim, "data-key": one.claim },
    h("h3", { class: "says" }, one.claim),
    h("p", { class: "dim" }, one.source),
    one.published.length ? figures("Published", one.published, one.claim) : h("p", {}, "The source gives no figure."),
    one.measured.length ? figures("Here", one.measured, one.claim) : h("p", {}, "Not measured."),
    h("dl", { class: "facts" }, h("dt", {}, "Conditions"), h("dd", {}, one.conditions), one.correction ? [h("dt", {}, "Correction"), h("dd", {}, one.correction)] : null, one.machine ? [h("dt", {}, "Measured on"), h("dd", {}, one.machine)] : null, h("dt", {}, "Again"), h("dd", {}, copyable(one.command))),
  );
}

function figures(title, rows, claim) {
  return h(
    "div",
    { class: "scroll tall", tabindex: "0", role: "region", "aria-label": `${title}: ${claim}` },
    h(
      "table",
      { class: "rows" },
      h("caption", {}, title),
      h("thead", {}, h("tr", {}, ["Case", "Whose", "Measure", "Value", "Target", "Note"].map((text, at) => h("th", { scope: "col", class: at === 3 || at === 4 ? "num" : null }, text)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, h("td", {}, row.case), h("td", {}, row.contender), h("td", {}, row.measure), h("td", { class: "num" }, value(row)), h("td", { class: "num" }, target(row)), h("td", { class: "dim" }, row.note)))),
    ),
  );
}

function value(row) {
  const told = row.value === null ? "n/a" : number(row.value, Math.abs(row.value) < 100 && !Number.isInteger(row.value) ? 3 : null);
  const unit = row.unit && row.unit !== "ratio" && row.unit !== "fraction" ? ` ${row.unit}` : "";
  return told + unit;
}

function target(row) {
  if (row.target === null) return "";
  return [number(row.target), h("span", { class: row.met ? "sub good" : "sub bad" }, row.met ? "met" : "missed")];
}
