// Figures over all loads: scaling, latency over throughput, zones.
"use strict";

const SIZES = ["amount", "bitmap_chunk", "block_size", "chunk", "file_size", "from", "read_ahead", "size", "to"];
const said = (name, value) => (SIZES.includes(name) && value >= 1024 ? lab.size(value) : `${value}`);

/** What lines differ in: groups of points that are the same but for one numeric parameter. */
lab.scalings = (tables) => {
  const groups = new Map();
  const add = (key, title, name, where, point) => {
    if (!groups.has(key)) groups.set(key, { title, name, where, unit: point.table.unit, points: [] });
    groups.get(key).points.push(point);
    groups.get(key).title = lab.shared(groups.get(key).title, title);
  };
  for (const table of tables) {
    for (const line of table.lines.filter((line) => !line.floor && line.median > 0)) {
      const rest = { ...table.params };
      for (const [params, own, where] of [[line.params, line.params, "subject"], [table.params, rest, "load"]]) {
        for (const [name, value] of Object.entries(params)) {
          // Reads beside writes are no sweep.
          if (typeof value !== "number" || name === "read_share") continue;
          const { [name]: _, ...others } = own;
          const state = lab.stateOf(line);
          const load = where === "load" ? [table.phase, JSON.stringify(others)] : [table.title];
          const subject = where === "load" ? [line.name] : [JSON.stringify(others)];
          const series = where === "load" ? line.name : lab.named(others, line, state);
          const title = table.title;
          const chart = JSON.stringify([where, name, table.unit, load]);
          add(chart, title, name, where, { table, line, value, series, key: JSON.stringify([subject, state, line.kind, line.experiment]) });
        }
      }
    }
  }
  for (const group of groups.values()) {
    const series = d3.group(group.points, (point) => point.key);
    group.points = group.points.filter((point) => new Set(series.get(point.key).map((other) => other.value)).size > 1);
  }
  return [...groups.values()].filter((group) => group.points.length > 1);
};

/** What titles begin with, in whole words: of "read q1" and "read q4" it is "read". */
lab.shared = (one, other) => {
  const [words, others] = [one.split(" "), other.split(" ")];
  const until = words.findIndex((word, place) => word !== others[place]);
  return until < 0 ? one : words.slice(0, until).join(" ");
};

/** A name for lines that differ in one parameter, from those that they share. */
lab.named = (others, line, state) => {
  const parts = Object.entries(others).map(([name, value]) => (typeof value === "string" ? value : `${name} ${said(name, value)}`));
  const note = (state === "healthy" ? "" : `, ${state}`) + (line.hollow ? " (predicted)" : "");
  return (parts.join(", ") || line.kind) + note;
};

lab.charts.scaling = (figure, group) => {
  const [size, unit] = lab.scale(d3.max(group.points, (point) => point.line.median), group.unit);
  const series = d3.groups(d3.sort(group.points, (point) => point.value), (point) => point.key);
  const values = [...new Set(group.points.map((point) => point.value))].sort(d3.ascending);
  const marks = series.flatMap(([, points]) => {
    const own = d3.sort(points, (point) => point.value);
    const x = (point) => said(group.name, point.value);
    const { line } = own[0];
    const look = { stroke: lab.tone(line), strokeDasharray: lab.dash(line), strokeWidth: 1.8 };
    return [
      Plot.line(own, { x, y: (point) => point.line.median / size, ...look, className: "curve" }),
      Plot.ruleX(own.filter((point) => point.line.low !== null), { x, y1: (point) => point.line.low / size, y2: (point) => point.line.high / size, stroke: lab.tone(line) }),
      Plot.dot(own, { x, y: (point) => point.line.median / size, fill: (point) => lab.tone(point.line), r: 3.5, title: (point) => `${point.line.name}: ${lab.digits(point.line.median / size)} ${unit}` }),
    ];
  });
  const plot = lab.plot(figure, {
    height: 260, marginLeft: 52, marginRight: 20, marginBottom: 36,
    x: { type: "point", domain: values.map((value) => said(group.name, value)), label: group.name.replaceAll("_", " ") },
    y: { zero: true, grid: true, label: unit },
    marks: [...marks, Plot.ruleY([0])],
  });
  const caption = document.createElement("figcaption");
  caption.textContent = `${group.title || "All loads"}: ${unit} over ${group.name.replaceAll("_", " ")}`;
  lab.place(figure, caption.textContent, caption, plot, lab.legend(series.map(([, points]) => ({ name: points[0].series, line: points[0].line }))));
};

