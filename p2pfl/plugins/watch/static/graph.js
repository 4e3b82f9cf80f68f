// Which peer waits for which: a drawing of the graph, or a cell for each peer where there are many.

import { ACTIVITIES, counted, drawn, element, mark, symbol } from "./format.js";

const WIDTH = 400, HEIGHT = 340, MARGIN = 34, NAMES = 40;
const SHOWN = ["learning", "waiting", "offline", "silent", "failed", "gone", "gathering", "paused", "asleep", "finished", "unseen"];

export class Graph {
  constructor(place, legend, choose) {
    this.place = place;
    this.choose = choose;
    legend.replaceChildren(...SHOWN.map((each) => element("li", {}, symbol(each), ACTIVITIES[each])));
  }

  begin(about) {
    this.about = about;
    this.nodes = new Map();
    if (about.places.length) this.beginDrawing(about);
    else this.beginCells();
  }

  show(frame, chosen) {
    const blockers = new Set(frame.headline.peers);
    if (this.about.places.length) this.draw(frame, blockers, chosen);
    else this.fill(frame, blockers, chosen);
  }

  beginDrawing(about) {
    this.at = about.places.map(([x, y]) => [
      WIDTH / 2 + x * (WIDTH / 2 - MARGIN), HEIGHT / 2 + y * (HEIGHT / 2 - MARGIN),
    ]);
    const tip = drawn("marker", {
      id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 5, markerHeight: 5, orient: "auto",
    }, drawn("path", { d: "M0 0 L8 4 L0 8 Z", class: "arrow" }));
    this.edges = about.edges.map(([a, b]) => drawn("line", {
      x1: this.at[a][0], y1: this.at[a][1], x2: this.at[b][0], y2: this.at[b][1], class: "edge",
    }));
    this.waits = drawn("g");
    const radius = about.peers.length > 100 ? 3.5 : about.peers.length > 40 ? 5 : 8;
    this.radius = radius;
    const nodes = about.peers.map((name, index) => {
      const [x, y] = this.at[index];
      const group = drawn("g", { class: "node", transform: `translate(${x} ${y})` },
        drawn("circle", { r: radius + 4, class: "halo" }), mark("unseen", radius),
        about.peers.length <= NAMES ? drawn("text", { y: y < 60 ? -radius - 7 : radius + 15 }, name) : null,
        drawn("title", {}, name));
      group.addEventListener("click", () => this.choose(name));
      this.nodes.set(name, group);
      return group;
    });
    this.svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": "Graph of the peers" },
      drawn("defs", {}, tip), ...this.edges, this.waits, ...nodes);
    this.place.replaceChildren(this.svg);
  }

  draw(frame, blockers, chosen) {
    const number = new Map(this.about.peers.map((name, index) => [name, index]));
    const arrows = [];
    const sentences = [];
    for (const [name, group] of this.nodes) {
      const peer = frame.peers[name];
      const activity = peer ? peer.activity : "unseen";
      if (group.dataset.activity !== activity) {
        group.dataset.activity = activity;
        group.querySelector(".mark").replaceWith(mark(activity, this.radius));
      }
      group.classList.toggle("blocker", blockers.has(name));
      group.classList.toggle("chosen", chosen === name);
      if (!peer || activity !== "waiting") continue;
      sentences.push(`${name} waits for ${peer.waits_for.join(", ")}`);
      for (const other of peer.waits_for) {
        if (number.has(other)) arrows.push(this.arrow(this.at[number.get(name)], this.at[number.get(other)]));
      }
    }
    this.edges.forEach((line, index) => {
      const ends = this.about.edges[index];
      line.classList.toggle("chosen", chosen !== null && ends.includes(number.get(chosen)));
    });
    this.waits.replaceChildren(...arrows);
    this.svg.setAttribute("aria-label", `Graph of ${this.nodes.size} peers. ${sentences.slice(0, 20).join("; ") || "Nobody waits"}.`);
  }

  arrow([x1, y1], [x2, y2]) {
    const length = Math.hypot(x2 - x1, y2 - y1) || 1;
    const [dx, dy] = [(x2 - x1) / length, (y2 - y1) / length];
    const near = this.radius + 3, far = this.radius + 6;
    return drawn("line", {
      x1: x1 + dx * near, y1: y1 + dy * near, x2: x2 - dx * far, y2: y2 - dy * far, class: "wait", "marker-end": "url(#tip)",
    });
  }

  beginCells() {
    this.canvas = element("canvas", { role: "img", "aria-label": "A cell for each peer" });
    this.canvas.addEventListener("click", (event) => {
      const name = this.under(event);
      if (name !== undefined) this.choose(name);
    });
    this.canvas.addEventListener("mousemove", (event) => {
      const name = this.under(event);
      this.canvas.title = name === undefined ? "" : `${name}: ${this.frame?.peers[name]?.activity ?? "unseen"}`;
    });
    this.place.replaceChildren(this.canvas);
  }

  under(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / box.width * this.columns);
    const line = Math.floor((event.clientY - box.top) / box.height * this.lines);
    return column >= 0 && column < this.columns ? this.names[line * this.columns + column] : undefined;
  }

  fill(frame, blockers, chosen) {
    this.frame = frame;
    this.names = Object.keys(frame.peers);
    const count = Math.max(1, this.names.length);
    this.columns = Math.ceil(Math.sqrt(count * WIDTH / HEIGHT));
    this.lines = Math.ceil(count / this.columns);
    const scale = 2, side = WIDTH * scale / this.columns;
    this.canvas.width = WIDTH * scale;
    this.canvas.height = Math.ceil(side * this.lines);
    const context = this.canvas.getContext("2d");
    const colours = colour();
    this.names.forEach((name, index) => {
      const { activity } = frame.peers[name];
      const x = index % this.columns * side, y = Math.floor(index / this.columns) * side, gap = side > 8 ? 2 : 1;
      context.fillStyle = colours[activity];
      if (activity === "waiting") cut(context, x + gap, y + gap, side - 2 * gap);
      else if (activity === "unseen" || activity === "gone") context.fillRect(x + side / 2 - gap, y + side / 2 - gap, 2 * gap, 2 * gap);
      else context.fillRect(x + gap, y + gap, side - 2 * gap, side - 2 * gap);
      if (blockers.has(name) || chosen === name) {
        context.strokeStyle = blockers.has(name) ? colours.failed : colours.text;
        context.lineWidth = 3;
        context.strokeRect(x + 1, y + 1, side - 2, side - 2);
      }
    });
    const counts = Object.entries(frame.counts).map(([activity, count]) => counted(activity, count));
    this.canvas.setAttribute("aria-label", `A cell for each of ${this.names.length} peers: ${counts.join(", ")}.`);
  }
}

function cut(context, x, y, side) {
  context.beginPath();
  context.moveTo(x + side / 2, y);
  context.lineTo(x + side, y + side / 2);
  context.lineTo(x + side / 2, y + side);
  context.lineTo(x, y + side / 2);
  context.fill();
}

function colour() {
  const style = getComputedStyle(document.documentElement);
  const take = (name) => style.getPropertyValue(name).trim();
  const [good, warn, bad, busy, calm, faint] = ["--good", "--warn", "--bad", "--busy", "--calm", "--faint"].map(take);
  return {
    learning: good, waiting: warn, offline: bad, failed: bad, gone: bad, joining: busy, gathering: busy,
    leaving: calm, finished: calm, unseen: faint, present: faint, paused: good, asleep: calm, text: take("--text"),
  };
}
