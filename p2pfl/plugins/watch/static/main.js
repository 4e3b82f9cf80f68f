// The page: takes states of the swarm from the server, live or of a time of the run, and shows them.

import { Curves } from "./curves.js";
import { clock, counted, element, roughly, symbol } from "./format.js";
import { Graph } from "./graph.js";
import { Lanes } from "./lanes.js";
import { Peers } from "./table.js";

const CURVES = 1500, STEP = 200; // milliseconds between two looks at the curves, and two states of a replay
const STAGES = { running: "live", ended: "ended", interrupted: "interrupted" };
const part = (id) => document.getElementById(id);

const page = {
  about: null, frame: null, chosen: null, score: null, received: 0, replaying: false, playing: false, at: 0,
  asked: -Infinity, asking: false, spoken: "",
};
const graph = new Graph(part("drawing"), part("legend"), choose);
const curves = new Curves(part("chart"), part("key"), part("chart-note"));
const lanes = new Lanes(part("lane-list"), part("lane-key"), part("lane-note"));
const peers = new Peers({ heads: part("heads"), rows: part("rows"), more: part("more"), filter: part("filter") }, choose);

function choose(name) {
  page.chosen = page.chosen === name ? null : name;
  page.asked = -Infinity;
  show();
}

async function get(path) {
  const answer = await fetch(path, { headers: { accept: "application/json" } });
  if (!answer.ok) {
    const said = (await answer.text()).trim();
    fail(said);
    throw new Error(`${path}: ${said}`);
  }
  return answer.json();
}

function take(change) {
  const before = page.frame?.peers ?? {};
  page.frame = { ...page.frame, ...change, peers: { ...before, ...change.peers } };
  page.received = performance.now();
  show();
}

function now() {
  const { frame } = page;
  const passed = page.replaying || frame.stage !== "running" || !page.about.timed ? 0 : (performance.now() - page.received) / 1000;
  return frame.at + passed;
}

function show() {
  const { frame, about } = page;
  if (!frame) return;
  part("stage").textContent = page.replaying ? "replay" : STAGES[frame.stage];
  part("stage").className = `badge ${page.replaying ? "" : frame.stage}`;
  const waited = Object.entries(frame.counts);
  part("counts").replaceChildren(...waited.map(([activity, count]) =>
    element("li", {}, symbol(activity), counted(activity, count))));
  part("headline").textContent = sentence(frame.headline.sentence);
  part("headline").className = `headline ${frame.headline.tone}`;
  speak(frame.headline);
  tick();
  graph.show(frame, page.chosen);
  peers.show(frame, now(), page.chosen, page.replaying && page.at < page.about.span);
  alerts(frame);
  scores(frame);
  look();
  glance();
  part("unread").textContent = about.unread ? `${about.unread} lines of the run could not be read.` : "";
}

function sentence(text) {
  return `${text}.`;
}

// Screen readers announce when the matter changes, not each second that it lasts.
function speak({ tone, peers: who, sentence: said }) {
  const matter = `${tone} ${who.join(" ")}`;
  if (matter === page.spoken) return;
  page.spoken = matter;
  part("spoken").textContent = sentence(said);
}

function tick() {
  if (!page.frame) return;
  const round = page.frame.rounds;
  const rounds = round ? `, round ${round[1]}${page.frame.horizon ? ` of ${page.frame.horizon}` : ""}` : "";
  const { timed: known, observed } = page.about, { remaining, stage, headline } = page.frame;
  const moves = stage === "running" && !page.replaying && (headline.tone === "good" || headline.tone === "waiting");
  const left = known && remaining && moves ? `, about ${roughly(remaining)} left` : "";
  part("clock").textContent = known ? `${observed ? "watched for " : ""}${clock(now())}${rounds}${left}` : rounds.slice(2);
}

function alerts(frame) {
  const shown = JSON.stringify([frame.alerts, frame.alerts_more]);
  if (shown === alerts.shown) return;
  alerts.shown = shown;
  const when = (at) => element("time", {}, page.about.timed ? clock(at) : `round ${at}`);
  const items = frame.alerts.map((each) => element("li", { class: each.over ? "over" : each.severity },
    when(each.at), element("b", {}, each.peer), each.over ? "over: " : null, `${each.sentence}.`));
  if (frame.alerts_more) items.push(element("li", {}, `and ${frame.alerts_more} more`));
  if (!items.length) items.push(element("li", { class: "over" }, "Nothing needs attention."));
  part("alerts").replaceChildren(...items);
}

function scores(frame) {
  const select = part("score");
  const known = [...select.options].map((each) => each.value).join("\n");
  if (known !== frame.scores.join("\n")) {
    select.replaceChildren(...frame.scores.map((name) => element("option", { value: name }, name)));
    page.score ??= frame.metric;
    if (frame.scores.includes(page.score)) select.value = page.score;
  }
}

