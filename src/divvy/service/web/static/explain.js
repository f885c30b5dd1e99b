// One job in the drawer: why it waits, runs or was preempted, who is ahead, and what would help.

import { call, get, getText, Problem } from "./api.js";
import { h, toast } from "./dom.js";
import { base, clock, duration, many, NONE, number, ordinal, percent } from "./format.js";
import { account, balance, chip, copyable, elsewhere, example, refusal } from "./parts.js";

const OUTPUT_BYTES = 4000;
const SAID_ABOVE = new Set(["running_seconds", "protected_seconds"]);
const ENDED = ["finished", "failed", "cancelled", "preempted"];

export async function load(id) {
  const path = `/v1/jobs/${encodeURIComponent(id)}`;
  const [job, explanation] = await Promise.all([get(path), get(`${path}/explain`)]);
  return { job, explanation, subject: `job ${id}` };
}

export function draw({ job, explanation }) {
  const { headline } = explanation;
  const others = explanation.reasons.filter((reason) => reason.code !== headline.code);
  return [
    h(
      "header",
      { class: "drawer-head" },
      h("div", {}, h("h2", { id: "drawer-title", tabindex: "-1", autofocus: true }, job.id), chip(job.state), example(job.name)),
      h("form", { method: "dialog" }, h("button", { class: "quiet", "aria-label": "Close" }, "Close")),
    ),
    h("p", { class: "dim" }, `${job.name || "unnamed"}, ${many(job.gpus, "device")}, by ${job.author}`),
    h("p", { class: "headline" }, headline.text),
    h("p", { class: "dim" }, h("code", {}, headline.code)),
    others.length ? h("ul", { class: "plain" }, others.map((reason) => h("li", {}, reason.text, " ", h("code", { class: "dim" }, reason.code)))) : null,
    explanation.help.length ? [h("h3", {}, "What would help"), h("ul", {}, explanation.help.map((text) => h("li", {}, text)))] : null,
    standing(explanation.account),
    ahead(explanation),
    facts(job, explanation),
    past(explanation.history),
    job.state === "accepted" || !ENDED.includes(job.state) ? cancelForm(job) : null,
    output(job),
    elsewhere(`divvy explain ${job.id} --json`, `/v1/jobs/${encodeURIComponent(job.id)}/explain`),
  ];
}

function standing(view) {
  if (!view) return null;
  const rank = view.rank === null ? "no demand now" : `served ${ordinal(view.rank + 1)}`;
  return [
    h("h3", {}, "Its account"),
    h(
      "div",
      { class: "standing" },
      h("a", { href: `#/budgets?account=${encodeURIComponent(view.path)}` }, account(view.path)),
      balance(view.balance),
      h("span", {}, rank),
    ),
    h(
      "p",
      { class: "dim" },
      `${percent(view.effective_share, 1)} of the fleet; holds ${many(view.held, "device")}${view.floor === null ? "" : ` (floor ${number(view.floor)})`} and ${view.unallocated} unallocated; ${view.waiting ? `${many(view.waiting, "waiting job")} for ${many(view.waiting_gpus, "device")}` : "nothing waits"}`,
    ),
  ];
}

function ahead(explanation) {
  if (!explanation.ahead_count) return null;
  const more = explanation.ahead_count - explanation.ahead.length;
  return [
    h("h3", {}, `Ahead of it: ${explanation.ahead_count}`),
    h(
      "ul",
      { class: "plain" },
      explanation.ahead.map((one) =>
        h(
          "li",
          { "data-key": one.id },
          h("a", { class: "id", href: `#/queue?job=${encodeURIComponent(one.id)}` }, one.id),
          " ",
          account(one.account),
          ` ${many(one.gpus, "device")}: ${one.why}`,
        ),
      ),
      more > 0 ? h("li", { class: "dim" }, `and ${number(more)} more`) : null,
    ),
  ];
}