/** What a percentile of a line's requests did not exceed: of reads and writes the longer. */
lab.percentile = (line, percent) =>
  d3.max([line.read, line.write], (all) => all?.points.find(([at]) => at === percent)?.[1]) ?? null;

/** Latency over throughput, from shallow queues to deep ones: where the curve turns up, more depth buys waiting only. */
lab.charts.saturation = (figure, group) => {
  const known = d3.sort(group.points, (point) => point.value).filter((point) => lab.percentile(point.line, 99) !== null);
  const series = d3.groups(known, (point) => point.key).filter(([, points]) => points.length > 1);
  if (series.length === 0) return false;
  const [size, unit] = lab.scale(d3.max(known, (point) => point.line.median), group.unit);
  const marks = series.flatMap(([, points]) => {
    const own = d3.sort(points, (point) => point.value);
    const { line } = own[0];
    const x = (point) => point.line.median / size;
    const of = (percent) => (point) => lab.percentile(point.line, percent);
    return [
      Plot.line(own, { x, y: of(50), stroke: lab.tone(line), strokeWidth: 1, strokeOpacity: 0.7, className: "curve" }),
      Plot.line(own, { x, y: of(99), stroke: lab.tone(line), strokeDasharray: lab.dash(line), strokeWidth: 1.8, className: "curve" }),
      Plot.dot(own, { x, y: of(99), fill: lab.tone(line), r: 3, title: (point) => `${point.line.name}, depth ${point.value}: ${lab.time(of(99)(point))}` }),
      Plot.text(own, { x, y: of(99), text: (point) => `${point.value}`, dy: -9, fontSize: 10, fill: "currentColor" }),
    ];
  });
  const plot = lab.plot(figure, {
    height: 260, marginLeft: 60, marginRight: 20, marginBottom: 36,
    x: { zero: true, label: unit },
    y: { type: "log", grid: true, ticks: 4, label: "p99 (thin: p50)", tickFormat: (ns) => lab.time(ns) },
    marks,
  });
  const caption = document.createElement("figcaption");
  caption.textContent = `${group.title || "All loads"}: latency over throughput, numbers are ${group.name.replaceAll("_", " ")}`;
  lab.place(figure, caption.textContent, caption, plot, lab.legend(series.map(([, points]) => ({ name: points[0].series, line: points[0].line }))));
  return true;
};

/** Speed over the place on the disk. */
lab.zones = (data) => {
  const curves = [];
  for (const table of data.tables) {
    for (const line of table.lines.filter((line) => !line.floor)) {
      const runs = data.export.experiments[line.experiment].cases[line.case].runs;
      const phases = runs.flatMap((run) => run.phases.filter((phase) => phase.name === table.phase && phase.zones.length > 1));
      if (phases.length > 0) curves.push({ name: line.name, line, points: phases[0].zones });
    }
  }
  return curves;
};

lab.charts.zones = (figure, curves) => {
  const plot = lab.plot(figure, {
    height: 300, marginLeft: 52, marginRight: 20, marginBottom: 36,
    x: { label: "GB from the start" },
    y: { zero: true, grid: true, label: "MB/s" },
    marks: [
      ...curves.map((curve) => Plot.line(curve.points, {
        x: (zone) => zone.offset_bytes / 1e9, y: (zone) => zone.bytes_per_second / 1e6,
        stroke: lab.tone(curve.line), strokeDasharray: lab.dash(curve.line), strokeWidth: 1.8, className: "curve",
      })),
      Plot.ruleY([0]),
    ],
  });
  lab.place(figure, "Speed over the disk", plot, lab.legend(curves));
};