async function glance() {
  if (!page.about.timed || glance.asking || performance.now() - (glance.asked ?? -Infinity) < CURVES) return;
  glance.asking = true;
  glance.asked = performance.now();
  const query = new URLSearchParams(page.replaying ? { at: page.at } : {});
  try {
    lanes.show(await get(`/api/lanes?${query}`), page.chosen);
  } finally {
    glance.asking = false;
  }
}

async function look() {
  if (page.asking || performance.now() - page.asked < CURVES || !page.frame.metric) return;
  const score = page.score ?? page.frame.metric;
  const key = JSON.stringify([score, page.chosen, page.frame.count, page.replaying && page.at]);
  if (key === look.key) return;
  page.asking = true;
  page.asked = performance.now();
  look.key = key;
  const query = new URLSearchParams({ score });
  if (page.chosen) query.append("peer", page.chosen);
  if (page.replaying) query.append("at", page.at);
  try {
    curves.show(await get(`/api/curves?${query}`), score, page.chosen);
  } finally {
    page.asking = false;
  }
}

// ---------------------------------------------------------------------- live

function follow() {
  const source = new EventSource("/api/stream");
  source.onmessage = async (event) => {
    if (page.replaying) return;
    const change = JSON.parse(event.data);
    if (change.whole) page.frame = null;
    const ended = change.stage && change.stage !== "running" && page.about.span === null;
    take(change);
    if (ended) await introduce();
  };
  source.addEventListener("failure", (event) => {
    source.close();
    fail(JSON.parse(event.data));
  });
  source.onerror = () => {
    part("stage").textContent = "connection lost";
    part("stage").className = "badge lost";
  };
}

function fail(said) {
  part("headline").textContent = sentence(said);
  part("headline").className = "headline failed";
  part("spoken").textContent = sentence(said);
}

async function introduce() {
  page.about = await get("/api/about");
  part("name").textContent = page.about.name;
  document.title = `${page.about.name} – p2pfl watch`;
  graph.begin(page.about);
  part("lanes").hidden = !page.about.timed;
  peers.begin();
  const { span } = page.about;
  part("player").hidden = span === null;
  if (span !== null) {
    part("time").max = span;
    part("time").value = page.replaying ? page.at : span;
    timed();
  }
}

// ---------------------------------------------------------------------- replay

function timed() {
  const at = Number(part("time").value);
  const text = page.about.timed ? `${clock(at)} of ${clock(page.about.span)}` : `round ${Math.floor(at)} of ${page.about.span}`;
  part("timetext").textContent = text;
  part("time").setAttribute("aria-valuetext", text);
}

async function go(at) {
  page.replaying = true;
  page.at = Math.min(Math.max(0, at), page.about.span);
  part("time").value = page.at;
  timed();
  if (go.pending) return;
  go.pending = true;
  try {
    do {
      go.shown = page.at;
      const frame = await get(`/api/frame?at=${go.shown}`);
      page.frame = null;
      take(frame);
    } while (go.shown !== page.at);
  } finally {
    go.pending = false;
  }
}

function play(on) {
  page.playing = on;
  part("play").textContent = on ? "Pause" : "Play";
  part("play").setAttribute("aria-pressed", String(on));
  if (on && page.at >= page.about.span) page.at = 0;
  play.last = performance.now();
}

function advance() {
  if (!page.playing) return;
  const passed = (performance.now() - play.last) / 1000 * Number(part("speed").value);
  play.last = performance.now();
  if (go.pending) { play.last -= passed * 1000 / Number(part("speed").value); return; }
  const at = page.at + passed;
  if (at >= page.about.span) play(false);
  go(at);
}

part("play").addEventListener("click", () => {
  if (!page.replaying) page.at = Number(part("time").value);
  play(!page.playing);
});
part("time").addEventListener("input", () => go(Number(part("time").value)));
part("present").addEventListener("click", () => { play(false); go(page.about.span); });
part("player").addEventListener("submit", (event) => event.preventDefault());
part("score").addEventListener("change", () => { page.score = part("score").value; page.asked = -Infinity; look(); });

await introduce();
follow();
setInterval(advance, STEP);
setInterval(() => {
  if (!page.frame) return;
  look();
  glance();
  if (page.replaying || page.frame.stage !== "running") return;
  tick();
  peers.show(page.frame, now(), page.chosen, false);
}, 1000);
if (page.about.speed !== null && page.about.span !== null) {
  const speed = String(page.about.speed);
  if (![...part("speed").options].some((each) => each.value === speed)) {
    part("speed").append(element("option", { value: speed }, `${speed}×`));
  }
  part("speed").value = speed;
  await go(0);
  play(true);
}
