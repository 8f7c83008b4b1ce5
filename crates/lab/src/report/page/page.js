// Joins controls, matrix, tables and charts. Charts are drawn when they are looked at.
"use strict";

lab.start = async () => {
  const began = performance.now();
  lab.data = await lab.unpack();
  const { tables } = lab.data;
  const [baseline, filter] = ["baseline", "filter"].map((id) => document.getElementById(id));
  const isShown = (name) => filter.value.toLowerCase().split(/\s+/).every((word) => name.toLowerCase().includes(word));
  const shownOf = (table) => d3.range(table.lines.length).filter((place) => isShown(table.lines[place].name));

  lab.prepareTotals(tables, (line) => isShown(line.name));
  const draw = (figure) => {
    const table = tables[figure.closest("section").dataset.table];
    if (table) lab.charts[figure.dataset.chart](figure, table, shownOf(table));
    else figure.draw?.();
  };
  const isOpen = (figure) => figure.firstChild && !figure.closest("details:not([open])") && !figure.closest("[hidden]");
  const redraw = () => [...document.querySelectorAll("figure[data-chart]")].filter(isOpen).forEach(draw);

  const filterRows = () => {
    for (const row of document.querySelectorAll(".matrix tbody tr, .figures tbody tr")) {
      row.hidden = !isShown(row.querySelector("th").textContent);
    }
    const names = new Set(tables.flatMap((table) => table.lines.filter((line) => !line.floor).map((line) => line.name)));
    const shown = [...names].filter(isShown).length;
    document.getElementById("shown").textContent = shown === names.size ? "" : `${shown} of ${names.size} shown`;
  };
  filter.addEventListener("input", () => (filterRows(), redraw()));
  baseline.addEventListener("change", () => lab.compareWith(baseline.value || null));
  document.getElementById("controls").addEventListener("submit", (event) => event.preventDefault());

  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting && !target.firstChild) draw(target);
    }
  }, { rootMargin: "600px" });
  document.querySelectorAll("figure[data-chart]").forEach((figure) => seen.observe(figure));
  for (const details of document.querySelectorAll("section.load details")) {
    details.addEventListener("toggle", () => details.open && details.querySelectorAll("figure").forEach(draw));
  }
  lab.sortByHeadings();
  lab.saves();
  lab.openForPrint(draw);
  let width = document.body.clientWidth;
  new ResizeObserver(() => {
    if (document.body.clientWidth === width) return;
    width = document.body.clientWidth;
    redraw();
  }).observe(document.body);
  for (const time of document.querySelectorAll("time[data-ms]")) {
    time.textContent = new Date(Number(time.dataset.ms)).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  }
  for (const link of document.querySelectorAll(".contents a")) {
    const to = document.querySelector(link.hash);
    if (!to || to.hidden) link.remove();
  }
  for (const hidden of document.querySelectorAll("#controls, .buttons")) hidden.hidden = false;
  // Where it was to begin was decided before rows and charts were there.
  if (location.hash) document.querySelector(location.hash)?.scrollIntoView();
  document.documentElement.dataset.ready = String(Math.round(performance.now() - began));
};

/** Makes the figures over all loads, for what there is. */
lab.prepareTotals = (tables, isShown) => {
  const shown = (group) => ({ ...group, points: group.points.filter((point) => isShown(point.line)) });
  const scaling = document.getElementById("scaling");
  const add = (draw) => {
    const figure = document.createElement("figure");
    figure.dataset.chart = "scaling";
    figure.draw = () => draw(figure);
    scaling.querySelector(".figures").append(figure);
  };
  for (const group of lab.scalings(tables)) {
    add((figure) => lab.charts.scaling(figure, shown(group)));
    if (group.where === "load" && group.name === "queue_depth") {
      add((figure) => lab.charts.saturation(figure, shown(group)) || figure.replaceChildren("No latency is known of those shown."));
    }
    scaling.hidden = false;
  }
  const curves = lab.zones(lab.data);
  const zones = document.getElementById("zones");
  zones.hidden = curves.length === 0;
  zones.querySelector("figure").draw = () => lab.charts.zones(zones.querySelector("figure"), curves.filter(({ line }) => isShown(line)));
};

const SIGNS = { "no real difference": "≈ ", "cannot tell": "~ " };
const CLASSES = { "no real difference": "same", "cannot tell": "open", "the same": "best" };

/** What a line is to the baseline, or to the best of its load. */
lab.standing = (table, place, baseline) => {
  const base = baseline === null ? table.best : table.lines.findIndex((line) => line.name === baseline);
  return base === null || base < 0 ? null : lab.speed(table, place, base);
};

/** Matrix and tables in per cent of a case of that name; of the best without one. */
lab.compareWith = (baseline) => {
  const { tables } = lab.data;
  for (const cell of document.querySelectorAll(".matrix td[data-table]")) {
    const found = lab.standing(tables[cell.dataset.table], Number(cell.dataset.line), baseline);
    lab.fillShare(cell, found);
  }
  for (const section of document.querySelectorAll("section.load")) lab.compareLoad(section, tables[section.dataset.table], baseline);
  const told = document.querySelector(".key .told");
  told.textContent = baseline === null ? "per cent of the best of each load" : `per cent of ${baseline}: blue is slower, amber is faster, pale is alike`;
};

