// Draws the charts of a page (training/report.h) with Chart.js: each from the data in its figure.
(() => {
"use strict";
const root = document.documentElement, defaults = Chart.defaults;
root.classList.add("js");
const css = name => getComputedStyle(root).getPropertyValue(name).trim();
const add = (to, kind, text) => { const e = document.createElement(kind); e.textContent = text; return to.appendChild(e); };
defaults.font.size = 12;
defaults.font.family = getComputedStyle(document.body).fontFamily;
defaults.animation = false;
defaults.maintainAspectRatio = false;
defaults.locale = "en";

const number = value => String(Number(value.toPrecision(5)));
const clock = seconds => {
  const s = Math.round(seconds), pad = n => String(n).padStart(2, "0");
  return s < 3600 ? `${Math.floor(s / 60)}:${pad(s % 60)}` : `${Math.floor(s / 3600)}:${pad(Math.floor(s / 60) % 60)}:${pad(s % 60)}`;
};
// Exponential moving average: after a twentieth of the points a value has half its weight.
const smoothed = points => {
  const keep = Math.pow(0.5, Math.min(1, 20 / points.length));
  let mean = 0, weight = 0;
  return points.map(p => {
    mean = keep * mean + (1 - keep) * p.y;
    weight = keep * weight + (1 - keep);
    return {...p, y: mean / weight};
  });
};
// What differs by less than a hundredth is shown as what hardly differs.
const range = values => {
  const low = Math.min(...values), high = Math.max(...values), size = Math.max(Math.abs(low), Math.abs(high));
  if (high - low >= 0.01 * size && high > low) return {};
  if (!size) return {min: 0, max: 1};
  return {suggestedMin: (low + high) / 2 - 0.05 * size, suggestedMax: (low + high) / 2 + 0.05 * size};
};

// Of every curve the point nearest to the pointer's x.
Chart.Interaction.modes.each = (chart, event) => {
  const {x} = Chart.helpers.getRelativePosition(event, chart), found = [];
  chart.data.datasets.forEach((set, datasetIndex) => {
    if (set.faint || !set.data.length || !chart.isDatasetVisible(datasetIndex)) return;
    const elements = chart.getDatasetMeta(datasetIndex).data;
    let index = 0;
    elements.forEach((e, i) => { if (Math.abs(e.x - x) < Math.abs(elements[index].x - x)) index = i; });
    found.push({element: elements[index], datasetIndex, index});
  });
  return found.sort((a, b) => Math.abs(a.element.x - x) - Math.abs(b.element.x - x));
};
const crosshair = {id: "crosshair", afterDatasetsDraw(chart) {
  const active = chart.getActiveElements()[0];
  if (!active) return;
  const {ctx, chartArea: area} = chart, {x, y} = active.element;
  ctx.save();
  ctx.strokeStyle = css("--muted"); ctx.lineWidth = 1; ctx.setLineDash([3, 3]);
  ctx.beginPath();
  ctx.moveTo(x, area.top); ctx.lineTo(x, area.bottom); ctx.moveTo(area.left, y); ctx.lineTo(area.right, y);
  ctx.stroke();
  ctx.restore();
}};

const titleOf = figure => figure.querySelector("canvas").getAttribute("aria-label");

class Drawing {
  constructor(figure, group) {
    this.group = group;
    this.figure = figure;
    this.title = titleOf(figure);
    this.hidden = group.oneLegend ? group.hidden : new Set();
    this.data = JSON.parse(figure.querySelector("script").textContent);
    this.chart = new Chart(figure.querySelector("canvas"), this.config());
  }
  // Takes over the data of a newer figure of the same title.
  take(newer) {
    this.data = JSON.parse(newer.querySelector("script").textContent);
    this.figure.querySelector("figcaption").replaceWith(newer.querySelector("figcaption"));
    this.chart.setActiveElements([]);
    this.chart.tooltip.setActiveElements([], {x: 0, y: 0});
    return this.figure;
  }
  toggle(series) {
    if (!this.hidden.delete(series)) this.hidden.add(series);
    this.group.draw();
  }
  config() {
    const {kind, x, y} = this.data, {byTime, log, smooth} = this.group, {hidden} = this, lines = kind === "lines";
    const values = this.data.series.flatMap((one, i) => hidden.has(i) ? [] : one.points.map(p => p[1]));
    const isLog = lines && log && values.length > 0 && Math.min(...values) > 0 && Math.max(...values) > 2 * Math.min(...values);
    const most = Math.max(...this.data.series.map(one => one.points.length));
    const datasets = [];
    this.data.series.forEach((one, i) => {
      const color = css(`--s${i % 8}`), points = one.points.map(p => ({x: lines && byTime ? p[2] : p[0], y: p[1], step: p[0], seconds: p[2]}));
      const set = {label: one.name, series: i, data: points, hidden: hidden.has(i), borderColor: color, backgroundColor: color,
        borderWidth: 1.6, borderDash: i < 8 ? [] : [6, 3], pointRadius: lines && most > 40 ? 0 : lines ? 2.5 : 5, pointHoverRadius: 5};
      if (kind === "bars") Object.assign(set, {backgroundColor: color + "55", borderWidth: 1, grouped: false, barPercentage: 1, categoryPercentage: 1});
      const isSmooth = lines && smooth && points.length > 2;
      if (isSmooth) datasets.push({...set, faint: true, borderColor: color + "44", backgroundColor: color + "44", pointRadius: 0});
      datasets.push(isSmooth ? {...set, data: smoothed(points), pointRadius: 0} : set);
    });
    const color = css("--muted"), grid = {color: css("--grid"), borderColor: css("--line-soft")};
    const ticks = {color, maxRotation: 0, autoSkipPadding: 14};
    const title = text => ({display: true, text, color});
    const xScale = kind === "bars"
      ? {type: "category", labels: this.data.series[0].points.map(p => number(p[0])), offset: true}
      : {type: "linear", ticks: lines ? {precision: 0, ...byTime && {callback: clock}} : {}};
    const yScale = isLog
      ? {type: "logarithmic", ticks: {autoSkip: false, callback: v => (Math.max(...values) < 100 * Math.min(...values) ? /^[1235]/ : /^1/).test(v.toExponential()) ? number(v) : ""}}
      : kind === "bars" ? {type: "linear", beginAtZero: true} : {type: "linear", ...range(values)};
    return {
      type: kind === "bars" ? "bar" : kind === "marks" ? "scatter" : "line",
      data: {datasets: kind === "bars" ? datasets.map(set => ({...set, data: set.data.map(p => p.y)})) : datasets},
      plugins: kind === "bars" ? [] : [crosshair],
      options: {
        parsing: kind === "bars" ? undefined : false,
        interaction: kind === "lines" ? {mode: "each", intersect: false} : kind === "marks" ? {mode: "nearest", intersect: false} : {mode: "index", intersect: false},
        scales: {
          x: {...xScale, grid, title: title(lines && byTime ? "training time (min:s)" : x), ticks: {...ticks, ...xScale.ticks}},
          y: {...yScale, grid, title: title(isLog ? `${y} (log scale)` : y), ticks: {...ticks, autoSkipPadding: 6, ...yScale.ticks}}},
        plugins: {
          legend: {display: this.data.series.length > 1 && !this.group.oneLegend,
            labels: {color: css("--ink"), boxWidth: 12, boxHeight: 12, filter: (item, data) => !data.datasets[item.datasetIndex].faint},
            onClick: (event, item) => this.toggle(this.chart.data.datasets[item.datasetIndex].series)},
          tooltip: {callbacks: {title: items => this.place(items[0]), label: item => this.label(item)}}}}};
  }
  place(item) {
    const {kind, series} = this.data;
    if (kind === "lines") return `step ${item.raw.step}, ${clock(item.raw.seconds)}`;
    if (kind === "marks") return "";
    const points = series[0].points, i = item.dataIndex;
    return i + 1 < points.length ? `${number(points[i][0])} to ${number(points[i + 1][0])}` : `${number(points[i][0])} and more`;
  }
  label(item) {
    const {kind, x, y} = this.data, name = item.dataset.label || y;
    if (kind === "bars") return `${name}: ${number(item.raw)}`;
    if (kind === "marks") return `${name}: ${y} ${number(item.raw.y)}, ${x} ${number(item.raw.x)}`;
    const first = this.chart.getActiveElements()[0];
    const elsewhere = first && this.chart.data.datasets[first.datasetIndex].data[first.index].step !== item.raw.step;
    return `${name}: ${number(item.raw.y)}${elsewhere ? ` (step ${item.raw.step})` : ""}`;
  }
  draw() {
    const {data, options} = this.config();
    this.chart.data = data;
    this.chart.options = options;
    this.chart.update();
  }
}

class Group {
  constructor(box) {
    this.box = box;
    this.byTime = this.log = this.smooth = false;
    this.hidden = new Set();
    this.oneLegend = box.classList.contains("one-legend");
    const lines = [...box.querySelectorAll("figure.chart")].map(figure => new Drawing(figure, this));
    this.drawings = lines;
    const before = name => { const row = document.createElement("div"); row.className = name; return box.parentNode.insertBefore(row, box); };
    if (lines.some(one => one.data.kind === "lines")) {
      const tools = before("tools");
      const button = (text, title, key) => {
        const e = add(tools, "button", text);
        e.type = "button"; e.title = title; e.setAttribute("aria-pressed", false);
        e.onclick = () => { this[key] = !this[key]; e.setAttribute("aria-pressed", this[key]); this.draw(); };
      };
      button("over time", "Wall-clock time of training on the x axis, not steps", "byTime");
      button("log scale", "Logarithmic y axes, of what is positive and differs by more than a factor of 2", "log");
      button("smooth", "Moving averages; what was measured stays behind them", "smooth");
    }
    if (this.oneLegend && lines.length) {
      const legend = before("legend");
      lines[0].data.series.forEach((one, i) => {
        const e = add(legend, "button", one.name);
        e.type = "button"; e.title = "Hide or show"; e.style.setProperty("--line", `var(--s${i % 8})`); e.setAttribute("aria-pressed", true);
        e.onclick = () => { lines[0].toggle(i); e.setAttribute("aria-pressed", !this.hidden.has(i)); };
      });
    }
  }
  // Shows the charts of a newer box; what the reader chose stays.
  renew(newer) {
    const {box} = this, known = new Map(this.drawings.map(one => [one.title, one]));
    const figures = [...newer.querySelectorAll("figure.chart")].map(figure => known.get(titleOf(figure))?.take(figure) ?? figure);
    for (const one of this.drawings) if (!figures.includes(one.figure)) { one.chart.destroy(); one.figure.remove(); }
    figures.forEach((figure, i) => { if (box.children[i] !== figure) box.insertBefore(figure, box.children[i] ?? null); });
    this.drawings = figures.map(figure => this.drawings.find(one => one.figure === figure) ?? new Drawing(figure, this));
    this.draw();
  }
  draw() { this.drawings.forEach(one => one.draw()); }
}

let groups = [];
// For pages that change while they are read (live.js).
window.heedCharts = {
  draw(part) {
    for (const gone of groups.filter(group => !group.box.isConnected)) gone.drawings.forEach(one => one.chart.destroy());
    groups = groups.filter(group => group.box.isConnected);
    part.querySelectorAll(".charts").forEach(box => groups.push(new Group(box)));
  },
  renew(box, newer) { groups.find(group => group.box === box).renew(newer); },
};
heedCharts.draw(document);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => groups.forEach(group => group.draw()));
})();
