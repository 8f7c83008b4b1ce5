// The figures of one load: bars, processor time, latency, time series. Each takes its figure, its table and the places of
// the lines that are shown, in their order.
"use strict";

lab.charts = {};

const BAND = 40;

/** Bars with the interval over them and a dot for each repeat; against a baseline, percents of it with theirs. */
lab.charts.bars = (figure, table, shown, baseline) => {
  const base = baseline === null ? null : table.lines.findIndex((line) => line.name === baseline);
  const rows = shown.map((place) => lab.bar(table, place, base)).filter((row) => row);
  if (rows.length === 0) return figure.replaceChildren(base === -1 ? `${baseline} is not in this one.` : "Nothing is shown.");
  const far = d3.max(rows, (row) => Math.max(row.high ?? 0, row.value, ...row.dots.map((dot) => dot.value)));
  const [size, unit] = base === null ? lab.scale(far, table.unit) : [1, `percent of ${baseline}`];
  const x = (of) => (row) => of(row) / size;
  const withInterval = rows.filter((row) => row.low !== null);
  const dots = rows.flatMap((row) => row.dots.map((dot) => ({ ...dot, name: row.name })));
  const plot = lab.plot(figure, {
    height: rows.length * BAND + 44,
    marginLeft: 2,
    // A verdict stands behind the bar, if there is one.
    marginRight: base === null ? 64 : 150,
    marginBottom: 36,
    x: { domain: [0, far / size], grid: true, label: `${unit}${table.moreIsBetter || base !== null ? "" : " (less is better)"}` },
    y: { domain: rows.map((row) => row.name), axis: null },
    marks: [
      Plot.barX(rows, {
        x: x((row) => row.value), y: "name", fill: "colour", fillOpacity: (row) => (row.line.predicted ? 0.35 : 0.75),
        stroke: "colour", strokeDasharray: "4 3", strokeOpacity: (row) => (row.line.predicted ? 1 : 0),
        insetTop: 18, insetBottom: 5, title: "title", className: "bar",
      }),
      Plot.ruleY(withInterval, { y: "name", x1: x((row) => row.low), x2: x((row) => row.high), dy: 6, strokeWidth: 2.5, stroke: "currentColor" }),
      Plot.dot(dots, {
        x: x((dot) => dot.value), y: "name", dy: 6, r: 2.6, stroke: "currentColor", fill: "var(--ground)", strokeWidth: 1,
        symbol: (dot) => (dot.outlier ? "times" : "circle"), title: "title",
      }),
      Plot.text(rows, { x: 0, y: "name", text: "name", textAnchor: "start", dy: -11, dx: 1, fontWeight: 600, fill: "currentColor" }),
      Plot.text(rows, {
        x: x((row) => Math.max(row.high ?? 0, row.value, ...row.dots.map((dot) => dot.value))),
        y: "name", text: (row) => row.text(size), textAnchor: "start", dx: 8, dy: 6, fill: "currentColor",
      }),
      Plot.ruleX(lab.guides(table, base, far), { x: (guide) => guide.at / size, stroke: "var(--floor)", strokeDasharray: "3 3", title: "title" }),
      Plot.ruleX([0]),
    ],
  });
  lab.place(figure, `Bars: ${table.title}, ${unit}. The table below has the same figures.`, plot, ...lab.floorOf(table));
};

/** One bar: the line's own figure, or its ratio to a baseline. */
lab.bar = (table, place, base) => {
  const line = table.lines[place];
  // The floor is often far beyond all others, which would be slivers beside it.
  if (line.floor) return null;
  const common = { name: line.name, line, colour: lab.colourOf(line) };
  if (base === null) {
    const said = (value, size) => lab.digits(value / size);
    return {
      ...common, value: line.median, low: line.low, high: line.high,
      dots: line.repeats.map((repeat) => ({
        ...repeat, title: `round ${repeat.round}: ${said(repeat.value, lab.scale(repeat.value, table.unit)[0])}${repeat.outlier ? ", an outlier" : ""}`,
      })),
      title: `${line.name}: median of ${line.repeats.length}`,
      text: (size) => said(line.median, size),
    };
  }
  if (base < 0) return null;
  const pair = lab.pair(table, place, base);
  if (!pair) return null;
  const [ratio, low, high, verdict] = pair;
  const isReal = verdict === "higher" || verdict === "lower";
  return {
    ...common, value: ratio * 100, low: low && low * 100, high: high && high * 100, dots: [],
    title: `${line.name}: ${verdict}`,
    text: () => `${lab.digits(ratio * 100)} %${place === base || isReal ? "" : `, ${verdict}`}`,
  };
};

/** What the harness does without a subject, said below the bars. */
lab.floorOf = (table) => {
  const floors = table.lines.filter((line) => line.floor).map((line) => {
    const [size, unit] = lab.scale(line.median, table.unit);
    const caption = document.createElement("figcaption");
    caption.textContent = `${line.name}, the harness alone: ${lab.digits(line.median / size)} ${unit}`;
    return caption;
  });
  return floors;
};