lab.fillShare = (cell, found) => {
  const [ratio, , , verdict] = found ?? [NaN, null, null, "cannot tell"];
  const isFaster = ratio > 1 && verdict === "higher";
  cell.className = `share ${isFaster ? "above" : (CLASSES[verdict] ?? "real")}`;
  cell.style.setProperty("--p", found ? Math.min(100, isFaster ? Math.log2(ratio) * 50 : ratio * 100) : 0);
  cell.dataset.value = ratio;
  const text = found ? `${SIGNS[verdict] ?? ""}${Math.round(ratio * 100).toLocaleString("en")}` : "–";
  (cell.querySelector("a") ?? cell).textContent = text;
};

/** One load's bars against a baseline, the fastest first. */
lab.compareLoad = (section, table, baseline) => {
  const rows = [...section.querySelectorAll(".figures tbody tr")];
  const found = new Map(rows.map((row) => [row, lab.standing(table, Number(row.dataset.line), baseline)]));
  const ends = [...found.values()].filter((one) => one).map(([ratio, , high]) => high ?? ratio);
  const far = Math.max(1, ...(baseline === null ? [Math.min(1.5, Math.max(...ends))] : [...found.values()].map((one) => (one ? one[0] * 1.05 : 1))));
  const at = (value) => Math.max(0, Math.min(100, (value / far) * 100));
  for (const [row, one] of found) {
    const [text, track] = [row.querySelector(".share-of"), row.querySelector(".track")];
    text.textContent = one ? `${SIGNS[one[3]] ?? ""}${lab.digits(one[0] * 100)}` : "";
    text.dataset.value = one?.[0] ?? "";
    if (!track) continue;
    track.style.setProperty("--w", one ? at(one[0]) : 0);
    track.style.setProperty("--base", at(1));
    const has = one && one[1] !== null && one[3] !== "the same";
    let rule = track.querySelector("b");
    if (!rule) rule = track.appendChild(document.createElement("b"));
    rule.hidden = !has;
    if (has) {
      track.style.setProperty("--low", at(one[1]));
      track.style.setProperty("--high", at(one[2]));
    }
  }
  section.querySelector("thead th:nth-child(2) button").textContent = baseline === null ? "% of best" : `% of ${baseline}`;
  const order = (row) => found.get(row)?.[0] ?? -1;
  section.querySelector(".figures tbody").append(...rows.sort((a, b) => order(b) - order(a)));
};

/** Tables are sorted by the heading that is pressed; once more turns the order. */
lab.sortByHeadings = () => {
  for (const heading of document.querySelectorAll(".matrix thead th, .figures thead th:not(.bars)")) {
    const button = document.createElement("button");
    button.type = "button";
    if (heading.querySelector("a")) {
      button.setAttribute("aria-label", `sort by ${heading.querySelector("a").textContent}`);
      heading.querySelector("a").after(button);
    } else {
      button.append(...heading.childNodes);
      if (!button.textContent) button.setAttribute("aria-label", "sort by name");
      heading.append(button);
    }
    button.addEventListener("click", () => lab.sortBy(heading));
  }
};

lab.sortBy = (heading) => {
  const [row, body] = [heading.parentElement, heading.closest("table").tBodies[0]];
  const isNumber = heading.classList.contains("number");
  const column = [...row.children].indexOf(heading);
  // Of numbers the largest are asked for first, of names the first.
  const [first, second] = isNumber ? ["descending", "ascending"] : ["ascending", "descending"];
  const turned = heading.getAttribute("aria-sort") === first ? second : first;
  const sign = turned === "ascending" ? 1 : -1;
  const text = (line) => line.children[column].textContent;
  const number = (line) => Number.parseFloat(line.children[column].dataset.value);
  const order = (a, b) => {
    if (!isNumber) return sign * text(a).localeCompare(text(b), "en", { numeric: true });
    const [x, y] = [number(a), number(b)];
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
    return sign * (x - y);
  };
  for (const other of row.children) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", turned);
  body.append(...[...body.rows].sort(order));
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
        rows.push([line.name, line.predicted, table.title, table.unit, round + 1, value, outlier, steady ?? ""]);
      }
    }
  }
  return d3.csvFormatRows(rows);
};

/** On paper nothing can be opened. */
lab.openForPrint = (draw) => {
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("section.load details:not([open])")];
    for (const details of opened) details.open = true;
    for (const figure of document.querySelectorAll("figure[data-chart]")) {
      if (!figure.firstChild && !figure.closest("[hidden]")) draw(figure);
    }
  });
  addEventListener("afterprint", () => opened.forEach((details) => (details.open = false)));
};

lab.start();
