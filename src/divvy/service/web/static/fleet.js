// The fleet: who has which device, beside how busy it is.

import { get } from "./api.js";
import { h } from "./dom.js";
import { fleetMap } from "./fleetmap.js";
import { many, number, percent } from "./format.js";
import * as heatgrid from "./heatgrid.js";
import { account, chip, DEVICE_STATES, elsewhere, empty } from "./parts.js";
import { savePicture, traceButton } from "./save.js";

export const title = "Fleet";

/** From this many devices on, one canvas takes the place of an element for each device. */
const MANY_DEVICES = 512;
const MOST_HOLDERS = 8;

export async function load() {
  const status = await get("/v1/status");
  return { status, as_of: status.as_of, age: status.age_seconds };
}

export function draw({ status }, params) {
  const { totals, nodes } = status;
  if (!nodes.length) {
    return [
      heading(status),
      empty("No nodes yet", "The engine has not reported a machine. Start one here, or look at what the server says:", "divvy up"),
      elsewhere("divvy status --json", "/v1/status"),
    ];
  }
  const shown = nodes.filter((node) => matches(node, params));
  const large = shown.reduce((sum, node) => sum + node.gpus, 0) > MANY_DEVICES;
  return [
    heading(status),
    summary(totals, nodes),
    holders(status),
    h(
      "div",
      { class: "tools" },
      h("input", {
        type: "search",
        placeholder: "Node, account or job",
        "aria-label": "Show only nodes with this node, account or job",
        value: params.get("find") ?? "",
        "data-act": "find",
      }),
      h(
        "label",
        { class: "check" },
        h("input", { type: "checkbox", "data-act": "troubled", checked: params.get("troubled") === "1" }),
        "Only nodes that are not up",
      ),
      h("span", { class: "dim" }, shown.length === nodes.length ? many(nodes.length, "node") : `${shown.length} of ${many(nodes.length, "node")}`),
    ),
    shown.length === 0
      ? empty("No node matches", "Clear the search to see the whole fleet.")
      : large
        ? groups(shown).map(([model, members]) => band(model, members))
        : h("div", { class: "nodes" }, shown.map(card)),
    elsewhere("divvy status --json", "/v1/status"),
  ];
}

export function after(main, { status }, params) {
  const shown = status.nodes.filter((node) => matches(node, params));
  for (const [model, members] of groups(shown)) {
    const place = main.querySelector(`[data-band="${CSS.escape(model)}"]`);
    if (place) heatgrid.show(place, members);
  }
}

function heading(status) {
  return h("div", { class: "heading" }, h("h1", {}, "Fleet"), h("p", { class: "dim" }, `shared by the policy "${status.policy}"`), status.nodes.length ? h("span", { class: "save" }, traceButton(), pictureButton("svg"), pictureButton("png")) : null);
}

function matches(node, params) {
  if (params.get("troubled") === "1" && node.state === "up") return false;
  const text = (params.get("find") ?? "").trim().toLowerCase();
  if (!text) return true;
  if (node.name.toLowerCase().includes(text) || node.model.toLowerCase().includes(text)) return true;
  return node.devices.some((device) => device.job?.toLowerCase() === text || device.account?.toLowerCase().includes(text));
}

// -- summary ------------------------------------------------------------------------------------------

