// A score over rounds: one line a peer where there are few, the median and a band where there are many.

import { drawn, element, number, ticks } from "./format.js";

const HEIGHT = 250;
const COLOURS = ["--busy", "--warn", "--good", "--bad", "--calm", "--faint"];
const DASHES = [[], [6, 3], [2, 3]];

export class Curves {
  constructor(place, key, note) {
    this.place = place;
    this.key = key;
    this.note = note;
    this.plot = null;
    this.shape = "";
    new ResizeObserver(() => this.fit()).observe(place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.shape = "";
      if (this.last) this.show(...this.last);
    });
  }

  show(found, score, chosen) {
    this.last = [found, score, chosen];
    const peers = Object.keys(found.peers);
    const many = peers.length !== 1 && found.rounds.length > 0;
    const data = [found.rounds, ...peers.map((name) => found.peers[name])];
    if (many) data.push(found.median, found.high, found.low);
    if (!found.rounds.length) {
      this.place.setAttribute("aria-label", "No round has ended yet.");
      this.note.textContent = "No round has ended yet.";
      this.plot?.destroy();
      this.plot = null;
      this.shape = "";
      this.key.replaceChildren();
      return;
    }
    const shape = JSON.stringify([peers, score, many, chosen]);
    if (shape !== this.shape || !this.plot) {
      this.plot?.destroy();
      this.key.replaceChildren(...(many ? entries(peers, chosen) : []));
      this.plot = new window.uPlot(options(peers, score, many, chosen, this.width()), data, this.place);
      this.shape = shape;
    } else {
      this.plot.setData(data);
    }
    const last = found.median.length - 1;
    const said = `${score} by round: median ${number(found.median[0])} in round ${found.rounds[0]}, ` +
      `${number(found.median[last])} in round ${found.rounds[last]}`;
    this.place.setAttribute("aria-label", said);
    this.note.textContent = many && found.high[last] !== found.low[last]
      ? `Line: median of the peers. Band: 10 to 90 %, ${number(found.low[last])} to ${number(found.high[last])} in round ${found.rounds[last]}.`
      : "";
  }

  width() {
    return Math.max(200, this.place.clientWidth);
  }

  fit() {
    if (this.plot) this.plot.setSize({ width: this.width(), height: HEIGHT });
  }
}

function entries(peers, chosen) {
  const line = (colour, width, dash) => drawn("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, drawn("line", {
    x1: 0, x2: 26, y1: 5, y2: 5, "stroke-width": width, "stroke-dasharray": dash.join(" "), class: `stroke${colour}`,
  }));
  return [element("li", {}, line("--text", 2.5, []), "median"), ...peers.map((name, index) => element("li", {},
    line(COLOURS[index % COLOURS.length], name === chosen ? 3 : 1.25, DASHES[index % DASHES.length]), name))];
}

function options(peers, score, many, chosen, width) {
  const style = getComputedStyle(document.documentElement);
  const take = (name) => style.getPropertyValue(name).trim();
  const axis = { stroke: take("--faint"), grid: { stroke: take("--rule"), width: 1 }, ticks: { stroke: take("--rule"), size: 4 } };
  const points = { show: (plot) => plot.data[0].length === 1 }; // a line through one round has no length
  const series = [{ label: "round" }, ...peers.map((name, index) => ({
    label: name, stroke: take(COLOURS[index % COLOURS.length]), width: name === chosen ? 3 : 1.25,
    dash: DASHES[index % DASHES.length], points, spanGaps: true,
  }))];
  const bands = [];
  if (many) {
    const first = series.length;
    series.push(
      { label: "median", stroke: take("--text"), width: 2.5, points },
      { label: "90 %", stroke: "transparent", points: { show: false } },
      { label: "10 %", stroke: "transparent", points: { show: false } },
    );
    bands.push({ series: [first + 1, first + 2], fill: take("--band") });
  }
  return {
    width, height: HEIGHT, series, bands, scales: { x: { time: false } }, cursor: { drag: { x: true, y: false } },
    axes: [{ ...axis, label: "round", labelSize: 18, size: 34, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000] },
      { ...axis, label: score, labelSize: 18, size: (_, texts) => texts ? 12 + 7 * Math.max(5, ...texts.map((each) => each.length)) : 52,
        values: (_, values, index, space, increment) => ticks(values, increment) }],
    legend: { show: false },
  };
}
