// What each peer did over time: a lane for each, with a shape beside each colour.

import { clock, drawn, duration, element } from "./format.js";

const ROW = 20, BAR = 13, WIDTH = 1000;
const WORDS = { training: "trains", waiting: "waits", offline: "no broker", away: "gone or silent" };

export class Lanes {
  constructor(place, key, note) {
    Object.assign(this, { place, note });
    key.replaceChildren(...Object.entries(WORDS).map(([doing, word]) =>
      element("li", {}, drawn("svg", { viewBox: "0 0 22 12", "aria-hidden": "true" }, ...bar(doing, 0, 22, 0, 12)), word)));
  }

  show({ since, until, lanes, more }, chosen) {
    const names = Object.keys(lanes), span = Math.max(until - since, 1);
    const x = (at) => ((at - since) / span) * WIDTH;
    const rows = names.map((name) => {
      const found = lanes[name];
      const marks = found.flatMap(([doing, began, ended]) =>
        bar(doing, x(began), Math.max(1.5, x(ended) - x(began)), (ROW - BAR) / 2, BAR, `${name} ${WORDS[doing]} for ${duration(ended - began)} from ${clock(began)}`));
      const picture = drawn("svg", { viewBox: `0 0 ${WIDTH} ${ROW}`, preserveAspectRatio: "none", role: "img",
        "aria-label": summary(found, span) }, drawn("line", { class: "ground", x1: 0, x2: WIDTH, y1: ROW / 2, y2: ROW / 2 }), ...marks);
      return element("li", { class: name === chosen ? "chosen" : null }, element("span", { class: "who" }, name), picture);
    });
    this.place.replaceChildren(...rows);
    const hidden = more ? ` ${more} peers that lost less time are not shown.` : "";
    this.note.textContent = `From ${clock(since)} to ${clock(until)}; a wait is shown from one second on.${hidden}`;
  }
}

// A bar, with stripes where a peer does not train, so that it is distinguishable without colours.
function bar(doing, x, width, y, height, title) {
  const box = drawn("rect", { class: `lane ${doing}`, x, width, y: doing === "waiting" ? y + height / 2 - 1.5 : y, height: doing === "waiting" ? 3 : height });
  if (title) box.append(drawn("title", {}, title));
  return [box];
}

function summary(found, span) {
  const seconds = {};
  for (const [doing, began, ended] of found) seconds[doing] = (seconds[doing] ?? 0) + ended - began;
  const parts = Object.entries(seconds).map(([doing, each]) => `${WORDS[doing]} for ${duration(each)}`);
  return parts.length ? `${parts.join(", ")} of ${duration(span)}` : "nothing is known";
}
