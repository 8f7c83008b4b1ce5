// What all figures share: the data, units, colours, and how a figure is put on the page.
"use strict";

const lab = {};

/** Unpacks the data that the page carries. */
lab.unpack = async () => {
  const text = document.getElementById("data").textContent;
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
};

const STEPS = {
  "bytes-per-second": [[1e6, "MB/s"], [1e3, "kB/s"], [1, "B/s"]],
  "requests-per-second": [[1, "IOPS"]],
  "transactions-per-second": [[1, "tps"]],
  "files-per-second": [[1, "files/s"]],
  "nanoseconds": [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]],
};

/** By what values near `like` are divided, and the unit that comes out. */
lab.scale = (like, unit) => {
  const steps = STEPS[unit];
  return steps.find(([size]) => Math.abs(like) >= size) ?? steps[steps.length - 1];
};

/** Three digits, no exponent. */
lab.digits = (value) => {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 0.001) return value.toFixed(5);
  if (size < 0.9995) return value.toFixed(3);
  if (size < 9.995) return value.toFixed(2);
  return size < 99.95 ? value.toFixed(1) : Math.round(value).toLocaleString("en");
};

lab.time = (ns) => {
  const [size, unit] = lab.scale(ns, "nanoseconds");
  return `${lab.digits(ns / size)} ${unit}`;
};

lab.size = (bytes) => {
  const steps = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];
  const step = steps.find(([size]) => bytes >= size);
  return step ? `${+(bytes / step[0]).toFixed(2)} ${step[1]}` : `${bytes} B`;
};

lab.stateOf = (line) => (typeof line.state === "string" ? line.state : Object.keys(line.state)[0]);

// As the page's style sheet makes shades of its hues.
const SHADES = [null, ["ground", 68], ["text", 66], ["ground", 48], ["text", 44]];
/** A subject's colour, the same in all figures. */
lab.tone = (line) => {
  if (line.floor) return "var(--floor)";
  const [to, share] = SHADES[line.shade] ?? [];
  return to ? `color-mix(in oklab, var(--hue${line.hue}) ${share}%, var(--${to}))` : `var(--hue${line.hue})`;
};
/** Degraded and rebuilding are marks of the colour. */
lab.dash = (line) => ({ degraded: "6 3", rebuilding: "2 3" })[lab.stateOf(line)] ?? (line.hollow ? "1 4" : "");

/** How the line at `of` stands to the one at `to`, as [ratio, low, high, verdict]. */
lab.pair = (table, of, to) => {
  if (of === to) return [1, 1, 1, "the same"];
  for (const [a, b, ratio, low, high, verdict] of table.pairs) {
    if (a === of && b === to) return [ratio, low, high, verdict];
    if (a === to && b === of) {
      const turned = { higher: "lower", lower: "higher" }[verdict] ?? verdict;
      return [1 / ratio, high && 1 / high, low && 1 / low, turned];
    }
  }
  return null;
};

/** How fast a line is, as a part of another's speed: more is faster, whatever the unit counts. */
lab.speed = (table, of, to) => (table.moreIsBetter ? lab.pair(table, of, to) : lab.pair(table, to, of));

/** Names with the look of their lines. */
lab.legend = (entries) => {
  const legend = document.createElement("div");
  legend.className = "legend";
  for (const { name, line } of entries) {
    const entry = document.createElement("span");
    entry.innerHTML = '<svg width="26" height="8" aria-hidden="true"><line x1="0" y1="4" x2="26" y2="4" stroke-width="2.5"/></svg>';
    const drawn = entry.querySelector("line");
    drawn.setAttribute("stroke", lab.tone(line));
    drawn.setAttribute("stroke-dasharray", lab.dash(line));
    entry.append(name);
    legend.append(entry);
  }
  return legend;
};

/** Room for a figure, in CSS pixels. */
lab.width = (figure) => Math.max(280, figure.clientWidth || figure.parentElement.clientWidth || 640);

/** Puts a plot and what belongs to it into its figure, in place of what was there. */
lab.place = (figure, label, ...parts) => {
  for (const part of parts) {
    const svg = part.matches?.("svg") ? part : part.querySelector?.("svg[viewBox]");
    svg?.setAttribute("role", "img");
    svg?.setAttribute("aria-label", label);
    // Plot labels its groups, which have no role that takes a label; the picture as a whole has one.
    svg?.querySelectorAll("g[aria-label]").forEach((group) => group.removeAttribute("aria-label"));
  }
  figure.replaceChildren(...parts);
};

/** What every plot has. */
lab.plot = (figure, options) =>
  Plot.plot({
    width: lab.width(figure),
    style: { background: "transparent", color: "currentColor", fontSize: "12px", overflow: "visible" },
    ...options,
  });