function facts(job, explanation) {
  const after = job.resumable ? "goes back to the queue and continues" : job.restart ? "starts again from zero" : "ends";
  const rows = [
    ["Contract", job.allocated ? `protected for ${duration(job.min_runtime_seconds)}` : "unallocated: free, never protected"],
    ["If preempted", after],
    ["Submitted", clock(job.submitted_at)],
    ["Started", job.started_at ? `${clock(job.started_at)}, attempt ${job.attempt}` : NONE],
    ["Protected until", clock(job.protected_until_at)],
    ["Ran for", duration(job.running_seconds)],
    ["Where", job.placement.map((place) => `${place.node} \u00d7${place.gpus}`).join(", ") || NONE],
    ["Preemptions", String(job.preemptions)],
    ["Note", job.note || NONE],
    ["Exit code", job.exit_code === null ? NONE : String(job.exit_code)],
    ["Command", job.argv ? job.argv.join(" ") : "not shown to you"],
    ...Object.entries(explanation.numbers).filter(([key]) => !SAID_ABOVE.has(key)).map(figure),
  ];
  return [h("h3", {}, "Figures"), h("dl", {}, rows.filter(([, value]) => value !== NONE).map(([key, value]) => [h("dt", {}, key), h("dd", {}, value)]))];
}

/** Return one of the numbers that the codes stand on, with its name. */
function figure([key, value]) {
  const name = key.replace(/_seconds$/, "").replaceAll("_", " ");
  if (typeof value !== "number") return [name, value || NONE];
  return [name, key.endsWith("_seconds") ? duration(value) : String(Number(value.toPrecision(4)))];
}

/** Return an entry of the history; its text mostly begins with the event itself. */
function happened({ event, text }) {
  const word = event.replaceAll("_", " ");
  return text.startsWith(word) ? [h("b", {}, word), text.slice(word.length)] : [h("b", {}, word), " ", text];
}

function past(history) {
  if (!history.length) return null;
  return [
    h("h3", {}, "What happened"),
    h("ol", { class: "timeline" }, history.map((one) => h("li", {}, h("time", {}, clock(one.at)), happened(one)))),
  ];
}

/** Return the place for the end of what the job wrote; it is fetched when somebody asks for it. */
function output(job) {
  return [
    h("h3", {}, "Output"),
    h(
      "div",
      { class: "line", "data-key": "output" },
      h("button", { type: "button", class: "plain-button", "data-act": "showOutput", "data-job": job.id }, "Show the end of it"),
      copyable(`divvy logs -f ${job.id}`),
    ),
    h("div", { class: "output", "data-own": true, "data-key": "output-text" }),
  ];
}

function cancelForm(job) {
  const runs = ["protected", "interruptible", "unallocated"].includes(base(job.state));
  return h(
    "form",
    { class: "line", "data-act": "cancel", "data-job": job.id, "data-key": "cancel" },
    h("button", { type: "submit", class: "danger" }, runs ? "Cancel this running job" : "Cancel this job"),
  );
}

export const actions = {
  async showOutput(button) {
    const place = document.querySelector("#drawer .output");
    const path = `/v1/jobs/${encodeURIComponent(button.dataset.job)}/logs?offset=-${OUTPUT_BYTES}&stream=`;
    try {
      const texts = await Promise.all(["stdout", "stderr"].map((stream) => getText(path + stream)));
      place.replaceChildren(
        ...texts.map((text, i) => h("pre", { tabindex: "0", "aria-label": i ? "Standard error" : "Standard output" }, text || (i ? "nothing on standard error" : "nothing on standard output"))),
      );
      button.textContent = "Show it again";
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      place.replaceChildren(refusal(error));
    }
  },

  async cancel(form, { refresh }) {
    const button = form.querySelector("button");
    if (!button.dataset.sure) {
      button.dataset.sure = "1";
      button.textContent = "Press again to cancel it";
      return;
    }
    try {
      await call("DELETE", `/v1/jobs/${encodeURIComponent(form.dataset.job)}`);
      toast(`${form.dataset.job} will be cancelled`);
      refresh();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      form.parentElement.querySelector(".refusal")?.remove();
      form.after(refusal(error));
    }
  },
};