function summary(totals, nodes) {
  const counts = { protected: 0, interruptible: 0, unallocated: 0, stopping: 0, draining: 0, free: 0, down: 0 };
  for (const node of nodes) for (const device of node.devices) counts[device.state in counts ? device.state : "free"] += 1;
  const parts = Object.entries(counts).filter(([, count]) => count);
  const up = nodes.filter((node) => node.state === "up");
  const whole = up.filter((node) => node.free === node.gpus && node.gpus > 0).length;
  const largest = up.reduce((most, node) => Math.max(most, node.free), 0);
  const busy = busyOf(nodes);
  return h(
    "section",
    { class: "summary", "aria-label": "Summary" },
    h(
      "div",
      { class: "tiles" },
      tile(number(totals.gpus), "healthy devices"),
      tile(totals.gpus ? percent(totals.used / totals.gpus) : "n/a", "occupied"),
      tile(busy.text, "busy", busy.why),
      tile(number(totals.running), "jobs run"),
      tile(number(totals.queued), "jobs wait", null, "#/queue"),
      tile(number(largest), "largest free block"),
      tile(`${number(whole)}/${number(up.length)}`, "whole nodes free"),
    ),
    h(
      "div",
      { class: "stack", role: "img", "aria-label": parts.map(([state, count]) => `${count} ${DEVICE_STATES[state].name}`).join(", ") },
      parts.map(([state, count]) => h("i", { "data-state": state, style: { "flex-grow": count } })),
    ),
    h(
      "ul",
      { class: "legend", "aria-label": "States of a device" },
      Object.entries(counts)
        .filter(([state, count]) => count || !["stopping", "draining", "down"].includes(state))
        .map(([state, count]) =>
          h(
            "li",
            { title: DEVICE_STATES[state].text },
            h("i", { class: "cell", "data-state": state, "aria-hidden": "true" }, DEVICE_STATES[state].letter),
            h("span", {}, DEVICE_STATES[state].name),
            h("b", {}, number(count)),
          ),
        ),
      h("li", { title: "how busy a device is, where that is known" }, h("i", { class: "use" }, h("i", { style: { height: "60%" } })), h("span", {}, "Utilisation")),
      h("li", { title: "the engine cannot tell; the reason is beside the node" }, h("i", { class: "use", "data-unknown": true }), h("span", {}, "Not known")),
    ),
  );
}

/** Return who has the devices now: the leaf accounts that hold or want most, each with its share marked. */
function holders({ accounts, totals }) {
  const leaves = accounts.filter((one) => one.leaf && (one.held || one.unallocated || one.waiting));
  const weight = (one) => one.held + one.unallocated + one.waiting_gpus / 1000;
  const shown = leaves.sort((a, b) => weight(b) - weight(a)).slice(0, MOST_HOLDERS);
  if (!shown.length) return null;
  const part = (count) => `${Math.min((count / Math.max(totals.gpus, 1)) * 100, 100)}%`;
  return h(
    "section",
    { class: "holders", "aria-label": "Who has the devices" },
    h("h2", {}, "Who has the devices ", h("span", { class: "dim aside" }, "the mark is the account's share")),
    h(
      "ul",
      {},
      shown.map((one) =>
        h(
          "li",
          { "data-key": one.path },
          h("a", { href: `#/budgets?account=${encodeURIComponent(one.path)}` }, account(one.path)),
          h(
            "span",
            { class: "held", title: `the mark is its share of the fleet: ${percent(one.effective_share, 1)}` },
            h("i", { "data-state": "protected", style: { width: part(one.held) } }),
            one.unallocated ? h("i", { "data-state": "unallocated", style: { width: part(one.unallocated) } }) : null,
            h("em", { style: { left: part(one.effective_share * totals.gpus) } }),
          ),
          h(
            "span",
            { class: "dim" },
            `${number(one.held)} held${one.unallocated ? `, ${number(one.unallocated)} unallocated` : ""}${one.waiting ? `, ${number(one.waiting_gpus)} wanted` : ""}`,
          ),
        ),
      ),
    ),
    leaves.length > shown.length ? h("a", { href: "#/budgets" }, `all ${leaves.length} accounts`) : null,
  );
}

function tile(value, label, why = null, href = null) {
  const content = [h("b", {}, value), h("span", {}, label)];
  return href ? h("a", { class: "tile", href }, content) : h("div", { class: "tile", title: why }, content);
}

/** Return the mean utilisation of devices that somebody holds, or "n/a" with the reasons. */
export function busyOf(nodes) {
  let [held, known, sum] = [0, 0, 0];
  const reasons = new Set();
  for (const node of nodes) {
    for (const device of node.devices) {
      if (!device.job) continue;
      held += 1;
      if (device.utilisation === null) {
        reasons.add(device.utilisation_reason ?? "not reported");
      } else {
        known += 1;
        sum += device.utilisation;
      }
    }
  }
  const gap = known < held ? `; not known for ${many(held - known, "device")}` : "";
  if (known) return { text: percent(sum / known), why: `mean of ${many(known, "held device")}${gap}` };
  return { text: "n/a", why: [...reasons].join("; ") || "no device is held" };
}

// -- small fleets: a card for each node -----------------------------------------------------------------

