// Saves what is on the page as a file: a chart as SVG or PNG, a document as JSON, what ran as a trace for Perfetto.

import { get, getText } from "./api.js";
import { h, toast } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const LOOKS = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "opacity", "font-family", "font-size", "font-weight", "text-anchor"];
const SHARP = 2; // pixels of a PNG per CSS pixel

/** Return the buttons that save the chart beside them. */
export function saveButtons(name) {
  const one = (form) => h("button", { type: "button", class: "quiet", "data-act": "saveChart", "data-form": form, "data-name": name, "aria-label": `Save the chart ${name} as ${form.toUpperCase()}` }, form.toUpperCase());
  return h("span", { class: "save" }, one("svg"), one("png"));
}

/** Return the button that saves what ran lately for ui.perfetto.dev. */
export function traceButton() {
  return h("button", { type: "button", class: "quiet", "data-act": "saveTrace", title: "What ran in the last hour, for ui.perfetto.dev (GET /v1/trace)" }, "Trace for Perfetto");
}

function download(name, content, kind) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type: kind }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
  toast(`Saved ${name}`);
}

/** Return an SVG that looks alone as it looks on the page: what the style sheet says is written into it. */
function standalone(svg) {
  const copy = svg.cloneNode(true);
  const here = [svg, ...svg.querySelectorAll("*")];
  const there = [copy, ...copy.querySelectorAll("*")];
  here.forEach((element, at) => {
    const style = getComputedStyle(element);
    for (const look of LOOKS) there[at].setAttribute(look, style.getPropertyValue(look));
    there[at].removeAttribute("class");
    for (const name of Object.keys(there[at].dataset)) delete there[at].dataset[name];
  });
  const { width, height } = svg.viewBox.baseVal;
  copy.setAttribute("xmlns", SVG);
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  const paper = document.createElementNS(SVG, "rect");
  paper.setAttribute("width", "100%");
  paper.setAttribute("height", "100%");
  paper.setAttribute("fill", getComputedStyle(document.documentElement).getPropertyValue("--paper") || getComputedStyle(document.body).backgroundColor);
  copy.prepend(paper);
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

async function painted({ text, width, height }) {
  const picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await picture.decode();
  const canvas = h("canvas", { width: width * SHARP, height: height * SHARP });
  canvas.getContext("2d").drawImage(picture, 0, 0, width * SHARP, height * SHARP);
  return new Promise((resolve) => {
    canvas.toBlob(resolve, "image/png");
  });
}

/** Return what a chart is drawn with: an SVG of ours, or a picture of the server's. */
function source(chart) {
  const svg = chart.querySelector("svg");
  if (svg) return standalone(svg);
  const picture = chart.querySelector("img");
  return { text: decodeURIComponent(picture.src.slice(picture.src.indexOf(",") + 1)), width: picture.naturalWidth, height: picture.naturalHeight };
}

/** Save a picture in a form: svg or png. */
export async function savePicture(name, form, picture) {
  if (form === "svg") download(`${name}.svg`, picture.text, "image/svg+xml");
  else download(`${name}.png`, await painted(picture));
}

export const actions = {
  async saveChart(button) {
    const { name, form } = button.dataset;
    await savePicture(name, form, source(button.closest("[data-chart]")));
  },

  async saveTrace() {
    download("divvy-trace.json", await getText("/v1/trace"), "application/json");
  },

  async saveJson(button) {
    download(button.dataset.name, JSON.stringify(await get(button.dataset.path), null, 2), "application/json");
  },
};
