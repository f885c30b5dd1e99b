// Parts that several views share: states, accounts, gauges, the same data elsewhere, refusals.

import { h } from "./dom.js";
import { base, number } from "./format.js";

/** States of a device: letter, name, meaning. Letters and patterns say the same as the colours. */
export const DEVICE_STATES = {
  protected: { letter: "P", name: "Protected", text: "inside the minimum runtime of its job" },
  interruptible: { letter: "I", name: "Interruptible", text: "past the minimum runtime; may be preempted" },
  unallocated: { letter: "U", name: "Unallocated", text: "free work that gives way to any claim" },
  stopping: { letter: "S", name: "Stopping", text: "told to leave, not gone yet" },
  draining: { letter: "D", name: "Draining", text: "takes no new work" },
  free: { letter: "", name: "Free", text: "nobody has it" },
  down: { letter: "\u00d7", name: "Down", text: "out of service" },
};

/** Return the state of a job or node as a chip. */
export function chip(state) {
  return h("span", { class: "chip", "data-state": base(state) }, state);
}

/** Return an account's path with its last part in the foreground. */
export function account(path) {
  const cut = path.lastIndexOf(".") + 1;
  return h("span", { class: "path" }, h("span", { class: "dim" }, path.slice(0, cut)), path.slice(cut));
}

/** Return a balance on a scale from 0 to 2, with its mark at 1: exactly served. */
export function balance(value) {
  if (value === null) return h("span", { class: "dim", title: "nothing is owed" }, "n/a");
  const place = `${(Math.min(Math.max(value, 0), 2) / 2) * 100}%`;
  const side = value > 1.005 ? "over" : value < 0.995 ? "under" : "even";
  const says = { over: "over-served", under: "under-served", even: "exactly served" }[side];
  return h(
    "span",
    { class: "balance", title: `used ${number(value, 3)} of what it is owed: ${says}` },
    h("b", {}, number(value, 3)),
    h("span", { class: "scale", "data-side": side, "aria-hidden": "true" }, h("i", { style: { left: place } })),
  );
}

/** Return a figure and what it is. */
export function tile(value, label, why = null) {
  return h("div", { class: "tile", title: why }, h("b", {}, value), h("span", {}, label));
}

/** Return the commands that give the data of a view elsewhere, each with a button to copy it. */
export function elsewhere(command, path) {
  const url = new URL(path, location.origin).href;
  const curl = `curl -H "Authorization: Bearer $DIVVY_TOKEN" "${url}"`;
  return h(
    "footer",
    { class: "elsewhere", "aria-label": "The same data elsewhere" },
    h("span", { class: "dim" }, "Same data"),
    copyable(command),
    copyable(curl),
  );
}

/** Return a command with a button that copies it. */
export function copyable(text) {
  return h(
    "span",
    { class: "copyable" },
    h("code", { tabindex: "0" }, text),
    h("button", { type: "button", class: "quiet", "data-act": "copy", "data-text": text, "aria-label": `Copy: ${text}` }, "Copy"),
  );
}

/** Return a refusal as people can act on it: what, what is allowed, what to do. */
export function refusal(problem) {
  const faults = problem.faults.length ? problem.faults : [{ message: problem.message }];
  return h(
    "div",
    { class: "refusal", role: "alert" },
    h("strong", {}, problem.message),
    h("code", { class: "dim" }, problem.code),
    faults.map((fault) => [
      fault.message !== problem.message ? h("p", {}, fault.message) : null,
      fault.allowed ? h("p", {}, h("span", { class: "dim" }, "Allowed: "), fault.allowed) : null,
      fault.fix ? h("p", {}, h("span", { class: "dim" }, "Do this: "), fault.fix) : null,
    ]),
  );
}

/** Return what an empty view says: what it means and what to do next. */
export function empty(title, text, command) {
  return h("div", { class: "empty" }, h("h2", {}, title), h("p", {}, text), command ? copyable(command) : null);
}

/** Return links of which one is current. */
export function segments(label, choices, current, href) {
  return h(
    "nav",
    { class: "segments", "aria-label": label },
    choices.map(([value, text]) => h("a", { href: href(value), "aria-current": value === current ? "true" : null }, text)),
  );
}

/** Return the label of what `divvy up --sample` made, known by its name; nothing for what is real. */
export function example(name) {
  if (!/^example\b/.test(name)) return null;
  return h("span", { class: "chip", "data-state": "example", title: "Made by `divvy up --sample`" }, "example");
}
