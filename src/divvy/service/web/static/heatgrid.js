// Thousands of devices on one canvas: each node is a block of two rows, allocation above, utilisation below.

import { h } from "./dom.js";
import { percent } from "./format.js";
import { DEVICE_STATES } from "./parts.js";

const CELL = 8; // side of an allocation square, CSS pixels
const USE = 5; // height of the utilisation strip below it
const GAP = 7; // between blocks
const grids = new WeakMap();

/** Show nodes in a place; the first time a canvas is made there, later it is only painted again. */
export function show(place, nodes) {
  let grid = grids.get(place);
  if (!grid) {
    grid = new Grid(place);
    grids.set(place, grid);
  }
  grid.update(nodes);
}

class Grid {
  constructor(place) {
    this.canvas = h("canvas", { tabindex: "0", role: "application", "aria-label": "Devices by node; arrow keys move, Enter opens the node" });
    this.readout = h("p", { class: "readout dim", "aria-live": "polite" }, "Point at a device, or use the arrow keys.");
    place.append(this.canvas, this.readout);
    this.nodes = [];
    this.frame = ""; // size and colours of what is on the canvas
    this.painted = []; // the look of each block there
    this.focus = -1; // index of the node under the pointer or the keyboard
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.select(-1, 0));
    this.canvas.addEventListener("click", (event) => this.point(event) && this.open());
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    addEventListener("resize", () => this.canvas.isConnected && this.paint());
  }

  update(nodes) {
    this.nodes = nodes;
    if (this.focus >= nodes.length) this.focus = -1;
    if (nodes.length !== this.painted.length) this.frame = "";
    this.paint();
  }

  layout() {
    const most = this.nodes.reduce((max, node) => Math.max(max, node.gpus), 1);
    const width = this.canvas.parentElement.clientWidth;
    this.blockWidth = most * CELL + GAP;
    this.blockHeight = CELL + 1 + USE + GAP;
    this.columns = Math.max(Math.floor((width + GAP) / this.blockWidth), 1);
    return { width, height: Math.ceil(this.nodes.length / this.columns) * this.blockHeight };
  }

  /** Paint what differs from what is on the canvas; everything, where the size or the colours have changed. */
  paint() {
    const { width, height } = this.layout();
    const scale = devicePixelRatio || 1;
    const { canvas } = this;
    const frame = `${width} ${height} ${scale} ${getComputedStyle(canvas).color}`;
    const pen = canvas.getContext("2d");
    if (frame !== this.frame) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      canvas.style.setProperty("height", `${height}px`);
      this.frame = frame;
      this.colours = readColours(canvas.parentElement);
      this.stamps = makeStamps(this.colours, scale);
      this.painted = [];
    }
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    const changed = [];
    this.nodes.forEach((node, index) => {
      const look = lookOf(node) + (index === this.focus ? "focus" : "");
      if (this.painted[index] !== look) changed.push(index);
      this.painted[index] = look;
    });
    this.blocks(pen, changed);
    if (changed.length) canvas.setAttribute("aria-description", describe(this.nodes));
  }

  /** Paint some blocks, one colour after the other: changing the pen costs more than using it. */
  blocks(pen, indices) {
    const { colours } = this;
    const tracks = [];
    const uses = [];
    for (const index of indices) {
      const node = this.nodes[index];
      const left = (index % this.columns) * this.blockWidth;
      const top = Math.floor(index / this.columns) * this.blockHeight;
      pen.clearRect(left - 3, top - 3, this.blockWidth, this.blockHeight);
      node.devices.forEach((device, place) => {
        const x = left + place * CELL;
        pen.drawImage(this.stamps[device.state] ?? this.stamps.free, x, top, CELL, CELL);
        if (device.utilisation === null) {
          pen.drawImage(this.stamps.unknown, x, top + CELL + 1, CELL, USE);
          return;
        }
        const high = Math.round(device.utilisation * USE * 2) / 2;
        tracks.push(x, top + CELL + 1, USE - high);
        uses.push(x, top + CELL + 1 + USE - high, high);
      });
    }
    const fill = (rectangles, colour) => {
      pen.fillStyle = colour;
      for (let at = 0; at < rectangles.length; at += 3) pen.fillRect(rectangles[at], rectangles[at + 1], CELL - 1, rectangles[at + 2]);
    };
    fill(tracks, colours.track);
    fill(uses, colours.use);
    if (this.focus >= 0 && indices.includes(this.focus)) {
      pen.strokeStyle = colours.ink;
      pen.lineWidth = 1.5;
      const left = (this.focus % this.columns) * this.blockWidth;
      const top = Math.floor(this.focus / this.columns) * this.blockHeight;
      pen.strokeRect(left - 1.5, top - 1.5, this.nodes[this.focus].gpus * CELL + 2, CELL + USE + 3);
    }
  }

  point(event) {
    const column = Math.floor(event.offsetX / this.blockWidth);
    const row = Math.floor(event.offsetY / this.blockHeight);
    const index = row * this.columns + column;
    const device = Math.floor((event.offsetX - column * this.blockWidth) / CELL);
    const found = column < this.columns && index < this.nodes.length && device < this.nodes[index].gpus;
    this.select(found ? index : -1, device);
    return found;
  }

  select(index, device) {
    if (index !== this.focus) {
      this.focus = index;
      this.paint();
    }
    if (index < 0) return;
    const node = this.nodes[index];
    const one = node.devices[device];
    const use = one?.utilisation === null ? `n/a (${one.utilisation_reason ?? "not reported"})` : percent(one?.utilisation ?? 0);
    const who = one?.job ? `, ${one.job} of ${one.account}` : "";
    const state = DEVICE_STATES[one?.state]?.name ?? one?.state;
    const health = node.state === "up" ? "" : ` (${node.state}: ${node.cause})`;
    this.readout.textContent = one
      ? `${node.name}${health} device ${one.index}: ${state}${who}; utilisation ${use}`
      : `${node.name}${health}: ${node.free} of ${node.gpus} free`;
  }

  key(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns };
    if (event.key === "Enter") {
      this.open();
    } else if (event.key in steps) {
      const next = this.focus < 0 ? 0 : this.focus + steps[event.key];
      if (next >= 0 && next < this.nodes.length) this.select(next, this.nodes[next].gpus);
    } else {
      return;
    }
    event.preventDefault();
  }

  open() {
    if (this.focus >= 0) location.hash = `#/fleet?node=${encodeURIComponent(this.nodes[this.focus].name)}`;
  }
}

