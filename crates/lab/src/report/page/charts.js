// The charts of one load: latency and time series. Each takes its figure, its table and the places of the lines that are
// shown, in their order.
"use strict";

lab.charts = {};

/** Latency over percentiles, the far end drawn out: each nine takes as much room as the last. */
lab.charts.latency = (figure, table, shown) => {
  const nines = (percent) => -Math.log10(1 - percent / 100);
  const parts = [];
  for (const [direction, heading] of [["read", "reads"], ["write", "writes"]]) {
    const lines = shown.map((place) => table.lines[place]).filter((line) => line[direction]);
    if (lines.length === 0) continue;
    const points = lines.flatMap((line, index) =>
      line[direction].points.map(([percent, ns]) => ({ x: nines(percent), ns, percent, name: line.name, index })));
    const ticks = [50, 90, 99, 99.9, 99.99];
    parts.push(lab.plot(figure, {
      height: 320, marginLeft: 60, marginRight: 20, marginBottom: 38,
      x: { label: `percent of ${heading}`, ticks: ticks.map(nines), tickFormat: (x) => `${+(100 * (1 - 10 ** -x)).toFixed(2)}` },
      y: { type: "log", label: "took no longer than", grid: true, ticks: 5, tickFormat: (ns) => lab.time(ns) },
      marks: lines.flatMap((line, index) => {
        const own = points.filter((point) => point.index === index);
        const look = { stroke: lab.tone(line), strokeDasharray: lab.dash(line), strokeWidth: 1.8 };
        return [Plot.line(own, { x: "x", y: "ns", ...look, className: "curve" })];
      }).concat(Plot.tip(points, Plot.pointer({ x: "x", y: "ns", title: (point) => `${point.name}\n${point.percent} %: ${lab.time(point.ns)}` }))),
    }), lab.legend(lines.map((line) => ({ name: line.name, line }))));
  }
  if (parts.length === 0) return figure.replaceChildren("No latency is known of those shown.");
  lab.place(figure, `Latency: ${table.title}`, ...parts);
};

/** Throughput over time, one strip for each case: the round nearest to the median, with what happened meanwhile. */
lab.charts.series = (figure, table, shown) => {
  const real = shown.map((place) => table.lines[place]).filter((line) => !line.floor);
  const strips = real.map((line) => lab.strip(table, line)).filter((strip) => strip);
  if (strips.length === 0) return figure.replaceChildren("No time series is known of those shown.");
  const far = d3.max(strips, (strip) => strip.seconds);
  const parts = strips.map((strip, index) => lab.oneStrip(figure, strip, far, index === strips.length - 1));
  lab.place(figure, `Over time: ${table.title}`, ...parts);
};

/** Each strip has a scale of its own, so that its shape can be seen; the table compares. Only the last one has seconds below it. */
lab.oneStrip = (figure, strip, far, isLast) => {
  const top = d3.max(strip.points, (point) => point.value);
  const [size, unit] = lab.scale(top, strip.unit);
  const at = { x: "second", y: (point) => point.value / size, curve: "step-after" };
  return lab.plot(figure, {
    height: isLast ? 112 : 84, marginTop: 24, marginLeft: 52, marginRight: 10, marginBottom: isLast ? 36 : 8,
    x: { domain: [0, far], label: "seconds", axis: isLast ? "bottom" : null },
    y: { domain: [0, (top / size) * 1.05], label: null, ticks: 3, grid: true },
    marks: [
      Plot.rect(strip.marks, { x1: "from", x2: "until", fill: "var(--mark)", title: "what", className: "happened" }),
      Plot.areaY(strip.points, { ...at, fill: lab.tone(strip.line), fillOpacity: 0.25 }),
      Plot.lineY(strip.points, { ...at, stroke: lab.tone(strip.line), strokeWidth: 1.2, className: "curve" }),
      Plot.text([`${strip.line.name}, round ${strip.round + 1} (${unit})`], { frameAnchor: "top-left", dy: -16, fontWeight: 600, fill: "currentColor" }),
      Plot.text(strip.marks, { x: "until", text: (mark) => `${mark.what}${mark.ended ? " until here" : ""}`, frameAnchor: "bottom", textAnchor: "end", dx: -4, dy: -4, fill: "currentColor" }),
      Plot.ruleY([0]),
    ],
  });
};

/** The series of the round whose value is nearest to the line's median. */
lab.strip = (table, line) => {
  const runs = lab.data.export.experiments[line.experiment].cases[line.case].runs;
  const run = runs.find((run) => run.round === line.middle);
  const phase = run?.phases.find((phase) => phase.name === table.phase && phase.unit === table.unit);
  const series = phase?.series;
  if (!series?.interval_ms) return null;
  const step = series.interval_ms / 1000;
  const counted = table.unit === "bytes-per-second" ? [series.read_bytes, series.written_bytes] : [series.requests];
  const length = d3.max(counted, (samples) => samples.length);
  const points = d3.range(length).map((place) => ({
    second: place * step,
    value: d3.sum(counted, (samples) => samples[place] ?? 0) / step,
  }));
  if (points.length < 2) return null;
  // The last sample lasts as long as the others.
  points.push({ second: length * step, value: points.at(-1).value });
  const seconds = length * step;
  const marks = series.marks.map((mark) => ({ what: mark.what, from: mark.from_ms / 1000, until: (mark.until_ms ?? seconds * 1000) / 1000, ended: mark.until_ms !== null }));
  return { line, round: run.round, unit: table.unit, points, marks, seconds };
};