function card(node) {
  const unknown = new Set(node.devices.filter((device) => device.utilisation === null).map((device) => device.utilisation_reason));
  const notes = [node.cause, ...[...unknown].filter(Boolean).map((reason) => `utilisation n/a: ${reason}`)].filter(Boolean);
  return h(
    "article",
    { class: "node", "data-key": node.name, "data-state": node.state },
    h(
      "header",
      {},
      h("a", { href: `#/fleet?node=${encodeURIComponent(node.name)}`, class: "name" }, node.name),
      node.state === "up" ? null : chip(node.state),
      h("span", { class: "dim" }, node.model),
    ),
    h(
      "div",
      { class: "devices" },
      node.devices.map((device) => cell(node, device)),
    ),
    h(
      "footer",
      {},
      h("span", {}, `${node.free} of ${node.gpus} free`),
      h("span", {}, `busy ${meanUse(node)}`),
    ),
    notes.length ? h("p", { class: "note" }, notes.join("; ")) : null,
  );
}

function meanUse(node) {
  const known = node.devices.filter((device) => device.utilisation !== null);
  return known.length ? percent(known.reduce((sum, device) => sum + device.utilisation, 0) / known.length) : "n/a";
}

function cell(node, device) {
  const state = DEVICE_STATES[device.state] ?? { letter: "?", name: device.state };
  const use = device.utilisation === null ? `n/a (${device.utilisation_reason ?? "not reported"})` : percent(device.utilisation);
  const who = device.job ? `, ${device.job} of ${device.account}` : "";
  const says = `${node.name} device ${device.index}: ${state.name}${who}; utilisation ${use}`;
  return h(
    "span",
    {
      class: "device",
      title: says,
      role: "img",
      "aria-label": says,
      "data-act": device.job ? "job" : "node",
      "data-name": device.job ?? node.name,
    },
    h("i", { class: "cell", "data-state": device.state }, state.letter),
    h(
      "i",
      { class: "use", "data-unknown": device.utilisation === null },
      device.utilisation === null ? null : h("i", { style: { height: `${Math.round(device.utilisation * 100)}%` } }),
    ),
  );
}

// -- large fleets: a canvas for each device model ------------------------------------------------------

function groups(nodes) {
  const found = new Map();
  for (const node of nodes) {
    if (!found.has(node.model)) found.set(node.model, []);
    found.get(node.model).push(node);
  }
  return [...found];
}

function band(model, nodes) {
  const devices = nodes.reduce((sum, node) => sum + node.gpus, 0);
  const free = nodes.reduce((sum, node) => sum + node.free, 0);
  const out = nodes.filter((node) => node.state !== "up").length;
  return h(
    "section",
    { class: "band", "data-key": model, "aria-label": model },
    h("h2", {}, model),
    h("p", { class: "dim" }, `${many(nodes.length, "node")}, ${many(devices, "device")}, ${number(free)} free${out ? `, ${many(out, "node")} not up` : ""}; busy ${busyOf(nodes).text}`),
    h("div", { class: "grid", "data-band": model, "data-own": true }),
  );
}

/** Return a colour as any program reads it: the probe knows which of light and dark is in force. */
function resolve(colour) {
  const probe = h("i", { style: { color: colour }, hidden: true });
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function pictureButton(form) {
  return h("button", { type: "button", class: "quiet", "data-act": "saveFleet", "data-form": form, "aria-label": `Save the fleet as ${form.toUpperCase()}` }, form.toUpperCase());
}

export const actions = {
  async saveFleet(button) {
    const { nodes } = await get("/v1/status");
    const style = getComputedStyle(document.getElementById("main"));
    const map = fleetMap(nodes, (name) => resolve(style.getPropertyValue(name)));
    const { width, height } = map.viewBox.baseVal;
    await savePicture("fleet", button.dataset.form, { text: new XMLSerializer().serializeToString(map), width, height });
  },
  find: (element, { navigate }) => navigate({ find: element.value || null }),
  troubled: (element, { navigate }) => navigate({ troubled: element.checked ? "1" : null }),
  job: (element, { navigate }) => navigate({ job: element.dataset.name, node: null }),
  node: (element, { navigate }) => navigate({ node: element.dataset.name, job: null }),
};
