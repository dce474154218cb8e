// The pictures of a sweep as plotly figures, from the data in the page; `marks.py` says the same.
"use strict";

const read = id => JSON.parse(document.getElementById(id).textContent);
const { grid, colours, classColours, cannot, missing, logSpan, leastElasticity } = read("grid");
const DIMS = grid.dims.map(dim => dim.name);
const SAMPLE = "sample", LATENCY = "latency_ns", UNEVALUATED = -1;
const knobOf = name => grid.knobs.find(knob => knob.name === name);
const titled = knob => knob.name + (knob.unit ? `, ${knob.unit}` : "");
const digits = { maximumSignificantDigits: 6 };
const shown = x => x === null ? "-" : x.toLocaleString("en", Number.isInteger(x) ? {} : digits);
const finite = values => values.flat().filter(x => x !== null);
const wide = values => {
  const low = Math.min(...values), high = Math.max(...values);
  return low > 0 && high > logSpan * low;
};

// Numbers of the points at a place, over `dims`: rows along the first, or one row.
function places(at, dims) {
  const strides = {}, sizes = {};
  let stride = 1;
  for (let i = DIMS.length - 1; i >= 0; i--) {
    strides[DIMS[i]] = stride;
    sizes[DIMS[i]] = grid.dims[i].size;
    stride *= grid.dims[i].size;
  }
  const held = DIMS.filter(dim => !dims.includes(dim));
  const start = held.reduce((sum, dim) => sum + at[dim] * strides[dim], 0);
  const along = (dim, from) => Array.from({ length: sizes[dim] }, (_, i) => from + i * strides[dim]);
  if (dims.length === 0) return [[start]];
  if (dims.length === 1) return [along(dims[0], start)];
  return along(dims[0], start).map(from => along(dims[1], from));
}

const taken = (rows, values) => rows.map(row => row.map(i => values[i]));

function leastOfColumns(y) {
  return y[0].map((_, j) => {
    const column = finite([y.map(row => row[j])]);
    return column.length ? Math.min(...column) : null;
  });
}

function overLeast(y, least) {
  return y.map(row => row.map((x, j) => x === null || least[j] === null ? null : x / least[j]));
}

// What a point is, in the text beside the pointer.
function about(i, quantity) {
  const index = {};
  let left = i;
  for (let d = DIMS.length - 1; d >= 0; d--) {
    index[DIMS[d]] = left % grid.dims[d].size;
    left = Math.floor(left / grid.dims[d].size);
  }
  const lines = grid.knobs.map(knob => `${knob.name}: ${knob.labels[index[knob.dim]]}`);
  const code = grid.codes[i];
  if (code === UNEVALUATED) return [...lines, "<b>not evaluated yet</b>"].join("<br>");
  if (code > 0) {
    const unit = { scratch_overflow: "bytes", over_cache: "tokens", past_context: "tokens" };
    const name = grid.code_names[code], gap = grid.gaps[i];
    const lacks = gap === null ? "" : `: ${shown(gap)} ${unit[name] ?? ""} too many`;
    return [...lines, `<b>cannot run, ${name}${lacks}</b>`].join("<br>");
  }
  const names = new Set([LATENCY, quantity].filter(name => name in grid.quantities));
  for (const name of names) {
    const { values, unit } = grid.quantities[name];
    lines.push(`<b>${name}: ${shown(values[i])} ${unit}</b>`);
  }
  if (grid.limits.length) lines.push(`limit: ${grid.limit_names[grid.limits[i]]}`);
  return lines.join("<br>");
}

function axisOf(knob, cells) {
  const title = { text: titled(knob) };
  if (cells || !knob.numeric) {
    const ticktext = knob.ticks.map(i => knob.labels[i]);
    return { title, tickvals: knob.ticks, ticktext, zeroline: false };
  }
  if (!knob.logarithmic) return { title };
  if (knob.dim !== knob.name) return { title, type: "log" };
  const tickvals = knob.ticks.map(i => knob.values[i]);
  return { title, type: "log", tickvals, ticktext: knob.ticks.map(i => knob.labels[i]) };
}

const numbersOf = knob => knob.numeric ? knob.values : knob.values.map((_, i) => i);

function quantityTitle(view) {
  if (view.relative) return `${view.quantity} over the best at each ${view.x}`;
  const { unit } = grid.quantities[view.quantity];
  return view.quantity + (unit ? `, ${unit}` : "");
}

const LAYOUT = { margin: { t: 20, r: 20 }, hovermode: "closest", template: "plotly_white" };
const trace = (name, rest) => ({ name, hovertemplate: "%{text}<extra></extra>", ...rest });

const draw = {};

