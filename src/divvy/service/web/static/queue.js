// The queue: what waits, in the order of service, and why; what runs; what has ended.

import { get } from "./api.js";
import { h } from "./dom.js";
import { clock, duration, many, NONE, number } from "./format.js";
import { account, chip, elsewhere, empty, example, segments } from "./parts.js";

export const title = "Queue";

const MOST = 200;
const KINDS = [
  ["waiting", "Waiting"],
  ["running", "Running"],
  ["ended", "Ended"],
];

function kindOf(params) {
  const asked = params.get("state");
  return KINDS.some(([kind]) => kind === asked) ? asked : "waiting";
}

function pathOf(params) {
  const kind = kindOf(params);
  const query = new URLSearchParams();
  if (kind !== "waiting") query.set("state", kind);
  if (params.get("account")) query.set("account", params.get("account"));
  query.set("limit", String(MOST));
  return `/v1/${kind === "waiting" ? "queue" : "jobs"}?${query}`;
}

export async function load(params) {
  const [answer, budget] = await Promise.all([get(pathOf(params)), get("/v1/budget")]);
  return { answer, accounts: budget.accounts, as_of: answer.as_of, age: answer.age_seconds };
}

export function draw({ answer, accounts }, params) {
  const kind = kindOf(params);
  const chosen = params.get("account") ?? "";
  const waiting = kind === "waiting";
  const command = ["divvy queue", waiting ? "" : `--state ${kind}`, chosen ? `--account ${chosen}` : "", "--json"];
  return [
    h(
      "div",
      { class: "heading" },
      h("h1", {}, "Queue"),
      h("p", { class: "dim" }, waiting ? `${many(answer.total, "job")} wait, in the order of service` : `the newest ${many(answer.jobs.length, "job")}`),
    ),
    h(
      "div",
      { class: "tools" },
      segments("Which jobs", KINDS, kind, (value) => link(params, { state: value === "waiting" ? null : value })),
      h(
        "select",
        { "aria-label": "Only this account", "data-act": "account" },
        h("option", { value: "" }, "All accounts"),
        accounts.map((one) => h("option", { value: one.path, selected: one.path === chosen }, one.path)),
      ),
    ),
    answer.jobs.length ? TABLES[kind](answer.jobs, params) : nothing(kind, chosen, accounts),
    waiting && answer.total > answer.jobs.length ? h("p", { class: "dim" }, `The first ${answer.jobs.length} of ${number(answer.total)}.`) : null,
    elsewhere(command.filter(Boolean).join(" "), pathOf(params)),
  ];
}

function link(params, changes) {
  const next = new URLSearchParams(params);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) next.delete(name);
    else next.set(name, value);
  }
  next.delete("node");
  const query = next.toString();
  return `#/queue${query ? `?${query}` : ""}`;
}

function nothing(kind, chosen, accounts) {
  const leaf = chosen || (accounts.find((one) => one.leaf)?.path ?? "ACCOUNT");
  const command = `divvy submit --account ${leaf} --gpus 1 --min-runtime 15m -- CMD`;
  if (kind === "waiting") return empty("Nothing waits", "Every job that was submitted runs or has ended. Submit one:", command);
  if (kind === "running") return empty("Nothing runs", "The fleet is free. Submit a job:", command);
  return empty("Nothing has ended yet", "Jobs appear here when they finish, fail or are cancelled. Submit one:", command);
}

function table(head, rows) {
  return h(
    "table",
    { class: "rows wide" },
    h("thead", {}, h("tr", {}, head.map(([text, kind]) => h("th", { scope: "col", class: kind ?? null }, text)))),
    h("tbody", {}, rows),
  );
}

function cellOf(label, content, kind = null) {
  return h("td", { "data-label": label, class: kind }, content);
}

function name(job, params) {
  return [
    h("a", { class: "id", href: link(params, { job: job.id }) }, job.id),
    h("span", { class: "sub" }, job.name.replace(/^example: /, "") || NONE, " \u00b7 ", job.author, " ", example(job.name)),
  ];
}

function row(job, cells) {
  return h("tr", { "data-key": job.id, "data-act": "open", "data-name": job.id }, cells);
}

function waitingTable(jobs, params) {
  const head = [["#", "num"], ["Job"], ["Account"], ["Devices", "num"], ["Minimum", "num"], ["Waiting", "num"], ["Why it waits"], ["Ahead", "num"]];
  const rows = jobs.map((job) =>
    row(job, [
      cellOf("Position", String(job.position), "num"),
      cellOf("Job", name(job, params)),
      cellOf("Account", [account(job.account), job.state === "queued" ? null : h("span", { class: "sub" }, chip(job.state))]),
      cellOf("Devices", number(job.gpus), "num"),
      cellOf("Minimum", job.min_runtime_seconds ? duration(job.min_runtime_seconds) : "free", "num"),
      cellOf("Waiting", duration(job.waiting_seconds), "num"),
      cellOf("Why it waits", [h("span", {}, job.reason.text), h("code", { class: "sub" }, job.reason.code)]),
      cellOf("Ahead", [h("span", { title: job.ahead.join(", ") }, number(job.ahead_count))], "num"),
    ]),
  );
  return table(head, rows);
}

/** Return the columns that running and ended jobs share. */
function common(job, params) {
  return [
    cellOf("Job", name(job, params)),
    cellOf("Account", account(job.account)),
    cellOf("State", chip(job.state)),
    cellOf("Devices", number(job.gpus), "num"),
    cellOf("Ran for", duration(job.running_seconds), "num"),
  ];
}

const COMMON = [["Job"], ["Account"], ["State"], ["Devices", "num"], ["Ran for", "num"]];

function runningTable(jobs, params) {
  const rows = jobs.map((job) => {
    const where = job.placement.map((place) => `${place.node} \u00d7${place.gpus}`).join(", ") || NONE;
    return row(job, [common(job, params), cellOf("Protected until", clock(job.protected_until_at), "num"), cellOf("Where", where)]);
  });
  return table([...COMMON, ["Protected until", "num"], ["Where"]], rows);
}

function endedTable(jobs, params) {
  const rows = jobs.map((job) => {
    const code = job.exit_code === null ? NONE : String(job.exit_code);
    return row(job, [common(job, params), cellOf("Ended", clock(job.ended_at), "num"), cellOf("Exit", code, "num"), cellOf("Note", job.note || NONE)]);
  });
  return table([...COMMON, ["Ended", "num"], ["Exit", "num"], ["Note"]], rows);
}

const TABLES = { waiting: waitingTable, running: runningTable, ended: endedTable };

export const actions = {
  account: (element, { navigate }) => navigate({ account: element.value || null }),
  open: (element, { navigate }) => navigate({ job: element.dataset.name, node: null }),
};
