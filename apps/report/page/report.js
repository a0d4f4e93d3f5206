// Draws a page out of the JSON in it (apps/report/report.h), and keeps that of `heed serve` up to date. What the JSON
// says becomes text of the page, never markup.
(() => {
"use strict";
const root = document.documentElement, page = JSON.parse(document.getElementById("page").textContent);
const css = name => getComputedStyle(root).getPropertyValue(name).trim();
// Adds an element, "kind.class", at the end of another.
const add = (to, what, text) => {
  const [kind, name] = what.split("."), e = document.createElement(kind);
  if (name) e.className = name;
  if (text !== undefined) e.textContent = text;
  return to.appendChild(e);
};
const button = (to, text, title, pressed) => {
  const e = add(to, "button", text);
  e.type = "button"; e.title = title; e.setAttribute("aria-pressed", pressed);
  return e;
};
const details = (to, title) => {
  const e = add(to, "details");
  add(e, "summary", title);
  return e;
};
// Rows of texts, the first of them as head; of `kind` "table.words" they are words, not numbers.
const table = (to, rows, kind = "table") => {
  const e = add(add(to, "div.wide"), kind);
  rows.forEach((row, i) => {
    const line = add(e, "tr");
    row.forEach((cell, c) => { add(line, i ? "td" : "th", cell).dataset.column = rows[0][c]; });
  });
};
const figures = (value, count) => String(Number(value.toPrecision(count)));
const number = value => Math.abs(value) < 1e5 ? figures(value, 4) : String(Math.round(value));
// A share, as the metrics are given everywhere.
const share = value => value.toFixed(3);
const clock = seconds => {
  const s = Math.round(seconds), pad = n => String(n).padStart(2, "0");
  return s < 3600 ? `${Math.floor(s / 60)}:${pad(s % 60)}` : `${Math.floor(s / 3600)}:${pad(Math.floor(s / 60) % 60)}:${pad(s % 60)}`;
};
const metrics = list => list.map(([name, value]) => `${name} ${number(value)}`).join(", ");
const bytesOf = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
const canvas = (to, width, height, label) => {
  const e = add(to, "canvas");
  e.width = width; e.height = height; e.setAttribute("role", "img"); e.setAttribute("aria-label", label);
  return e;
};
// Colours the pixels of a canvas: red, green, blue and opacity of each.
const paint = (e, pixels) => {
  const context = e.getContext("2d"), image = context.createImageData(e.width, e.height);
  pixels.forEach((pixel, i) => image.data.set(pixel, 4 * i));
  context.putImageData(image, 0, 0);
};
// A line of input: an image, or a text, of which tabs part columns.
const line = (to, {text, bytes, image}) => {
  if (image) {
    const e = canvas(to, image.columns, image.rows, `image of ${image.rows} x ${image.columns}`);
    e.className = "image";
    return paint(e, [...bytesOf(image.pixels)].map(grey => [grey, grey, grey, 255]));
  }
  text.split("\t").forEach((column, i) => {
    if (i) add(to, "span.muted", " | ");
    add(to, "span", column);
  });
  if (bytes) add(to, "small", ` … (${bytes} bytes)`);
};

// --- charts: {kind, title, remark, x, y, series: [{name, points: [[x, y, seconds of training], ...]}, ...]}

if (window.Chart) {
  const defaults = Chart.defaults;
  defaults.font.size = 12;
  defaults.font.family = getComputedStyle(document.body).fontFamily;
  defaults.animation = false;
  defaults.maintainAspectRatio = false;
  defaults.locale = "en";
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
}
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
// Lines from the low to the high end of each mark.
const errorBars = {id: "errorBars", afterDatasetsDraw({ctx, data, scales}) {
  ctx.save();
  for (const set of data.datasets) for (const {x, low, high} of set.hidden ? [] : set.data) {
    if (!(high > low)) continue;
    const across = scales.x.getPixelForValue(x);
    ctx.strokeStyle = set.borderColor;
    ctx.beginPath();
    ctx.moveTo(across, scales.y.getPixelForValue(low)); ctx.lineTo(across, scales.y.getPixelForValue(high));
    ctx.stroke();
  }
  ctx.restore();
}};
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
// What differs by less than a hundredth is shown as what hardly differs; a tenth of all examples at the least, where the
// values are shares of these, so that two texts make no trend.
const range = (values, areShares) => {
  const low = Math.min(...values), high = Math.max(...values), size = Math.max(Math.abs(low), Math.abs(high));
  if (areShares && high - low < 0.1) {
    const from = Math.min(Math.max((low + high) / 2 - 0.05, 0), 0.9);
    return {min: from, max: from + 0.1};
  }
  if (high - low >= 0.01 * size && high > low) return {};
  if (!size) return {min: 0, max: 1};
  return {suggestedMin: (low + high) / 2 - 0.05 * size, suggestedMax: (low + high) / 2 + 0.05 * size};
};

const KINDS = {
  lines: {
    type: "line", selects: "each",
    place: ({raw}) => `step ${raw.step}, ${clock(raw.seconds)}`,
    label({chart, raw}) {
      const first = chart.getActiveElements()[0];
      const elsewhere = first && chart.data.datasets[first.datasetIndex].data[first.index].step !== raw.step;
      return figures(raw.y, 5) + (elsewhere ? ` (step ${raw.step})` : "");
    }},
  marks: {
    type: "scatter", selects: "nearest",
    place: () => "",
    label: ({raw}, {x, y}) => `${y} ${figures(raw.y, 5)}, ${x} ${figures(raw.x, 5)}`}};

let groups = [];
// Charts side by side. With `oneLegend`, all have the same series, and their common legend hides one in all of them.
class Charts {
  constructor(to, charts, oneLegend) {
    Object.assign(this, {oneLegend, byTime: false, log: false, smooth: false, hidden: new Set(), drawn: new Map()});
    if (charts.some(one => one.kind === "lines")) {
      const tools = add(to, "div.tools");
      const tool = (text, title, key) => {
        const e = button(tools, text, title, false);
        e.onclick = () => { this[key] = !this[key]; e.setAttribute("aria-pressed", this[key]); this.show(); };
      };
      tool("over time", "Wall-clock time of training on the x axis, not steps", "byTime");
      tool("log scale", "Logarithmic y axes, of what is positive and differs by more than a factor of 2", "log");
      tool("smooth", "Moving averages; what was measured stays behind them", "smooth");
    }
    if (oneLegend) {
      const legend = add(to, "div.legend");
      charts[0].series.forEach((one, i) => {
        const e = button(legend, one.name, "Hide or show", true);
        e.style.setProperty("--line", `var(--s${i % 8})`);
        e.onclick = () => { this.toggle(this.hidden, i); e.setAttribute("aria-pressed", !this.hidden.has(i)); };
      });
    }
    this.box = add(to, "div.charts");
    this.show(charts);
    groups.push(this);
  }
  toggle(hidden, series) {
    if (!hidden.delete(series)) hidden.add(series);
    this.show();
  }
  // Draws the charts, which may be newer ones; what the reader chose stays.
  show(charts = this.charts) {
    this.charts = charts;
    for (const [title, {chart, figure}] of this.drawn) {
      if (charts.some(data => data.title === title)) continue;
      chart.destroy();
      figure.remove();
      this.drawn.delete(title);
    }
    charts.forEach((data, i) => {
      const one = this.drawn.get(data.title) ?? this.begin(data.title);
      one.caption.textContent = data.title;
      if (data.remark) add(one.caption, "small", ` ${data.remark}`);
      const config = this.config(data, one.hidden);
      if (one.chart) {
        one.chart.setActiveElements([]);
        one.chart.tooltip.setActiveElements([], {x: 0, y: 0});
        one.chart.data = config.data;
        one.chart.options = config.options;
        one.chart.update();
      } else {
        one.chart = new Chart(one.canvas, config);
      }
      if (this.box.children[i] !== one.figure) this.box.insertBefore(one.figure, this.box.children[i]);
    });
  }
  begin(title) {
    const figure = add(this.box, "figure"), caption = add(figure, "figcaption");
    const one = {figure, caption, canvas: canvas(add(figure, "div.canvas"), 300, 150, title), hidden: this.oneLegend ? this.hidden : new Set()};
    this.drawn.set(title, one);
    return one;
  }
  datasets({kind, series}, hidden) {
    const lines = kind === "lines", most = Math.max(...series.map(one => one.points.length));
    return series.flatMap((one, i) => {
      const color = css(`--s${i % 8}`), points = one.points.map(p => lines ? {x: this.byTime ? p[2] : p[0], y: p[1], step: p[0], seconds: p[2]} : {x: p[0], y: p[1], low: p[2], high: p[3]});
      const set = {label: one.name, series: i, data: points, hidden: hidden.has(i), borderColor: color, backgroundColor: color,
        borderWidth: 1.6, borderDash: i < 8 ? [] : [6, 3], pointRadius: lines && most > 40 ? 0 : lines ? 2.5 : 5, pointHoverRadius: 5};
      if (!lines || !this.smooth || points.length < 3) return set;
      return [{...set, faint: true, borderColor: color + "44", backgroundColor: color + "44", pointRadius: 0}, {...set, data: smoothed(points), pointRadius: 0}];
    });
  }
  config(data, hidden) {
    const {kind, x, y, series} = data, {type, selects, place, label} = KINDS[kind], lines = kind === "lines";
    const values = series.flatMap((one, i) => hidden.has(i) ? [] : lines ? one.points.map(p => p[1]) : one.points.flatMap(p => p.slice(1)));
    const low = Math.min(...values), high = Math.max(...values), isLog = lines && this.log && values.length > 0 && low > 0 && high > 2 * low;
    const color = css("--muted"), grid = {color: css("--grid"), borderColor: css("--line-soft")};
    const ticks = {color, maxRotation: 0, autoSkipPadding: 14}, title = text => ({display: true, text, color});
    // Three digits, or as many as tell neighbouring ticks apart.
    const digits = (value, i, all) => {
      const step = Math.abs(all[1]?.value - all[0].value) || 1;
      return figures(value, Math.min(Math.max(Math.ceil(Math.log10(Math.max(Math.abs(value), step) / step)) + 1, 3), 12));
    };
    const xScale = {type: data.log ? "logarithmic" : "linear", ticks: lines ? {precision: 0, ...this.byTime && {callback: clock}} : {}};
    const yScale = isLog
      ? {type: "logarithmic", ticks: {autoSkip: false, callback: v => (high < 100 * low ? /^[1235]/ : /^1/).test(v.toExponential()) ? figures(v, 5) : ""}}
      : {type: "linear", ...range(values, lines && SHARES.has(y))};
    const datasets = this.datasets(data, hidden);
    return {
      type,
      data: {datasets},
      plugins: [crosshair, errorBars],
      options: {
        parsing: false,
        interaction: {mode: selects, intersect: false},
        scales: {
          x: {...xScale, grid, title: title(lines && this.byTime ? "training time (min:s)" : x), ticks: {...ticks, ...xScale.ticks}},
          y: {...yScale, grid, title: title(isLog ? `${y} (log scale)` : y), ticks: {...ticks, autoSkipPadding: 6, callback: digits, ...yScale.ticks}}},
        plugins: {
          legend: {display: series.length > 1 && !this.oneLegend,
            labels: {color: css("--ink"), boxWidth: 12, boxHeight: 12, filter: item => !datasets[item.datasetIndex].faint},
            onClick: (event, item) => this.toggle(hidden, datasets[item.datasetIndex].series)},
          tooltip: {callbacks: {title: items => place(items[0], data), label: item => `${item.dataset.label || y}: ${label(item, data)}`}}}}};
  }
}

// --- how training went: {name, curves: [name, ...], rows: [[step, seconds, curve, value, curve, value, ...], ...]}

const isMeasured = name => name.startsWith("validation ");
// Losses, parts of the loss, metrics, everything else.
const rank = name => ["training loss", "validation loss"].includes(name) ? 0 : name.startsWith("part of the loss: ") ? 1 : isMeasured(name) ? 2 : 3;
const SHARES = new Set(["accuracy", "macro_f1", "micro_f1", "f1", "exact match", "auc", "map", "mrr", "ndcg5", "ndcg10"]);
const unit = name => rank(name) < 2 ? "loss" : name === "peak memory in MB" ? "MB" : name.replace(/^validation /, "");
// Its curves by name, those of the most interest first.
const read = ({name, curves, rows}) => {
  const points = curves.map(() => []);
  for (const [step, seconds, ...values] of rows)
    for (let i = 0; i < values.length; i += 2) points[values[i]].push([step, values[i + 1], seconds]);
  const places = curves.map((curve, i) => i).sort((a, b) => rank(curves[a]) - rank(curves[b]));
  return {name, curves: new Map(places.map(i => [curves[i], points[i]]))};
};
// A chart for each curve, with that of each run; of a single run, both losses share one.
const chartsOf = runs => {
  const names = [...new Set(runs.flatMap(run => [...run.curves.keys()]))].sort((a, b) => rank(a) - rank(b));
  const chart = (title, series, remark) => ({kind: "lines", title, remark, x: "step", y: unit(title), series});
  if (runs.length > 1) return names.map(name => chart(name, runs.map(run => ({name: run.name, points: run.curves.get(name) ?? []}))));
  const {curves} = runs[0], losses = names.filter(name => !rank(name)).sort(), shared = losses.length === 2;
  const charts = shared ? [chart("loss", losses.map(name => ({name, points: curves.get(name)})))] : [];
  for (const name of names)
    if (!shared || rank(name)) charts.push(chart(name, [{name: "", points: curves.get(name)}], `last ${number(curves.get(name).at(-1)[1])}`));
  return charts;
};
// Of many steps `most`, evenly spread, half of them evaluations.
const numbers = (to, {curves}, most) => {
  const names = [...curves.keys()], rows = new Map();
  names.forEach((name, i) => curves.get(name).forEach(([step, value, seconds]) => {
    if (!rows.has(step)) rows.set(step, [String(step), clock(seconds), ...names.map(() => "")]);
    rows.get(step)[i + 2] = number(value);
  }));
  const spread = (list, count) => list.length <= count ? list
    : Array.from({length: count}, (_, i) => list[Math.round(i * (list.length - 1) / Math.max(count - 1, 1))]);
  const measured = row => names.some((name, i) => isMeasured(name) && row[i + 2]), all = [...rows.values()];
  const evaluations = spread(all.filter(measured), most / 2), others = spread(all.filter(row => !measured(row)), most - evaluations.length);
  table(to, [["step", "time", ...names], ...[...evaluations, ...others].sort((a, b) => a[0] - b[0])]);
  if (evaluations.length + others.length < all.length) add(to, "p.muted", `${evaluations.length + others.length} of ${all.length} steps.`);
};

// Why the loss in training may be the larger one.
const remarkOn = curves => {
  const [training, validation] = ["training loss", "validation loss"].map(name => curves.get(name)?.at(-1)?.[1]);
  return training > validation
    ? "The training loss lies above the validation loss because it is measured with dropout and label smoothing, over the steps before; the validation loss without them, where there is a moving average with the averaged weights."
    : "";
};

class Curves {
  constructor(to, runs) {
    this.box = add(to, "div");
    this.renew(runs);
  }
  renew(runs) {
    const all = runs.map(read), charts = chartsOf(all);
    if (!charts.length) return this.box.textContent = "Nothing has been recorded yet.";
    if (this.group) {
      this.group.show(charts);
    } else {
      this.box.textContent = "";
      this.group = new Charts(this.box, charts, runs.length > 1);
      this.remark = runs.length === 1 && add(this.box, "p.muted");
      this.tables = all.map(run => add(details(this.box, runs.length > 1 ? `The numbers of ${run.name}` : "The numbers"), "div"));
    }
    if (this.remark) this.remark.textContent = remarkOn(all[0].curves);
    all.forEach((run, i) => {
      this.tables[i].textContent = "";
      numbers(this.tables[i], run, runs.length > 1 ? 10 : 40);
    });
  }
}

// --- attention maps: of each example an overview of all heads, and one head large

const weights = head => Float32Array.from(bytesOf(head.cells), byte => byte / 255 * head.most);
const mean = all => all[0].map((_, i) => all.reduce((sum, one) => sum + one[i], 0) / all.length);
const token = (tokens, i) => !tokens ? String(i + 1) : tokens[i].replace(/\n/g, "\\n").replace(/\t/g, "\\t").trim() || "␣";
const short = text => [...text].length > 11 ? [...text].slice(0, 10).join("") + "…" : text;
// Where one text ends and another begins: behind the end mark of the first.
const dividers = (tokens, count) => !tokens ? [] : tokens.slice(0, count).flatMap((one, i) =>
  ["</s>", "[SEP]", "<sep>"].includes(one.trim()) && i + 1 < count && tokens[i + 1].trim() !== "<pad>" ? [i + 1] : []);
let thumbs = [];
// The colour of a weight: all maps of an example have one scale, on which small weights are not lost.
const strength = (weight, most) => most > 0 ? Math.sqrt(Math.min(weight / most, 1)) : 0;
const shade = () => {
  const color = css("--accent").split(/\s+/).map(Number);
  for (const {e, cells, most} of thumbs) paint(e, [...cells].map(w => [...color, Math.round(255 * strength(w, most))]));
};
const shape = (to, kind, attributes, text) => {
  const e = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (text) e.textContent = text;
  return to.appendChild(e);
};
const large = (box, readout, example, map, name, cells, most) => {
  box.textContent = "";
  const rows = example.tokens[map.row_tokens], columns = example.tokens[map.column_tokens];
  const cell = Math.max(map.rows, map.columns) > 24 ? 14 : 20, left = 92, top = 78;
  const svg = shape(box, "svg", {class: "large", width: left + map.columns * cell + 40, height: top + map.rows * cell + 4, role: "img", "aria-label": name});
  shape(svg, "text", {x: 0, y: 14}, "from ↓ to →");
  const labels = [[], []];
  for (let i = 0; i < map.rows; ++i)
    labels[0].push(shape(svg, "text", {x: left - 6, y: top + (i + .5) * cell + 4, "text-anchor": "end"}, short(token(rows, i))));
  for (let j = 0; j < map.columns; ++j)
    labels[1].push(shape(svg, "text", {transform: `translate(${left + (j + .5) * cell + 4},${top - 6}) rotate(-55)`}, short(token(columns, j))));
  for (let i = 0; i < map.rows; ++i) for (let j = 0; j < map.columns; ++j) {
    const e = shape(svg, "rect", {class: "cell", x: left + j * cell, y: top + i * cell, width: cell - 1, height: cell - 1,
      "fill-opacity": strength(cells[i * map.columns + j], most).toFixed(3)});
    e.at = [i, j];
  }
  for (const i of dividers(rows, map.rows)) shape(svg, "line", {class: "divider", x1: left, x2: left + map.columns * cell, y1: top + i * cell - .5, y2: top + i * cell - .5});
  for (const j of dividers(columns, map.columns)) shape(svg, "line", {class: "divider", x1: left + j * cell - .5, x2: left + j * cell - .5, y1: top, y2: top + map.rows * cell});
  svg.onpointerover = svg.onpointerdown = event => {
    svg.querySelectorAll(".on").forEach(e => e.classList.remove("on"));
    if (!event.target.at) return;
    const [i, j] = event.target.at;
    for (const e of [event.target, labels[0][i], labels[1][j]]) e.classList.add("on");
    readout.textContent = `${token(rows, i)} → ${token(columns, j)}: ${figures(cells[i * map.columns + j], 3)}`;
  };
};
const maps = (to, example) => {
  const box = add(to, "div.maps"), overview = add(box, "div.overview"), detail = add(box, "div");
  const most = Math.max(...example.maps.flatMap(map => map.heads.map(head => head.most)));
  const grid = add(overview, "table"), top = add(grid, "tr");
  const title = add(detail, "p.chosen"), name = add(title, "b"), readout = add(title, "span.read"), view = add(detail, "div.wide");
  const scale = add(overview, "div.scale");
  add(scale, "span", "weight 0");
  thumbs.push({e: canvas(scale, 128, 1, "the scale"), cells: Float32Array.from({length: 128}, (_, i) => i / 127 * most), most});
  add(scale, "span", figures(most, 3));

  const widest = Math.max(...example.maps.map(map => map.heads.length));
  add(top, "th"); add(top, "th", "mean");
  for (let h = 0; h < widest; ++h) add(top, "th", widest > 4 ? String(h) : `head ${h}`);
  let chosen;
  const thumb = (row, map, label, cells) => {
    const choose = button(add(row, "td"), "", label, false), size = 44 / Math.max(map.rows, map.columns);
    choose.setAttribute("aria-label", label);
    const e = canvas(choose, map.columns, map.rows, label);
    e.style.width = Math.max(map.columns * size, 8) + "px"; e.style.height = Math.max(map.rows * size, 8) + "px";
    thumbs.push({e, cells, most});
    choose.onclick = () => {
      chosen?.setAttribute("aria-pressed", false);
      chosen = choose;
      choose.setAttribute("aria-pressed", true);
      name.textContent = label; readout.textContent = "point at a cell to read its weight";
      large(view, readout, example, map, label, cells, most);
    };
    return choose;
  };
  const stacks = new Map();  // layers of one stack, which have a mean
  for (const map of example.maps) {
    const key = [map.name.replace(/\d+/g, ""), map.row_tokens, map.column_tokens, map.rows, map.columns].join("|");
    stacks.set(key, [...stacks.get(key) ?? [], map]);
  }
  const strongest = new Map();  // by tokens that look: what each of them looks at most
  let first;
  for (const layers of stacks.values()) {
    for (const map of layers) {
      const row = add(grid, "tr"), heads = map.heads.map(weights);
      map.mean = mean(heads);
      add(row, "td", map.name);
      const e = thumb(row, map, `${map.name}, mean over ${heads.length} heads`, map.mean);
      first ??= e;
      heads.forEach((cells, h) => thumb(row, map, `${map.name}, head ${h}`, cells));
      const key = `${map.row_tokens}|${map.rows}`, rows = example.tokens[map.row_tokens];
      if (!strongest.has(key)) strongest.set(key, [["token"], ...Array.from({length: map.rows}, (_, i) => [token(rows, i)])]);
      strongest.get(key).forEach((cells, i) => {
        if (!i) return cells.push(map.name);
        const own = map.mean.slice((i - 1) * map.columns, i * map.columns), best = Math.max(...own);
        cells.push(`${token(example.tokens[map.column_tokens], own.indexOf(best))} ${figures(best, 2)}`);
      });
    }
    if (layers.length === 1) continue;
    const row = add(grid, "tr");
    add(row, "td", "mean over layers");
    thumb(row, layers[0], `${layers[0].name.replace(/ ?\d+/, "s")}, mean over ${layers.length} layers and all heads`, mean(layers.map(map => map.mean)));
  }
  first.click();
  const tables = details(to, "What each token looks at most, in the mean over the heads, and its weight");
  for (const rows of strongest.values()) table(tables, rows);
};

// --- texts in the colours of clusters, buckets or weights

const explanations = {
  weight: "No token looks at another here, so there is no map. Each head adds up all tokens, each with a weight: the queries to one " +
    "vector, with which it weighs the keys, and these to another, which every token meets. The stronger the colour, the larger the weight.",
  bucket: "Each round hashes the tokens into buckets, so that like ones tend to share one, and a token looks within its bucket: the " +
    "maps have what all rounds allow. It looks at itself only where there is nothing else.",
  cluster: "Like tokens are sorted into clusters, and look within their own."};
const strips = (to, example, {kind, all, shown}) => {
  add(to, "h4", (kind === "weight" ? "Weights of the tokens" : `Tokens of one colour share a ${kind}`) +
    (shown.length < all ? ` (the first ${shown.length} of ${all})` : ""));
  add(to, "p.muted", explanations[kind]);
  for (const {name, tokens, values} of shown) {
    const strip = add(to, "div.strip"), most = Math.max(...values, 1e-30);
    add(strip, "span.name", name);
    const text = add(strip, "div");
    values.forEach((value, i) => {
      const e = add(text, "span", token(example.tokens[tokens], i));
      e.title = `${kind} ${number(value)}`;
      e.className = kind === "weight" ? "t w" : "t k";
      if (kind === "weight") e.style.setProperty("--w", Math.max(0, value / most).toFixed(3));
      else e.style.setProperty("--h", Math.round((value * 137.508 + 210) % 360));  // the golden angle: neighbours get colours far apart
    });
  }
};

// --- what a section can hold: its members are the names of these

const expected = (to, label, one) => {
  const box = add(to, "div.labels", `${label} `);
  line(add(box, "b"), one);
};
const matrix = (to, names, confusion) => {
  const numbered = names.join("").length > 60;
  add(to, "p.muted", "A row for each class that was expected, a column for each that was predicted; the shade is the share of its row.");
  const box = add(add(to, "div.wide"), "table.confusion"), above = add(box, "tr"), head = add(box, "tr");
  add(above, "th");
  add(above, "th.side", "predicted").colSpan = names.length;
  add(head, "th.side", "expected");
  names.forEach((name, i) => { add(head, "th", numbered ? i + 1 : name).title = name; });
  confusion.forEach((counts, i) => {
    const row = add(box, "tr"), all = counts.reduce((a, b) => a + b, 0);
    add(row, "th.class", numbered ? `${i + 1} ${names[i]}` : names[i]);
    counts.forEach((count, j) => {
      const cell = add(row, i === j ? "td.right" : "td", count);
      if (!count) return;
      cell.style.setProperty("--w", (0.75 * count / all).toFixed(3));
      cell.title = share(count / all);
    });
  });
};
const blocks = {
  text: (to, text) => add(to, "p", text),
  remark: (to, text) => add(to, "p.muted", text),
  notes: (to, text) => add(to, "p.notes", text),
  not_shown: (to, why) => add(to, "p.muted", `Not shown: ${why}`),
  table: (to, rows) => table(to, rows),
  compact: (to, rows) => table(add(to, "div.compact"), rows),
  words: (to, rows) => table(to, rows, "table.words"),
  configuration: (to, text) => add(details(to, "All settings"), "pre", text),
  curves: (to, runs) => new Curves(to, runs),
  charts: (to, charts) => new Charts(to, charts, true),
  summary(to, {step, steps, epoch, seconds, best}) {
    if (step === undefined) return add(to, "p", "Nothing has been recorded yet.");
    const found = best ? ` Kept: the weights of step ${best.step}, ${metrics(best.metrics)}.` : "";
    add(to, "p", `Step ${step} of ${steps}, epoch ${epoch}, ${clock(seconds)} of training.${found}`);
  },
  measured: (to, one) => add(to, "p", `On the ${one.part} part, ${one.count} examples: ${metrics(one.metrics)}.`),
  classes(to, {figures: rows, confusion, pairs}) {
    add(to, "h3", "Classes");
    table(to, [["class", "texts", "precision", "recall", "F1"], ...rows.map(([name, texts, ...shares]) => [name, texts, ...shares.map(share)])]);
    if (confusion || pairs) add(to, "h3", "Confusion");
    if (confusion) matrix(to, rows.map(row => row[0]), confusion);
    if (!pairs) return;
    add(to, "p.muted", `${rows.length} classes are too many for a matrix; the ${pairs.length} pairs that are confused most:`);
    table(to, [["expected", "predicted", "texts"], ...pairs]);
  },
  mistakes(to, {all, count, shown}) {
    add(add(to, "h3", "Mistakes "), "small", `${shown.length < all ? "the most confident of " : ""}${all} in ${count}`);
    const list = add(to, "ol.mistakes");
    for (const one of shown) {
      const item = add(list, "li"), labels = add(item, "div.labels", "predicted ");
      add(labels, "b", one.predicted);
      labels.append(` (${share(one.probability)}), expected `);
      add(labels, "b", one.expected);
      line(item, one.line);
    }
  },
  written(to, examples) {
    const list = add(to, "ol.mistakes");
    for (const one of examples) {
      const item = add(list, "li");
      line(item, one.source);
      expected(item, "expected", one.expected);
      expected(item, "written", one.answer);
    }
  },
  said(to, {text, probability, step}) {
    const box = add(to, "p.said");
    add(box, "b", text);
    if (probability > 0) box.append(` ${share(probability)}`);
    add(to, "p.muted", `Answered with the weights of step ${step}.`);
  },
  examples(to, {shown, all}) {
    if (shown.some(one => one.maps.length))
      add(to, "p", "Every small square is a head: a row for each token that looks, a column for each token that is looked at. " +
        "Choose one to see it large. All maps of an example share one scale.");
    for (const one of shown) {
      const box = add(to, "section.example");
      add(box, "h3", one.name.replace(/^(lines|samples)\.(\d+)(?:-(.+))?$/, (_, kind, i, part) =>
        `${kind === "lines" ? "Line" : "Text"} ${Number(i) + 1}${part ? `, ${part} text` : ""}`));
      if (one.line) {
        const answered = add(box, "p.text");
        line(answered, one.line);
        add(answered, "b", ` → ${one.answer}`);
        if (one.probability > 0) add(answered, "small", ` probability ${number(one.probability)}`);
      }
      if (one.maps.length) maps(box, one);
      one.strips.forEach(kind => strips(box, one, kind));
      if (one.left_out) add(box, "p.muted", `Shown: ${one.left_out}.`);
    }
    if (shown.length < all) add(to, "p.muted", `${all} texts were looked at; the first ${shown.length} are shown.`);
    shade();
  },
};
const show = (to, sections) => {
  for (const {title, ...members} of sections) {
    if (title) add(to, "h2", title);
    for (const [name, value] of Object.entries(members)) blocks[name](to, value);
  }
};
const clear = box => {
  const [gone, kept] = [true, false].map(inside => groups.filter(group => box.contains(group.box) === inside));
  gone.forEach(group => group.drawn.forEach(one => one.chart.destroy()));
  groups = kept;
  thumbs = thumbs.filter(one => !box.contains(one.e));
  box.textContent = "";
};

// --- the page of heed serve, the other side of apps/cli/serve.cpp

const serve = ({fields, version, state, summary, curves, settings}) => {
  const at = (to, what, id) => Object.assign(add(to, what), {id}), body = document.body, token = location.search;
  const now = at(body, "p", "state"), come = at(body, "div", "summary");
  now.textContent = state;
  show(come, [{summary}]);
  add(body, "h2", "Ask it");
  const form = at(body, "form", "ask"), answer = at(body, "div", "answer");
  const texts = fields.map(name => add(add(form, "label", name), "textarea"));
  texts.forEach(field => { field.rows = 2; });
  const send = add(form, "button", "Answer");
  add(body, "h2", "Curves");
  const drawn = new Curves(at(body, "div", "curves"), curves);
  show(body, settings);
  add(body, "h2", "What the model does");
  const model = at(body, "details", "model");
  add(model, "summary", "Quality, answers, maps and weights, measured when this is opened");
  const measured = add(model, "div");

  const ask = async (path, options) => {
    const reply = await fetch(path, options).catch(() => { throw new Error("heed serve does not answer; has it ended?"); });
    const said = await reply.json();
    if (!reply.ok) throw new Error(said.error);
    return said;
  };
  const note = (box, text) => {
    clear(box);
    add(box, "p.muted", text);
  };
  const fill = async (box, waiting, path, options) => {
    note(box, waiting);
    try {
      const {sections} = await ask(path + token, options);
      clear(box);
      show(box, sections);
    } catch (error) {
      note(box, error.message);
    }
  };
  const measure = () => fill(measured, "The model is being measured …", "model");
  model.ontoggle = () => { if (model.open) measure(); };

  let training = true;
  const follow = async () => {
    try {
      const news = await ask(`state${token}&have=${version}`);
      now.textContent = news.state;
      if (news.version !== version) {
        clear(come);
        show(come, [{summary: news.summary}]);
        drawn.renew(news.curves);
      }
      version = news.version;
      // What the model does is shown without being asked for once training has ended.
      if (training && !news.training) { if (model.open) measure(); else model.open = true; }
      training = news.training;
    } catch (error) {
      now.textContent = `This page is out of date: ${error.message}`;
    }
    setTimeout(follow, 3000);
  };
  follow();

  form.onkeydown = event => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  };
  form.onsubmit = async event => {
    event.preventDefault();
    if (send.disabled) return;
    send.disabled = true;
    const body = JSON.stringify({parts: texts.map(field => field.value)});
    await fill(answer, "…", "answer", {method: "POST", headers: {"Content-Type": "application/json"}, body});
    send.disabled = false;
  };
};

const {title, task, score, sections, live} = page;
document.title = task ? `${title}: ${task}` : title;
const heading = add(document.body, "h1", title);
if (task) add(heading, "small", ` ${task}${score ? `, ${score}` : ""}`);
if (live) serve(live);
else show(document.body, sections);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  groups.forEach(group => group.show());
  shade();
});
})();
