// Talks to the HTTP API of this origin; knows the token, the refusals and the stream of new versions.

const TOKEN = "divvy.token";
const ANSWER_MS = 15000;

/** A refusal, with every fault that the API names. */
export class Problem extends Error {
  constructor(status, document) {
    super(document.title ?? `HTTP ${status}`);
    this.status = status;
    this.code = document.code ?? "error";
    this.faults = document.faults ?? [];
    this.version = document.version ?? null;
  }
}

/** Return the token in use; empty where there is none. */
export function token() {
  return sessionStorage.getItem(TOKEN) ?? localStorage.getItem(TOKEN) ?? "";
}

/** Use a token from now on, in this tab only or on this device. An empty one signs out. */
export function setToken(text, keep) {
  sessionStorage.removeItem(TOKEN);
  localStorage.removeItem(TOKEN);
  if (text) (keep ? localStorage : sessionStorage).setItem(TOKEN, text);
}

/** Take a token out of the address (`#token=...`), as `divvy up` may print it. */
export function tokenFromAddress() {
  const match = /^#token=([^&]+)$/.exec(location.hash);
  if (!match) return;
  setToken(decodeURIComponent(match[1]), false);
  history.replaceState(null, "", location.pathname + "#/fleet");
}

function headers(more = {}) {
  const secret = token();
  return { Accept: "application/json", ...more, ...(secret ? { Authorization: `Bearer ${secret}` } : {}) };
}

/** Return what the API answers. Throws `Problem` for a refusal, with status 0 where nothing answers. */
export async function call(method, path, body) {
  let answer;
  try {
    answer = await fetch(path, {
      method,
      headers: headers(body ? { "Content-Type": "application/json" } : {}),
      body: body ? JSON.stringify(body) : undefined,
      cache: "no-store",
      signal: AbortSignal.timeout(ANSWER_MS),
    });
  } catch {
    throw unreachable();
  }
  const text = await answer.text();
  let document = {};
  try {
    document = text ? JSON.parse(text) : {};
  } catch {
    throw new Problem(answer.status, { title: `The answer is not JSON (HTTP ${answer.status})` });
  }
  if (!answer.ok) throw new Problem(answer.status, document);
  return document;
}

export const get = (path) => call("GET", path);

/** Return what the API answers as text. Throws `Problem` for a refusal. */
export async function getText(path) {
  const answer = await fetch(path, { headers: headers(), cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) }).catch(() => {
    throw unreachable();
  });
  if (!answer.ok) throw new Problem(answer.status, await answer.json().catch(() => ({})));
  return answer.text();
}

function unreachable() {
  return new Problem(0, { title: "The control plane does not answer", code: "server-unreachable" });
}

/**
 * Call `onVersion` whenever a new state is published, and `onState` with "live" or "polling". The stream is
 * read by fetch, because an EventSource cannot send a token. While it cannot be had, time passes for news.
 */
export async function follow(onVersion, onState) {
  for (let pause = 1000; ; pause = Math.min(pause * 2, 15000)) {
    try {
      const answer = await fetch("/v1/stream", { headers: headers({ Accept: "text/event-stream" }), cache: "no-store" });
      if (!answer.ok || !answer.body) throw new Problem(answer.status, {});
      pause = 1000;
      onState("live");
      await readEvents(answer.body, onVersion);
    } catch {
      // Fall through: what follows is the answer to every way of losing the stream.
    }
    onState("polling");
    const until = Date.now() + pause;
    do {
      onVersion();
      await new Promise((resolve) => setTimeout(resolve, Math.min(2000, Math.max(until - Date.now(), 250))));
    } while (Date.now() < until);
  }
}

async function readEvents(body, onVersion) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    held += value;
    const events = held.split("\n\n");
    held = events.pop();
    if (events.some((event) => /^data:/m.test(event))) onVersion();
  }
}
