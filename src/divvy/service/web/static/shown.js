// Documents that somebody put on the page: which there are, which one is chosen, where it came from.

import { get } from "./api.js";
import { h } from "./dom.js";
import { clock } from "./format.js";

/** Return what is shown on a view, newest first. */
export async function listed(view) {
  const answer = await get("/v1/shown");
  const documents = answer.documents.filter((one) => one.view === view).sort((a, b) => b.at - a.at);
  return { documents, as_of: answer.as_of, age: answer.age_seconds };
}

const kept = new Map(); // documents by name and time: they do not change under the same time

/** Return one with its document, null where there is none. */
export async function fetchOne(entry) {
  if (!entry) return null;
  const key = `${entry.name} ${entry.at}`;
  if (!kept.has(key)) {
    if (kept.size > 16) kept.clear();
    kept.set(key, await get(`/v1/shown/${encodeURIComponent(entry.name)}`));
  }
  return kept.get(key);
}

/** Return the label of a document that is not about this fleet. */
export function exampleChip(entry) {
  return entry.example ? h("span", { class: "chip", "data-state": "example", title: "Made from example inputs: not about this fleet" }, "example") : null;
}

/** Return a line on where a document came from. */
export function origin(entry) {
  return h("p", { class: "dim" }, `${entry.name}, shown by ${entry.by} ${clock(entry.at)}`, entry.example ? "; computed for real, from example inputs: it is not about this fleet" : "");
}

/** Return the choice among documents, nothing where there is only one. */
export function choice(label, documents, chosen, href) {
  if (documents.length < 2) return null;
  return h(
    "nav",
    { class: "segments", "aria-label": label },
    documents.map((one) => h("a", { href: href(one.name), "aria-current": one === chosen ? "true" : null }, one.title)),
  );
}

/** Return how a document is put on the page. */
export function publishHint(command, name) {
  return `${command} --json | divvy publish - --name ${name}`;
}
