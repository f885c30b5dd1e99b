// One node in the drawer: its devices, and the drain.

import { call, get, Problem } from "./api.js";
import { h, toast } from "./dom.js";
import { percent } from "./format.js";
import { account, chip, DEVICE_STATES, elsewhere, refusal } from "./parts.js";
import { mayDrain } from "./rights.js";

export async function load(name) {
  const status = await get("/v1/status");
  const node = status.nodes.find((one) => one.name === name);
  if (!node) throw new Problem(404, { title: `No node "${name}"`, code: "node-unknown" });
  return { node, subject: `node ${name}` };
}

export function draw({ node }) {
  return [
    h(
      "header",
      { class: "drawer-head" },
      h("div", {}, h("h2", { id: "drawer-title", tabindex: "-1", autofocus: true }, node.name), chip(node.state)),
      h("form", { method: "dialog" }, h("button", { class: "quiet", "aria-label": "Close" }, "Close")),
    ),
    h("p", { class: "dim" }, `${node.model}${node.domain ? `, ${node.domain}` : ""}, ${node.free} of ${node.gpus} free${node.cause ? `; ${node.cause}` : ""}`),
    h(
      "table",
      { class: "rows" },
      h("thead", {}, h("tr", {}, ["Device", "State", "Job", "Account", "Busy"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, node.devices.map(deviceRow)),
    ),
    mayDrain() ? drainForm(node) : h("p", { class: "dim" }, "Administrators take nodes out of service; your token may not."),
    elsewhere("divvy status --nodes", "/v1/status"),
  ];
}

function deviceRow(device) {
  const state = DEVICE_STATES[device.state] ?? { letter: "?", name: device.state };
  const use = device.utilisation === null ? h("span", { class: "dim" }, `n/a: ${device.utilisation_reason ?? "not reported"}`) : percent(device.utilisation);
  return h(
    "tr",
    {},
    h("td", { "data-label": "Device" }, String(device.index)),
    h("td", { "data-label": "State" }, h("i", { class: "cell small", "data-state": device.state, "aria-hidden": "true" }, state.letter), ` ${state.name}`),
    h("td", { "data-label": "Job" }, device.job ? h("a", { href: `#/fleet?job=${encodeURIComponent(device.job)}`, class: "id" }, device.job) : "\u2013"),
    h("td", { "data-label": "Account" }, device.account ? account(device.account) : "\u2013"),
    h("td", { "data-label": "Busy" }, use),
  );
}

function drainForm(node) {
  if (node.state !== "up") {
    return h(
      "form",
      { class: "line", "data-act": "undrain", "data-node": node.name, "data-key": "undrain" },
      h("button", { type: "submit" }, "Bring back into service"),
    );
  }
  return h(
    "form",
    { class: "line", "data-act": "drain", "data-node": node.name, "data-key": "drain" },
    h("input", { name: "reason", required: true, maxlength: "1000", placeholder: "Reason, shown beside the node", "aria-label": "Reason of the drain" }),
    h("button", { type: "submit" }, "Drain"),
  );
}

async function change(form, context, method, body) {
  const { node } = form.dataset;
  try {
    await call(method, `/v1/nodes/${encodeURIComponent(node)}/drain`, body);
    toast(method === "POST" ? `${node} is draining` : `${node} is back in service`);
    context.refresh();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    form.parentElement.querySelector(".refusal")?.remove();
    form.after(refusal(error));
  }
}

export const actions = {
  drain: (form, context) => change(form, context, "POST", { reason: form.elements.reason.value }),
  undrain: (form, context) => change(form, context, "DELETE"),
};