/** What stands across all bars: the harness's floor, or the baseline. */
lab.guides = (table, base, far) => {
  if (base !== null) return [{ at: 100, title: "the baseline" }];
  const floor = table.lines.find((line) => line.floor);
  return floor && floor.median <= far ? [{ at: floor.median, title: "the harness alone" }] : [];
};

/** The specific processor load: percent of one processor for each MB/s. */
lab.charts.cpu = (figure, table, shown) => {
  const rows = shown.map((place) => table.lines[place]).filter((line) => line.cpu !== null);
  if (rows.length === 0) return figure.replaceChildren("Nothing is known of those shown.");
  const plot = lab.plot(figure, {
    height: rows.length * BAND + 44, marginLeft: 2, marginRight: 80, marginBottom: 36,
    x: { grid: true, label: "percent of one processor for each MB/s (less is better)", domain: [0, d3.max(rows, (line) => line.cpu)] },
    y: { domain: rows.map((line) => line.name), axis: null },
    marks: [
      Plot.barX(rows, { x: "cpu", y: "name", fill: lab.colourOf, fillOpacity: 0.75, insetTop: 18, insetBottom: 5, className: "bar" }),
      Plot.text(rows, { x: 0, y: "name", text: "name", textAnchor: "start", dy: -11, dx: 1, fontWeight: 600, fill: "currentColor" }),
      Plot.text(rows, { x: "cpu", y: "name", text: (line) => lab.digits(line.cpu), textAnchor: "start", dx: 8, dy: 6, fill: "currentColor" }),
      Plot.ruleX([0]),
    ],
  });
  lab.place(figure, `Processor time: ${table.title}`, plot);
};

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
        const look = { stroke: lab.stroke(index), strokeDasharray: lab.dash(index), strokeWidth: 1.8 };
        return [Plot.line(own, { x: "x", y: "ns", ...look, className: "curve" })];
      }).concat(Plot.tip(points, Plot.pointer({ x: "x", y: "ns", title: (point) => `${point.name}\n${point.percent} %: ${lab.time(point.ns)}` }))),
    }), lab.legend(lines.map((line) => line.name)));
  }
  if (parts.length === 0) return figure.replaceChildren("No latency is known of those shown.");
  lab.place(figure, `Latency: ${table.title}`, ...parts);
};

/** Throughput over time, one strip for each case: the repeat nearest to the median, with what happened meanwhile. */
lab.charts.series = (figure, table, shown) => {
  const real = shown.map((place) => table.lines[place]).filter((line) => !line.floor);
  const strips = real.map((line) => lab.strip(table, line)).filter((strip) => strip);
  if (strips.length === 0) return figure.replaceChildren("No time series is known of those shown.");
  const far = d3.max(strips, (strip) => strip.seconds);
  const parts = strips.map((strip, index) => lab.oneStrip(figure, strip, far, index === strips.length - 1));
  lab.place(figure, `Over time: ${table.title}`, ...parts);
};

/** Each strip has a scale of its own, so that its shape can be seen; the bars compare. Only the last one has seconds below it. */
lab.oneStrip = (figure, strip, far, isLast) => {
  const top = d3.max(strip.points, (point) => point.value);
  const [size, unit] = lab.scale(top, strip.unit);
  const at = { x: "second", y: (point) => point.value / size };
  return lab.plot(figure, {
    height: isLast ? 112 : 84, marginTop: 24, marginLeft: 52, marginRight: 10, marginBottom: isLast ? 36 : 8,
    x: { domain: [0, far], label: "seconds", axis: isLast ? "bottom" : null },
    y: { domain: [0, (top / size) * 1.05], label: null, ticks: 3, grid: true },
    marks: [
      Plot.rect(strip.marks, { x1: "from", x2: "until", fill: "var(--mark)", title: "what", className: "happened" }),
      Plot.areaY(strip.points, { ...at, fill: lab.colourOf(strip.line), fillOpacity: 0.25 }),
      Plot.lineY(strip.points, { ...at, stroke: lab.colourOf(strip.line), strokeWidth: 1.2, className: "curve" }),
      Plot.text([`${strip.line.name}, round ${strip.round} (${unit})`], { frameAnchor: "top-left", dy: -16, fontWeight: 600, fill: "currentColor" }),
      Plot.text(strip.marks, { x: "until", text: (mark) => `${mark.what}${mark.ended ? " until here" : ""}`, frameAnchor: "bottom", textAnchor: "end", dx: -4, dy: -4, fill: "currentColor" }),
      Plot.ruleY([0]),
    ],
  });
};

/** The series of the repeat whose value is nearest to the line's median. */
lab.strip = (table, line) => {
  const runs = lab.data.export.experiments[line.experiment].cases[line.case].runs;
  const nearest = d3.least(line.repeats, (repeat) => Math.abs(repeat.value - line.median));
  const run = nearest && runs.find((run) => run.round === nearest.round);
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
  const seconds = length * step;
  const marks = series.marks.map((mark) => ({ what: mark.what, from: mark.from_ms / 1000, until: (mark.until_ms ?? seconds * 1000) / 1000, ended: mark.until_ms !== null }));
  return { line, round: run.round, unit: table.unit, points, marks, seconds };
};
