// Ties address, data and page together: one view at a time, drawn again whenever a new state is published.

import * as api from "./api.js";
import * as budgets from "./budgets.js";
import { h, morphChildren, toast } from "./dom.js";
import * as explain from "./explain.js";
import * as fleet from "./fleet.js";
import { clock, duration } from "./format.js";
import * as node from "./node.js";
import { refusal } from "./parts.js";
import * as queue from "./queue.js";
import { loadMe } from "./rights.js";
import * as save from "./save.js";
import * as share from "./share.js";
import * as sign from "./sign.js";

/** The views; those that few open are fetched when somebody does. */
const VIEWS = { fleet, queue, budgets };
const LATER = ["statement", "slices", "serving", "transfers", "plan", "decisions", "whatif", "claims"];
const QUIET_REFRESH = 5000;
const STALE_SECONDS = 30;
const $ = (id) => document.getElementById(id);

let route = { view: "fleet", params: new URLSearchParams() };
let newest = null; // { document, received } of the view that is shown
let drawnView = "";
let busy = false;
let wanted = false;
let urgent = false; // somebody waits for it: no pause
let waiting = 0; // timer that shows a skeleton when an answer takes long
let lastStart = 0;
let lastCost = 0;
let stream = "starting";

function readRoute() {
  const [, view = "", query = ""] = /^#\/(\w*)\??(.*)$/.exec(location.hash) ?? [];
  return { view: view in VIEWS || LATER.includes(view) ? view : "fleet", params: new URLSearchParams(query) };
}

/** Go to the same view with other parameters; null removes one. */
function navigate(changes, view = route.view) {
  const params = new URLSearchParams(view === route.view ? route.params : "");
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) params.delete(name);
    else params.set(name, value);
  }
  const query = params.toString();
  location.hash = `#/${view}${query ? `?${query}` : ""}`;
}

/** Draw again soon: at once if the last time is long past, else after a pause that leaves the server air. */
function refresh() {
  wanted = true;
  if (busy || document.hidden) return;
  const pause = urgent ? 0 : Math.max(lastStart + Math.max(300, lastCost * 4) - performance.now(), 0);
  busy = true;
  urgent = false;
  setTimeout(draw, pause);
}

async function draw() {
  wanted = false;
  lastStart = performance.now();
  const { view, params } = route;
  try {
    VIEWS[view] ??= await import(`./${view}.js`);
    const [data, panel] = await Promise.all([VIEWS[view].load(params), drawerData(params), loadMe()]);
    if (view === route.view && params.toString() === route.params.toString()) {
      paint(view, params, data, panel);
    } else {
      wanted = urgent = true;
    }
    $("sign-in").hidden = !api.token();
  } catch (error) {
    if (!(error instanceof api.Problem)) throw error;
    complain(error);
  } finally {
    lastCost = performance.now() - lastStart;
    busy = false;
    if (wanted) refresh();
  }
}

function skeleton() {
  $("main").replaceChildren(h("div", { class: "skeleton", "aria-hidden": "true" }, h("i"), h("i"), h("i")));
  drawnView = "";
}

function paint(view, params, data, panel) {
  clearTimeout(waiting);
  const begin = performance.now();
  const main = $("main");
  const page = h("main", {}, VIEWS[view].draw(data, params));
  if (drawnView !== view) {
    main.replaceChildren(...page.childNodes);
    scrollTo(0, 0);
  } else {
    morphChildren(main, page);
  }
  VIEWS[view].after?.(main, data, params);
  drawnView = view;
  document.title = `${VIEWS[view].title} \u00b7 Divvy`;
  newest = { as_of: data.as_of, age: data.age, received: performance.now() };
  showDrawer(panel, params);
  delete $("banner").dataset.cause;
  showAge();
  performance.measure("divvy:paint", { start: begin, end: performance.now() });
  performance.measure("divvy:update", { start: lastStart, end: performance.now() });
  document.documentElement.dataset.ready = view;
}

// -- the drawer: a job or a node beside any view ------------------------------------------------------

async function drawerData(params) {
  if (params.get("job")) return explain.load(params.get("job"));
  if (params.get("node")) return node.load(params.get("node"));
  return null;
}

