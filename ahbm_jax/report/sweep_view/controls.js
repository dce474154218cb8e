// What a reader of the page can change: drop-downs, boxes and sliders beside each picture.
"use strict";

// A drop-down or a box for an entry of a view.
function labelled(text, input) {
  const label = document.createElement("label");
  label.append(text, input);
  return label;
}

function choice(picture, name, redraw) {
  const values = picture.options[name];
  if (typeof values[0] === "boolean") {
    const box = document.createElement("input");
    Object.assign(box, { type: "checkbox", checked: picture.view[name] });
    box.onchange = () => { picture.view[name] = box.checked; redraw(); };
    return labelled("over the best at each x ", box);
  }
  const select = document.createElement("select");
  values.forEach((value, i) => select.append(new Option(value ?? "none", i)));
  select.value = values.indexOf(picture.view[name]);
  select.onchange = () => { picture.view[name] = values[select.value]; redraw(); };
  return labelled(`${name} `, select);
}

function slider(name, labels, get, set) {
  const input = Object.assign(document.createElement("input"), {
    type: "range", min: 0, max: labels.length - 1, value: get(),
  });
  const value = document.createElement("output");
  const update = () => { value.textContent = ` ${labels[get()]}`; };
  input.oninput = () => { set(Number(input.value)); update(); };
  input.dataset.dim = name;
  update();
  const label = labelled(`${name} `, input);
  label.append(value);
  return label;
}

function labelsOf(dim) {
  const knobs = grid.knobs.filter(knob => knob.dim === dim);
  return knobs[0].labels.map((_, i) => dim === SAMPLE
    ? `${i}: ${knobs.map(knob => `${knob.name} ${knob.labels[i]}`).join(", ")}`
    : knobs[0].labels[i]);
}

function sliders(picture, redraw) {
  const { view, fronts } = picture;
  if (fronts) {
    const labels = fronts.loads.map(({ at }) => Object.entries(at)
      .map(([dim, i]) => `${dim} ${knobOf(dim).labels[i]}`).join(", "));
    return labels.length < 2 ? [] : [
      slider("load", labels, () => loadOf(view, fronts), k => {
        Object.assign(view.at, fronts.loads[k].at);
        redraw();
      }),
    ];
  }
  const drawn = ["x", "y", "by"].filter(k => view[k]).map(k => knobOf(view[k]).dim);
  return grid.dims.filter(dim => dim.size > 1 && !drawn.includes(dim.name)).map(dim =>
    slider(dim.name, labelsOf(dim.name), () => view.at[dim.name], k => {
      view.at[dim.name] = k;
      redraw();
    }));
}

function save(name, value) {
  const blob = new Blob([JSON.stringify(value)], { type: "application/json" });
  const link = Object.assign(document.createElement("a"), {
    href: URL.createObjectURL(blob), download: name,
  });
  link.click();
  URL.revokeObjectURL(link.href);
}

function show(section) {
  const picture = read(`picture-${section.id}`);
  if (!(picture.kind in draw)) return;
  const plot = section.querySelector(".plot"), controls = section.querySelector(".controls");
  const movable = document.createElement("div");
  let dims = null;
  const redraw = () => {
    const { data, layout } = draw[picture.kind](picture);
    Plotly.react(plot, data, layout, { responsive: true, displaylogo: false });
    const now = JSON.stringify(["x", "y", "by"].map(k => picture.view[k]));
    if (now !== dims) movable.replaceChildren(...sliders(picture, redraw));
    dims = now;
  };
  controls.append(...Object.keys(picture.options).map(name => choice(picture, name, redraw)), movable);
  section.querySelector(".save").onclick = () =>
    save(`${picture.name}.json`, draw[picture.kind](picture));
  section.picture = picture;
  section.redraw = redraw;
  redraw();
}

document.querySelectorAll("section").forEach(show);
