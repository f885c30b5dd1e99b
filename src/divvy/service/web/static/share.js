// Changes the share of one account: with a reason, and only if nobody has changed the budget meanwhile.

import { call, get, Problem } from "./api.js";
import { h, toast } from "./dom.js";
import { number } from "./format.js";
import { refusal } from "./parts.js";

let subject = null; // { path, version, siblings }

function form(budget, path, kept = {}) {
  const view = budget.accounts.find((one) => one.path === path);
  const siblings = budget.accounts.filter((one) => one.parent === view.parent && one.path !== path);
  subject = { path, version: budget.version, siblings };
  const others = siblings.reduce((sum, one) => sum + one.share, 0);
  return h(
    "form",
    { class: "stacked", "data-act": "saveShare" },
    h("h2", { id: "box-title" }, `Share of ${path}`),
    h("p", { class: "dim" }, `Percent of ${view.parent || "the fleet"}; now ${number(view.share)} (budget version ${budget.version}).`),
    siblings.length
      ? h("ul", { class: "plain" }, siblings.map((one) => h("li", {}, one.path, " ", h("b", {}, `${number(one.share)}%`))))
      : null,
    h(
      "label",
      {},
      `New share (the others have ${number(others)}; at most ${number(100 - others)} is left)`,
      h("input", { name: "share", type: "number", min: "0", max: "100", step: "any", required: true, value: kept.share ?? view.share, autofocus: true }),
    ),
    h("label", {}, "Reason, kept with the change", h("input", { name: "reason", required: true, maxlength: "1000", value: kept.reason ?? "" })),
    h(
      "div",
      { class: "line" },
      h("button", { type: "submit" }, "Save"),
      h("button", { type: "button", class: "quiet", "data-act": "closeBox" }, "Leave as it is"),
    ),
  );
}

export const actions = {
  async changeShare(element) {
    const box = document.getElementById("box");
    box.replaceChildren(form(await get("/v1/budget"), element.dataset.path));
    box.showModal();
  },

  async saveShare(element, { refresh }) {
    const { path, version } = subject;
    const share = Number(element.elements.share.value);
    const reason = element.elements.reason.value.trim();
    const box = document.getElementById("box");
    try {
      const answer = await call("PATCH", `/v1/budget/accounts/${encodeURIComponent(path)}`, { share, reason, version });
      box.close();
      toast(answer.pending ? "Stored; the scheduler has not taken it up yet" : `Budget version ${answer.version} is in force`);
      refresh();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (error.status === 409) {
        box.replaceChildren(form(await get("/v1/budget"), path, { share, reason }));
      }
      box.querySelector(".refusal")?.remove();
      box.append(refusal(error));
    }
  },

  closeBox() {
    document.getElementById("box").close();
  },
};