function showDrawer(panel, params) {
  const drawer = $("drawer");
  if (!panel) {
    if (drawer.open) drawer.close();
    return;
  }
  const part = params.get("job") ? explain : node;
  const content = h("div", {}, part.draw(panel));
  if (drawer.dataset.subject !== panel.subject) drawer.replaceChildren(...content.childNodes);
  else morphChildren(drawer, content);
  drawer.dataset.subject = panel.subject;
  if (!drawer.open) drawer.showModal();
}

// -- state of the connection --------------------------------------------------------------------------

function showAge() {
  const live = $("live");
  if (!newest) {
    live.dataset.state = stream;
    return;
  }
  const age = newest.age + (performance.now() - newest.received) / 1000;
  const silent = newest.age > STALE_SECONDS;
  live.dataset.state = silent ? "stale" : stream;
  $("live-text").textContent = `${silent ? "stale" : stream} \u00b7 ${age < 1 ? "now" : `${duration(Math.round(age))} old`}`;
  live.title = `figures as of ${clock(newest.as_of)}`;
  const banner = $("banner");
  if (silent) {
    banner.textContent = `The scheduler has been silent for ${duration(newest.age)}: the figures are from ${clock(newest.as_of)}. Is "divvy up" running?`;
  }
  if (!banner.dataset.cause) banner.hidden = !silent;
}

function complain(problem) {
  if (problem.status === 401) {
    sign.ask(refresh);
    return;
  }
  if (route.params.get("job") || route.params.get("node")) {
    if (problem.status === 404) {
      toast(problem.message);
      navigate({ job: null, node: null });
      return;
    }
  }
  if (drawnView) {
    $("banner").replaceChildren(`${problem.message} [${problem.code}]; the figures below are old.`);
    $("banner").dataset.cause = "problem";
    $("banner").hidden = false;
  } else {
    $("main").replaceChildren(refusal(problem));
  }
  $("live").dataset.state = "stale";
  setTimeout(refresh, 3000);
}

// -- what people do -----------------------------------------------------------------------------------

const context = { refresh, navigate, params: () => route.params };

async function act(element) {
  const { act: name } = element.dataset;
  if (name === "copy") {
    await copy(element.dataset.text);
    return;
  }
  const owner = [VIEWS[route.view], explain, node, save, share, sign].find((part) => part.actions?.[name]);
  await owner?.actions[name](element, context);
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied");
  } catch {
    toast("The browser does not allow copying here; select the text instead");
  }
}

document.addEventListener("click", (event) => {
  const element = event.target.closest("[data-act]");
  if (element && element.tagName !== "FORM" && element.tagName !== "SELECT" && element.tagName !== "INPUT") act(element);
});
document.addEventListener("input", (event) => {
  const element = event.target.closest("input[data-act], select[data-act]");
  if (element) act(element);
});
document.addEventListener("submit", (event) => {
  event.preventDefault();
  if (event.target.dataset.act) act(event.target);
});

$("drawer").addEventListener("close", () => {
  delete $("drawer").dataset.subject;
  if (route.params.get("job") || route.params.get("node")) navigate({ job: null, node: null });
});
for (const dialog of [$("drawer"), $("box")]) {
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // the backdrop
  });
}
$("skip").addEventListener("click", () => $("main").focus());
$("sign-in").textContent = "Sign out";
$("sign-in").addEventListener("click", () => {
  api.setToken("", false);
  sign.ask(refresh);
});
$("theme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("divvy.theme", next);
  dispatchEvent(new Event("resize")); // canvases read their colours again
});

function go() {
  if (location.hash && !location.hash.startsWith("#/")) return;
  route = readRoute();
  for (const link of document.querySelectorAll("[data-view]")) {
    if (link.dataset.view === route.view) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "center" });
    } else link.removeAttribute("aria-current");
  }
  clearTimeout(waiting);
  if (drawnView && drawnView !== route.view) waiting = setTimeout(skeleton, 150);
  urgent = true;
  refresh();
}

addEventListener("hashchange", go);
addEventListener("resize", refresh);
document.addEventListener("visibilitychange", () => !document.hidden && refresh());
setInterval(showAge, 1000);
setInterval(refresh, QUIET_REFRESH);
api.tokenFromAddress();
go();
api.follow(refresh, (state) => {
  stream = state;
  showAge();
});