draw.lines = ({ view }) => {
  const x = knobOf(view.x), by = view.by === x.dim ? null : view.by;
  const rows = places(view.at, by === null ? [x.dim] : [by, x.dim]);
  let y = taken(rows, grid.quantities[view.quantity].values);
  const names = Object.keys(grid.quantities).filter(n => n.startsWith("bound_ns."));
  let bounds = view.quantity === LATENCY ? names.map(n => taken(rows, grid.quantities[n].values)) : [];
  if (view.relative) {
    const least = leastOfColumns(y);
    y = overLeast(y, least);
    bounds = bounds.map(bound => overLeast(bound, least));
  }
  const across = numbersOf(x), sampled = x.dim !== x.name;
  const log = view.quantity === LATENCY && wide(finite(y));
  const every = finite([...y, ...bounds.flat()]).filter(v => !log || v > 0);
  const bottom = every.length ? Math.min(...every) : 1;
  const data = [];
  const dashed = (name, values, colour, rest) => data.push(trace(name, {
    x: across, y: values, mode: "lines", line: { dash: "dash", width: 1.2, color: colour },
    text: values.map(v => `${name}: ${shown(v)}`), ...rest,
  }));
  y.forEach((values, k) => {
    const name = by === null ? view.quantity : `${by} ${knobOf(by).labels[k]}`;
    const colour = colours[k % colours.length];
    data.push(trace(name, {
      x: across, y: values, mode: sampled ? "markers" : "lines+markers", legendgroup: name,
      marker: { color: colour, size: 6 }, line: { color: colour, width: 2 },
      text: rows[k].map(i => about(i, view.quantity)),
    }));
    if (y.length > 1 && bounds.length) {
      const most = values.map((_, j) => {
        const column = finite([bounds.map(bound => bound[k][j])]);
        return column.length ? Math.max(...column) : null;
      });
      dashed(`${name}: largest bound`, most, colour, { legendgroup: name, showlegend: false });
    }
    const failed = rows[k].map((_, j) => j).filter(j => grid.codes[rows[k][j]] > 0);
    if (failed.length) data.push(trace(`${name} cannot run`, {
      x: failed.map(j => across[j]), y: failed.map(() => bottom), mode: "markers",
      marker: { symbol: "x", color: colour, size: 8 }, legendgroup: name, showlegend: false,
      text: failed.map(j => about(rows[k][j], view.quantity)),
    }));
  });
  if (y.length === 1) names.slice(0, bounds.length).forEach((name, k) =>
    dashed(name.slice("bound_ns.".length), bounds[k][0], colours[(k + 1) % colours.length], {}));
  const yaxis = { title: { text: quantityTitle(view) }, type: log ? "log" : "linear" };
  if (log) yaxis.dtick = "D2";
  return { data, layout: { ...LAYOUT, xaxis: axisOf(x, false), yaxis, showlegend: true } };
};

// The points that a field shows: cells of two axes, or, of a sample, each where its knobs are.
function fieldOf(view, values) {
  const x = knobOf(view.x), y = knobOf(view.y ?? view.x);
  const dims = x.dim === y.dim ? [x.dim] : [y.dim, x.dim];
  const rows = places(view.at, dims), cells = !dims.includes(SAMPLE);
  let z = taken(rows, values);
  if (view.relative && cells && dims.length === 2) z = overLeast(z, leastOfColumns(z));
  const index = (knob, r, j) => dims.length === 2 && knob.dim === dims[0] ? r : j;
  const at = knob => rows.flatMap((row, r) => row.map((_, j) => numbersOf(knob)[index(knob, r, j)]));
  const layout = { ...LAYOUT, xaxis: axisOf(x, cells) };
  layout.yaxis = view.y === null || view.y === view.x
    ? { showticklabels: false, zeroline: false } : axisOf(y, cells);
  return { rows, z, cells, layout, x: cells ? null : at(x), y: cells ? null : at(y) };
}

// Points for which `chosen`, in one colour.
function patch(name, field, chosen, colour, quantity) {
  const text = field.rows.map(row => row.map(i => about(i, quantity)));
  if (field.cells) {
    const z = field.rows.map(row => row.map(i => chosen(i) ? 1 : null));
    if (!finite(z).length) return [];
    return [trace(name, {
      type: "heatmap", z, text, colorscale: [[0, colour], [1, colour]], showscale: false,
      showlegend: true, hoverongaps: false, xgap: 1, ygap: 1,
    })];
  }
  const which = field.rows.flat().map((i, k) => k).filter(k => chosen(field.rows.flat()[k]));
  if (!which.length) return [];
  const pick = values => which.map(k => values[k]);
  return [trace(name, {
    x: pick(field.x), y: pick(field.y), text: pick(text.flat()), mode: "markers",
    marker: { color: colour, size: 6, symbol: name === "cannot run" ? "x" : "circle" },
  })];
}

const grey = (field, quantity) => [
  ...patch("cannot run", field, i => grid.codes[i] > 0, cannot, quantity),
  ...patch("not evaluated yet", field, i => grid.codes[i] === UNEVALUATED, missing, quantity),
];

const LEGEND = { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 };