/** Return what a block looks like, as text: two that look the same need no painting. */
function lookOf(node) {
  let look = "";
  for (const device of node.devices) look += device.state[0] + device.state[1] + (device.utilisation === null ? "n" : Math.round(device.utilisation * USE * 2));
  return look;
}

function describe(nodes) {
  const counts = {};
  for (const node of nodes) for (const device of node.devices) counts[device.state] = (counts[device.state] ?? 0) + 1;
  return Object.entries(counts)
    .map(([state, count]) => `${count} ${state}`)
    .join(", ");
}

const COLOURS = {
  protected: "--protected",
  interruptible: "--interruptible",
  unallocated: "--unallocated",
  stopping: "--stopping",
  draining: "--stopping",
  down: "--down",
  free: "--free-line",
  track: "--track",
  use: "--use",
  ink: "--ink",
};

/** Return the colours of the theme as a canvas understands them: a probe wears each, the browser resolves it. */
function readColours(place) {
  const probe = place.appendChild(h("i", { hidden: true }));
  const read = ([name, property]) => {
    probe.style.color = `var(${property})`;
    return [name, getComputedStyle(probe).color];
  };
  const colours = Object.fromEntries(Object.entries(COLOURS).map(read));
  probe.remove();
  return colours;
}

/** Return one small picture for each state: the same colours and patterns as the cells of a small fleet. */
function makeStamps(colours, scale) {
  const stamp = (width, height, paint) => {
    const tile = document.createElement("canvas");
    tile.width = Math.ceil(width * scale);
    tile.height = Math.ceil(height * scale);
    const pen = tile.getContext("2d");
    pen.scale(scale, scale);
    paint(pen, width - 1, height - (height === CELL ? 1 : 0));
    return tile;
  };
  const solid = (colour) => stamp(CELL, CELL, (pen, w, t) => {
    pen.fillStyle = colour;
    pen.fillRect(0, 0, w, t);
  });
  const lines = (colour, draw) => (pen, w, t) => {
    pen.strokeStyle = colour;
    pen.lineWidth = 1;
    pen.strokeRect(0.5, 0.5, w - 1, t - 1);
    pen.beginPath();
    draw(pen, w, t);
    pen.stroke();
  };
  const hatch = (pen, w, t) => {
    for (let x = -t; x < w; x += 3) {
      pen.moveTo(Math.max(x, 0), x < 0 ? t + x : t);
      pen.lineTo(Math.min(x + t, w), x + t > w ? x + t - w : 0);
    }
  };
  const cross = (pen, w, t) => {
    pen.moveTo(1, 1);
    pen.lineTo(w - 1, t - 1);
    pen.moveTo(w - 1, 1);
    pen.lineTo(1, t - 1);
  };
  return {
    protected: solid(colours.protected),
    interruptible: stamp(CELL, CELL, (pen, w, t) => {
      pen.fillStyle = colours.interruptible;
      pen.fillRect(0, 0, w, t);
      pen.clearRect(1.5, t / 2 - 0.75, w - 3, 1.5);
    }),
    unallocated: stamp(CELL, CELL, lines(colours.unallocated, hatch)),
    stopping: solid(colours.stopping),
    draining: stamp(CELL, CELL, lines(colours.draining, (pen, w, t) => {
      pen.moveTo(w / 2, 2);
      pen.lineTo(w / 2, t - 2);
    })),
    down: stamp(CELL, CELL, lines(colours.down, cross)),
    free: stamp(CELL, CELL, lines(colours.free, () => {})),
    unknown: stamp(CELL, USE, (pen, w, t) => {
      pen.strokeStyle = colours.free;
      pen.beginPath();
      hatch(pen, w, t);
      pen.stroke();
    }),
  };
}
