// Joins controls, figures and tables. Figures that are folded away are drawn when they are opened.
"use strict";

lab.start = async () => {
  const began = performance.now();
  lab.data = await lab.unpack();
  const { tables } = lab.data;
  const [baseline, sort, filter] = ["baseline", "sort", "filter"].map((id) => document.getElementById(id));
  const sections = [...document.querySelectorAll("section.load")];

  const isShown = (line) => filter.value.toLowerCase().split(/\s+/).every((word) => line.name.toLowerCase().includes(word));
  const ORDERS = {
    // As the data have them: best first.
    value: () => 0,
    name: (a, b) => a.name.localeCompare(b.name, "en", { numeric: true }),
    cpu: (a, b) => (a.cpu ?? Infinity) - (b.cpu ?? Infinity),
  };
  const shownOf = (table) => {
    const places = d3.range(table.lines.length).filter((place) => isShown(table.lines[place]));
    return places.sort((a, b) => ORDERS[sort.value](table.lines[a], table.lines[b]) || a - b);
  };

  const drawOne = (figure) => {
    const table = tables[figure.closest("section").dataset.table];
    lab.charts[figure.dataset.chart](figure, table, shownOf(table), baseline.value || null);
  };
  const drawSection = (section) => {
    const table = tables[section.dataset.table];
    const shown = new Set(shownOf(table));
    for (const row of section.querySelectorAll("tr[data-line]")) row.hidden = !shown.has(Number(row.dataset.line));
    for (const figure of section.querySelectorAll("figure[data-chart]")) {
      if (!figure.closest("details:not([open])")) drawOne(figure);
    }
  };

  const all = document.getElementById("all");
  const scalings = lab.scalings(tables);
  const curves = lab.zones(lab.data);
  all.hidden = tables.length < 2;
  document.getElementById("scaling").hidden = scalings.length === 0;
  document.getElementById("zones").hidden = curves.length === 0;
  const figures = document.querySelector("#scaling .figures");
  figures.replaceChildren(...scalings.map(() => document.createElement("figure")));
  const drawOverall = () => {
    if (!all.hidden) lab.charts.parallel(all.querySelector("figure"), tables, isShown);
    scalings.forEach((group, index) => lab.charts.scaling(figures.children[index], group));
    if (curves.length > 0) lab.charts.zones(document.querySelector("#zones figure"), curves);
  };
  const draw = () => {
    sections.forEach(drawSection);
    drawOverall();
    const names = new Set(tables.flatMap((table) => table.lines.map((line) => line.name)));
    const left = new Set(tables.flatMap((table) => table.lines.filter(isShown).map((line) => line.name)));
    document.getElementById("shown").textContent = left.size < names.size ? `${left.size} of ${names.size} cases` : "";
  };

  for (const control of [baseline, sort]) control.addEventListener("change", draw);
  filter.addEventListener("input", draw);
  document.getElementById("controls").addEventListener("submit", (event) => event.preventDefault());
  for (const details of document.querySelectorAll("section.load details")) {
    details.addEventListener("toggle", () => details.open && details.querySelectorAll("figure").forEach(drawOne));
  }
  lab.sortByHeadings();
  lab.saves();
  lab.openForPrint();
  let width = document.body.clientWidth;
  new ResizeObserver(() => {
    if (document.body.clientWidth === width) return;
    width = document.body.clientWidth;
    draw();
  }).observe(document.body);
  for (const time of document.querySelectorAll("time[data-ms]")) {
    const date = new Date(Number(time.dataset.ms));
    time.dateTime = date.toISOString();
    time.textContent = `${date.toLocaleString()}, ${time.textContent}`;
  }
  draw();
  document.documentElement.dataset.ready = String(Math.round(performance.now() - began));
};

/** Tables are sorted by the heading that is pressed; once more turns the order. */
lab.sortByHeadings = () => {
  for (const button of document.querySelectorAll("th button")) {
    button.addEventListener("click", () => {
      const heading = button.closest("th");
      const [row, body] = [heading.parentElement, heading.closest("table").tBodies[0]];
      const turned = heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      const column = [...row.children].indexOf(heading);
      const sign = turned === "ascending" ? 1 : -1;
      const value = (line) => line.children[column].dataset.value;
      const number = (line) => (value(line) === undefined ? Infinity : Number(value(line)));
      const text = (line) => line.children[column].textContent;
      const isNumber = heading.classList.contains("number");
      const order = (a, b) => (isNumber ? number(a) - number(b) || 0 : text(a).localeCompare(text(b), "en", { numeric: true }));
      for (const other of row.children) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", turned);
      body.append(...[...body.rows].sort((a, b) => sign * order(a, b)));
    });
  }
};

/** The data as files. */
lab.saves = () => {
  const save = (name, type, text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  };
  document.getElementById("save-json").addEventListener("click", () => save("lab.json", "application/json", JSON.stringify(lab.data.export)));
  document.getElementById("save-csv").addEventListener("click", () => save("lab.csv", "text/csv", lab.csv()));
};

lab.csv = () => {
  const rows = [["case", "predicted", "load", "unit", "round", "value", "outlier", "steady"]];
  for (const table of lab.data.tables) {
    for (const line of table.lines) {
      for (const { round, value, outlier, steady } of line.repeats) {
        rows.push([line.name, line.predicted, table.title, table.unit, round, value, outlier, steady ?? ""]);
      }
    }
  }
  return d3.csvFormatRows(rows);
};

/** On paper nothing can be opened. */
lab.openForPrint = () => {
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("main details:not([open])")];
    for (const details of opened) details.open = true;
    for (const figure of document.querySelectorAll("section.load details figure")) {
      if (!figure.firstChild) figure.closest("details").dispatchEvent(new Event("toggle"));
    }
  });
  addEventListener("afterprint", () => opened.forEach((details) => (details.open = false)));
};

lab.start();
