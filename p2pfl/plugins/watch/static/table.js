// The table of peers: sorted and filtered here, a hundred rows at a time.

import { ACTIVITIES, duration, element, number, size, symbol } from "./format.js";

const STEP = 100;
const URGENT = ["failed", "offline", "silent", "gone", "waiting", "unseen", "joining", "gathering", "present", "learning", "paused", "asleep", "leaving", "finished"];

export class Peers {
  constructor({ heads, rows, more, filter }, choose) {
    this.parts = { heads, rows, more, filter };
    this.choose = choose;
    this.order = { column: "name", down: false };
    this.most = STEP;
    this.made = new Map();
    filter.addEventListener("input", () => this.again());
    more.addEventListener("click", () => { this.most += STEP; this.again(); });
  }

  begin() {
    this.columns = [
      { key: "name", label: "peer", text: (peer) => peer.name },
      { key: "activity", label: "state", text: (peer) => ACTIVITIES[peer.activity], by: (peer) => URGENT.indexOf(peer.activity) },
      { key: "rounds", label: "round", n: true, text: (peer) => this.frame.horizon ? `${peer.rounds}/${this.frame.horizon}` : `${peer.rounds}`, by: (peer) => peer.rounds },
      { key: "score", label: "score", n: true, text: (peer) => number(peer.score), by: (peer) => peer.score ?? -Infinity },
      { key: "loss", label: "loss", n: true, text: (peer) => number(peer.loss), by: (peer) => peer.loss ?? Infinity },
      { key: "waits", label: "waits for", wrap: true, live: true, text: waits, by: (peer) => peer.waits_for.length },
      { key: "waited", label: "waiting", title: "duration of its present wait", n: true, live: true, text: (peer, now) => peer.waiting_since === null ? "" : duration(Math.max(0, now - peer.waiting_since)), by: (peer) => -(peer.waiting_since ?? Infinity) },
      { key: "sent", label: "sent", title: "bytes sent", n: true, text: (peer) => size(peer.sent), by: (peer) => peer.sent },
      { key: "missed", label: "missed", title: "models of neighbours that did not arrive in time", n: true, text: (peer) => String(peer.missed), by: (peer) => peer.missed },
      { key: "epsilon", label: "epsilon", title: "privacy spent so far", n: true, optional: true, text: (peer) => number(peer.epsilon, 2), by: (peer) => peer.epsilon ?? -Infinity },
      { key: "usual", label: "a round", title: "usual duration of a round", n: true, text: (peer) => peer.usual === null ? "" : duration(peer.usual), by: (peer) => peer.usual ?? -Infinity },
      { key: "last", label: "last seen", title: "time since its last sign of life", n: true, live: true, text: (peer, now) => ago(peer.last, now), by: (peer) => -(peer.last ?? -1) },
    ];
    this.shown = "";
  }

  // Columns that only matter while peers move are left out once they have come to rest.
  show(frame, now, chosen, moving) {
    this.moving = moving;
    this.frame = frame;
    this.now = now;
    this.chosen = chosen;
    this.again();
  }

  again() {
    if (!this.frame) return;
    const { rows, more, filter } = this.parts;
    const every = Object.entries(this.frame.peers).map(([name, peer]) => ({ ...peer, name }));
    const idle = this.frame.stage !== "running" && !this.moving;
    const columns = this.columns.filter((each) => !(each.live && idle) && (!each.optional || every.some((peer) => peer[each.key] !== null)));
    this.head(columns);
    const wanted = filter.value.trim().toLowerCase();
    const found = every.filter((peer) => !wanted || peer.name.toLowerCase().includes(wanted) ||
      ACTIVITIES[peer.activity].includes(wanted));
    const { column, down } = this.order;
    const by = columns.find((each) => each.key === column)?.by;
    found.sort((a, b) => (by ? by(a) - by(b) : 0) || a.name.localeCompare(b.name, undefined, { numeric: true }));
    if (down) found.reverse();
    const blockers = new Set(this.frame.headline.peers);
    const listed = found.slice(0, this.most).map((peer) => this.row(peer, columns, blockers));
    listed.forEach((row, index) => {
      if (rows.children[index] !== row) rows.insertBefore(row, rows.children[index] ?? null);
    });
    while (rows.children.length > listed.length) rows.lastChild.remove();
    more.hidden = found.length <= this.most;
    more.textContent = `Show ${Math.min(STEP, found.length - this.most)} of ${found.length - this.most} more`;
  }

  head(columns) {
    const shown = JSON.stringify([columns.map((each) => each.key), this.order, this.frame.metric]);
    if (shown === this.shown) return;
    this.shown = shown;
    this.made.clear();
    const focused = document.activeElement?.dataset?.column;
    this.parts.rows.replaceChildren();
    this.parts.heads.replaceChildren(...columns.map((each) => {
      const sorted = each.key === this.order.column;
      const label = each.key === "score" && this.frame.metric ? this.frame.metric : each.label;
      const button = element("button", { type: "button", "data-column": each.key, title: each.title }, `${label}${sorted ? (this.order.down ? " ▼" : " ▲") : ""}`);
      button.addEventListener("click", () => {
        this.order = { column: each.key, down: sorted && !this.order.down };
        this.again();
      });
      return element("th", {
        scope: "col", class: each.n ? "n" : null, "aria-sort": sorted ? (this.order.down ? "descending" : "ascending") : null,
      }, button);
    }));
    if (focused) this.parts.heads.querySelector(`[data-column="${focused}"]`)?.focus();
  }

  row(peer, columns, blockers) {
    let made = this.made.get(peer.name);
    if (!made) {
      made = this.newRow(peer.name, columns);
      this.made.set(peer.name, made);
    }
    columns.forEach((column, index) => {
      if (!index) return;
      const text = column.text(peer, this.now), cell = made.children[index];
      if (cell.dataset.text === text && cell.dataset.activity === peer.activity) return;
      cell.dataset.text = text;
      cell.dataset.activity = peer.activity;
      cell.replaceChildren(...(column.key === "activity" ? [symbol(peer.activity), text] : [text]));
    });
    made.classList.toggle("blocker", blockers.has(peer.name));
    made.classList.toggle("chosen", this.chosen === peer.name);
    made.querySelector("button").setAttribute("aria-pressed", String(this.chosen === peer.name));
    return made;
  }

  newRow(name, columns) {
    const button = element("button", { type: "button" }, name);
    button.addEventListener("click", () => this.choose(name));
    return element("tr", {}, element("th", { scope: "row" }, button),
      ...columns.slice(1).map((each) => element("td", { class: each.n ? "n" : each.wrap ? "wrap" : null })));
  }
}

function waits(peer) {
  if (peer.activity === "offline") return "the broker";
  const more = peer.waits_for_more ? ` and ${peer.waits_for_more} more` : "";
  return peer.waits_for.length > 3 && !more
    ? `${peer.waits_for.slice(0, 3).join(", ")} and ${peer.waits_for.length - 3} more` : peer.waits_for.join(", ") + more;
}

function ago(last, now) {
  if (last === null) return "never";
  return now - last < 2 ? "now" : `${duration(now - last)} ago`;
}
