// Numbers, times and states for people.

export const ACTIVITIES = {
  learning: "learns", waiting: "waits", offline: "no broker", silent: "silent", failed: "failed", gone: "gone", joining: "joins",
  paused: "pauses", asleep: "sleeps",
  gathering: "gathers", leaving: "leaves", finished: "finished", present: "present", unseen: "unseen",
};

const MANY = {
  learning: "learn", waiting: "wait", offline: "without broker", joining: "join", gathering: "gather", leaving: "leave",
  paused: "pause", asleep: "sleep",
};

// Peers by what they do, such as "1 waits" and "7 wait".
export function counted(activity, count) {
  return `${count} ${(count > 1 && MANY[activity]) || ACTIVITIES[activity]}`;
}

export function size(count) {
  for (const unit of ["B", "kB", "MB"]) {
    if (count < 1000) return unit === "B" ? `${count} B` : `${count.toFixed(1)} ${unit}`;
    count /= 1000;
  }
  return `${count.toFixed(1)} GB`;
}

export function duration(seconds) {
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole >= 172800) return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

// Two figures of a duration that is an estimate.
export function roughly(seconds) {
  if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  return minutes < 48 * 60 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${Math.round(minutes / 1440)} days`;
}

// Numbers at the ticks of an axis, with as many digits as tell them apart.
export function ticks(values, increment) {
  let digits = 0;
  while (digits < 6 && Math.abs(increment * 10 ** digits - Math.round(increment * 10 ** digits)) > 1e-6) digits += 1;
  return values.map((value) => Math.abs(value) >= 1e5 ? value.toPrecision(3) : value.toFixed(digits));
}

export function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const two = (value) => String(value).padStart(2, "0");
  const days = whole < 172800 ? 0 : Math.floor(whole / 86400);
  return `${days ? `${days} d ` : ""}${two(Math.floor(whole / 3600) - 24 * days)}:${two(Math.floor((whole % 3600) / 60))}:${two(whole % 60)}`;
}

export function number(value, digits = 3) {
  return value === null || value === undefined ? "" : value.toFixed(digits);
}

// Make an element; children are text or elements, never markup.
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// The mark of a state, distinguishable by its shape as well as by its colour.
export function mark(activity, radius = 5) {
  const r = radius;
  const open = ["unseen", "present", "joining", "gathering", "asleep"].includes(activity);
  const shapes = {
    waiting: `M0 ${-r * 1.25} L${r * 1.25} 0 L0 ${r * 1.25} L${-r * 1.25} 0 Z`,
    silent: `M${-r} ${-r} H${-r * 0.6} V${r} H${-r} Z M${r * 0.6} ${-r} H${r} V${r} H${r * 0.6} Z`,
    offline: `M0 ${-r * 1.2} L${r * 1.15} ${r} L${-r * 1.15} ${r} Z`,
    failed: `M${-r} ${-r} L${r} ${r} M${r} ${-r} L${-r} ${r}`,
    gone: `M${-r} ${-r} L${r} ${r} M${r} ${-r} L${-r} ${r}`,
    leaving: `M${-r} ${-r} H${r} V${r} H${-r} Z`,
    finished: `M${-r} ${-r} H${r} V${r} H${-r} Z`,
  };
  const circle = `M${-r} 0 A${r} ${r} 0 1 1 ${r} 0 A${r} ${r} 0 1 1 ${-r} 0 Z`;
  return drawn("path", { d: shapes[activity] ?? circle, class: `mark a-${activity}${open ? " open" : ""}` });
}

export function symbol(activity) {
  return drawn("svg", { viewBox: "-7 -7 14 14", "aria-hidden": "true" }, mark(activity));
}