draw.map = ({ view }) => {
  const field = fieldOf(view, grid.quantities[view.quantity].values);
  const good = finite(field.z), log = wide(good);
  const scaled = x => x === null ? null : log ? Math.log10(x) : x;
  const bar = { title: { text: quantityTitle(view), side: "right" } };
  if (log) {
    const low = Math.min(...good), high = Math.max(...good), ticks = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high); e++)
      for (const m of [1, 2, 5]) {
        const tick = m * 10 ** e;
        if (tick >= low && tick <= high) ticks.push(tick);
      }
    Object.assign(bar, { tickvals: ticks.map(Math.log10), ticktext: ticks.map(shown) });
  }
  const text = field.rows.map(row => row.map(i => about(i, view.quantity)));
  const main = field.cells
    ? { type: "heatmap", z: field.z.map(row => row.map(scaled)), text, colorscale: "Viridis",
        colorbar: bar, hoverongaps: false, xgap: 1, ygap: 1 }
    : { x: field.x, y: field.y, text: text.flat(), mode: "markers", showlegend: false,
        marker: { color: field.z.flat().map(scaled), colorscale: "Viridis", colorbar: bar,
          showscale: true, size: 6 } };
  const data = [trace(view.quantity, main), ...grey(field, view.quantity)];
  return { data, layout: { ...field.layout, legend: LEGEND } };
};

draw.classes = ({ view }) => {
  const field = fieldOf(view, grid.limits);
  const data = grid.limit_names.flatMap((name, k) => patch(
    name, field, i => grid.limits[i] === k && grid.codes[i] === 0, classColours[name], LATENCY));
  return { data: [...data, ...grey(field, LATENCY)], layout: { ...field.layout, legend: LEGEND } };
};

draw.bars = ({ view }) => {
  const [[i]] = places(view.at, []);
  const found = Object.entries(grid.quantities)
    .filter(([name]) => name.startsWith("elasticity."))
    .map(([, { title, values }]) => [title, values[i]])
    .filter(([, x]) => x !== null && Math.abs(x) >= leastElasticity)
    .sort((a, b) => Math.abs(a[1]) - Math.abs(b[1]));
  const x = found.map(bar => bar[1]);
  const data = [trace("elasticity", {
    type: "bar", orientation: "h", x, y: found.map(bar => bar[0]), marker: { color: colours[0] },
    text: x.map(v => v.toFixed(3)), hovertemplate: "%{y}: %{x:.3f}<extra></extra>",
  })];
  const why = found.length ? [] : [{
    text: about(i, LATENCY), showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5,
  }];
  const layout = { ...LAYOUT, xaxis: { title: { text: "elasticity of latency" } }, annotations: why };
  return { data, layout: { ...layout, yaxis: { automargin: true } } };
};

draw.front = ({ view, fronts }) => {
  const { at, fronts: found } = fronts.loads[loadOf(view, fronts)];
  const cost = view.cost, { unit, more } = fronts.costs[cost];
  const points = grid.codes.map((_, i) => i).filter(i =>
    grid.codes[i] === 0 && Object.entries(at).every(([dim, k]) => indexAlong(i, dim) === k));
  const valued = i => cost in grid.quantities
    ? grid.quantities[cost].values[i] : knobOf(cost).values[indexAlong(i, knobOf(cost).dim)];
  const y = points.map(i => grid.quantities[LATENCY].values[i]);
  const best = found[cost];
  const data = [
    trace("all designs", {
      x: points.map(valued), y, mode: "markers", marker: { color: cannot, size: 4 },
      text: points.map(i => about(i, cost)),
    }),
    trace("front", {
      x: best.map(p => p.x), y: best.map(p => p.y), mode: "lines+markers",
      line: { shape: more ? "vh" : "hv", color: colours[0] }, marker: { size: 8 },
      text: best.map(p => `${cost}: ${shown(p.x)}<br>${LATENCY}: ${shown(p.y)}<br>${p.text}`),
    }),
  ];
  const across = `${cost}${unit && unit !== "1" ? `, ${unit}` : ""}`;
  const title = { text: `${across} (${more ? "more" : "less"} is better)` };
  const xaxis = { ...(knobOf(cost) ? axisOf(knobOf(cost), false) : {}), title };
  const yaxis = { title: { text: "latency_ns, ns" } };
  if (wide(y)) Object.assign(yaxis, { type: "log", dtick: "D2" });
  return { data, layout: { ...LAYOUT, xaxis, yaxis } };
};

function loadOf(view, fronts) {
  return fronts.loads.findIndex(({ at }) => Object.entries(at).every(([dim, k]) => view.at[dim] === k));
}

function indexAlong(i, dim) {
  const d = DIMS.indexOf(dim);
  const stride = grid.dims.slice(d + 1).reduce((n, each) => n * each.size, 1);
  return Math.floor(i / stride) % grid.dims[d].size;
}
