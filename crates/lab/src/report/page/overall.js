// Figures over all loads: parallel coordinates, scaling, zones.
"use strict";

/** Each case as a line over all loads, as percent of the load's best. */
lab.charts.parallel = (figure, tables, isShown) => {
  const loads = tables.filter((table) => table.lines.some((line) => !line.floor));
  const names = [];
  const points = [];
  for (const table of loads) {
    const real = table.lines.filter((line) => !line.floor);
    const best = (table.moreIsBetter ? d3.max : d3.min)(real, (line) => line.median);
    for (const line of real.filter((line) => isShown(line) && line.median > 0)) {
      if (!names.includes(line.name)) names.push(line.name);
      const part = table.moreIsBetter ? line.median / best : best / line.median;
      points.push({ load: table.title, name: line.name, percent: part * 100 });
    }
  }
  if (loads.length < 2 || points.length === 0) return figure.replaceChildren("Nothing is shown.");
  // Loads run downwards where the page is narrow, so that their names can be read.
  const isNarrow = lab.width(figure) < 640;
  const [along, across] = isNarrow ? ["y", "x"] : ["x", "y"];
  const loadScale = { domain: loads.map((table) => table.title), label: null };
  const percentScale = { domain: [0, 100], grid: true, label: "percent of the best" };
  const plot = lab.plot(figure, {
    height: isNarrow ? loads.length * 56 + 60 : 420,
    marginLeft: isNarrow ? 130 : 46, marginRight: 24, marginBottom: isNarrow ? 38 : 90,
    [along]: { ...loadScale, type: "point", tickRotate: isNarrow ? 0 : -25 },
    [across]: percentScale,
    marks: names.flatMap((name, index) => {
      const own = points.filter((point) => point.name === name);
      const look = { stroke: lab.stroke(index), strokeDasharray: lab.dash(index), strokeWidth: 1.8 };
      const at = { [along]: "load", [across]: "percent" };
      return [Plot.line(own, { ...at, ...look, className: "curve" }), Plot.dot(own, { ...at, fill: lab.stroke(index), r: 2.5 })];
    }).concat(Plot.tip(points, Plot.pointer({ [along]: "load", [across]: "percent", title: (point) => `${point.name}\n${point.load}: ${lab.digits(point.percent)} %` }))),
  });
  lab.place(figure, "All loads at once, each case as percent of the best", plot, lab.legend(names));
};

const SIZES = ["amount", "bitmap_chunk", "block_size", "chunk", "file_size", "from", "read_ahead", "size", "to"];
const said = (name, value) => (SIZES.includes(name) && value >= 1024 ? lab.size(value) : `${value}`);

/** What lines differ in: groups of points that are the same but for one numeric parameter. */
lab.scalings = (tables) => {
  const groups = new Map();
  const add = (key, title, name, point) => {
    if (!groups.has(key)) groups.set(key, { title, name, unit: point.table.unit, points: [] });
    groups.get(key).points.push(point);
  };
  for (const table of tables) {
    for (const line of table.lines.filter((line) => !line.floor && line.median > 0)) {
      const rest = { ...table.params };
      for (const [params, own, where] of [[line.params, line.params, "subject"], [table.params, rest, "load"]]) {
        for (const [name, value] of Object.entries(params)) {
          if (typeof value !== "number") continue;
          const { [name]: _, ...others } = own;
          const state = lab.stateOf(line);
          const load = where === "load" ? [table.phase, JSON.stringify(others)] : [table.title];
          const subject = where === "load" ? [line.name] : [JSON.stringify(others)];
          const series = where === "load" ? line.name : lab.named(others, line, state);
          const title = where === "load" ? `${name} of the load${table.phase ? `: ${table.phase}` : ""}` : `${name}: ${table.title}`;
          const chart = JSON.stringify([where, name, table.unit, load]);
          add(chart, title, name, { table, line, value, series, key: JSON.stringify([subject, state, line.kind, line.experiment]) });
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

/** A name for lines that differ in one parameter, from those that they share. */
lab.named = (others, line, state) => {
  const parts = Object.entries(others).map(([name, value]) => (typeof value === "string" ? value : `${name} ${said(name, value)}`));
  const note = (state === "healthy" ? "" : `, ${state}`) + (line.predicted ? " (predicted)" : "");
  return (parts.join(", ") || line.kind) + note;
};

lab.charts.scaling = (figure, group) => {
  const [size, unit] = lab.scale(d3.max(group.points, (point) => point.line.median), group.unit);
  const series = d3.groups(group.points, (point) => point.key);
  const values = [...new Set(group.points.map((point) => point.value))].sort(d3.ascending);
  const marks = series.flatMap(([, points], index) => {
    const own = d3.sort(points, (point) => point.value);
    const x = (point) => said(group.name, point.value);
    const look = { stroke: lab.stroke(index), strokeDasharray: lab.dash(index), strokeWidth: 1.8 };
    return [
      Plot.line(own, { x, y: (point) => point.line.median / size, ...look, className: "curve" }),
      Plot.ruleX(own.filter((point) => point.line.low !== null), { x, y1: (point) => point.line.low / size, y2: (point) => point.line.high / size, stroke: lab.stroke(index) }),
      Plot.dot(own, { x, y: (point) => point.line.median / size, fill: lab.stroke(index), r: 3, title: (point) => `${point.line.name}: ${lab.digits(point.line.median / size)} ${unit}` }),
    ];
  });
  const plot = lab.plot(figure, {
    height: 260, marginLeft: 52, marginRight: 20, marginBottom: 36,
    x: { type: "point", domain: values.map((value) => said(group.name, value)), label: group.name.replaceAll("_", " ") },
    y: { zero: true, grid: true, label: unit },
    marks: [...marks, Plot.ruleY([0])],
  });
  const caption = document.createElement("figcaption");
  caption.textContent = group.title;
  lab.place(figure, `Scaling: ${group.title}`, caption, plot, lab.legend(series.map(([, points]) => points[0].series)));
};

/** Speed over the place on the disk. */
lab.zones = (data) => {
  const curves = [];
  for (const table of data.tables) {
    for (const line of table.lines.filter((line) => !line.floor)) {
      const runs = data.export.experiments[line.experiment].cases[line.case].runs;
      const phases = runs.flatMap((run) => run.phases.filter((phase) => phase.name === table.phase && phase.zones.length > 1));
      if (phases.length > 0) curves.push({ name: line.name, points: phases[0].zones });
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
      ...curves.map((curve, index) => Plot.line(curve.points, {
        x: (zone) => zone.offset_bytes / 1e9, y: (zone) => zone.bytes_per_second / 1e6,
        stroke: lab.stroke(index), strokeDasharray: lab.dash(index), strokeWidth: 1.8, className: "curve",
      })),
      Plot.ruleY([0]),
    ],
  });
  lab.place(figure, "Speed over the disk", plot, lab.legend(curves.map((curve) => curve.name)));
};
