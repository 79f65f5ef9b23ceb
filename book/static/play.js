/* Things to play with: sliders, a formula, a picture. Formulas first, then the page. */

"use strict";

const GB = 1e9;
const MODELS = {  // parameters, layers, width; 2,048 tokens in a sequence
  "1.3 billion": [1.3e9, 24, 2048],
  "7 billion": [6.7e9, 32, 4096],
  "13 billion": [13e9, 40, 5120],
  "70 billion": [69e9, 80, 8192],
};

/** Return bytes on a device, by kind: as memory() of ddp_lab/overview/road.py. */
function memory(t, c) {
  const micro = Math.ceil(t.sequences / c.data / c.rows);
  const tokens = c.rows * t.length;
  const layers = Math.ceil(t.layers / c.pipeline);
  const part = t.parameters * layers / t.layers / c.tensor;
  let weights = 2 * part, gradients = 2 * part, gathered = 0;
  const optimizer = 12 * part / c.shard;
  if (c.kind === "sharded") {
    gathered = 3 * weights / layers;
    weights /= c.shard;
    gradients /= c.shard;
  }
  const kept = tokens * 34 * t.width / c.tensor;
  const entered = tokens * 2 * t.width / c.tensor;
  const flying = layers * Math.min(c.pipeline, micro);
  const activations = flying * (c.recompute ? entered : kept) + (c.recompute ? kept : 0);
  return {weights, gradients, optimizer, gathered, activations};
}

/** Return the share of a step in which the p stages of a pipeline wait. */
function bubble(p, m, v) {
  return (p - 1) / (m * v + p - 1);
}

/* --- the page --- */

const SVG = "http://www.w3.org/2000/svg";
const COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9"];

/** Return a new element with some attributes, in `parent`. */
function put(parent, tag, attributes = {}, text = "") {
  const svg = tag === "svg" || parent.namespaceURI === SVG;
  const element = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  parent.append(element);
  return element;
}

/** Add a slider over some choices; return what is chosen. */
function slider(box, title, choices, start, changed) {
  const label = put(box, "label", {}, `${title}: `);
  const shown = put(label, "output", {}, choices[start]);
  const input = put(label, "input",
    {type: "range", min: 0, max: choices.length - 1, value: start});
  input.addEventListener("input", () => {
    shown.textContent = choices[input.value];
    changed();
  });
  return () => choices[input.value];
}

function playMemory(box) {
  const draw = () => show();
  const model = slider(box, "parameters", Object.keys(MODELS), 1, draw);
  const road = slider(box, "ranks with different rows have",
    ["all of it (DDP)", "a shard of the optimizer (ZeRO-1)", "a shard of all (ZeRO-3)"],
    2, draw);
  const data = slider(box, "such ranks", [1, 2, 4, 8, 16, 32, 64, 128, 256, 512], 3, draw);
  const tensor = slider(box, "ranks that cut each layer", [1, 2, 4, 8], 0, draw);
  const stages = slider(box, "stages", [1, 2, 4, 8], 0, draw);
  const rows = slider(box, "sequences of a micro-batch", [1, 2, 4, 8], 0, draw);
  const again = slider(box, "activations are", ["kept", "computed again"], 0, draw);
  const told = put(box, "p", {"aria-live": "polite"});
  const picture = put(box, "svg", {viewBox: "0 0 660 48", role: "img"});
  const legend = put(box, "p");

  function show() {
    const [parameters, layers, width] = MODELS[model()];
    const shards = road().startsWith("all") ? 1 : data();
    const kind = road().includes("ZeRO-3") ? "sharded" : "DDP";
    const sequences = data() * rows() * 8;  // a step of 8 micro-batches
    const bytes = memory({parameters, layers, width, length: 2048, sequences}, {
      kind, data: data(), shard: shards, tensor: tensor(), pipeline: stages(),
      rows: rows(), recompute: again() !== "kept",
    });
    const total = Object.values(bytes).reduce((sum, each) => sum + each, 0);
    const fits = total < 0.9 * 80 * GB ? "fits on" : "does not fit on";
    told.textContent = `${gb(total)} ${fits} a device of 80 GB (the line).`;
    picture.setAttribute("aria-label", told.textContent);
    picture.replaceChildren();
    legend.replaceChildren();
    const scale = 640 / Math.max(total, 80 * GB);
    let x = 10;
    Object.entries(bytes).forEach(([name, n], at) => {
      put(picture, "rect", {x, y: 8, width: n * scale, height: 32, fill: COLOURS[at]});
      put(legend, "span", {style: `color: ${COLOURS[at]}`, "aria-hidden": true}, "■ ");
      put(legend, "span", {}, `${name} ${gb(n)} `);
      x += n * scale;
    });
    const edge = 10 + 80 * GB * scale;
    put(picture, "line", {x1: edge, x2: edge, y1: 2, y2: 46, stroke: "currentColor"});
  }
  show();
}

function gb(bytes) {
  return `${(bytes / GB).toFixed(bytes < 10 * GB ? 1 : 0)} GB`;
}

function playBubble(box) {
  const counts = Array.from({length: 32}, (_, n) => n + 1);
  const p = slider(box, "stages p", counts.slice(0, 16), 3, () => show());
  const m = slider(box, "micro-batches m", counts, 7, () => show());
  const v = slider(box, "stages of each rank v", [1, 2, 4], 0, () => show());
  const told = put(box, "p", {"aria-live": "polite"});
  const picture = put(box, "svg", {role: "img"});

  function show() {
    const share = (100 * bubble(p(), m(), v())).toFixed(1);
    told.textContent = `(p − 1) / (m·v + p − 1) = ${p() - 1} / ${m() * v() + p() - 1}: `
      + `each rank waits for ${share} % of the time.`;
    picture.setAttribute("aria-label", told.textContent);
    picture.setAttribute("viewBox", `0 0 660 ${18 * p() + 8}`);
    picture.replaceChildren();
    const total = m() * v() + p() - 1, slot = 640 / total;
    for (let rank = 0; rank < p(); rank++) {  // forward: rank r begins after r slots
      for (let n = 0; n < m() * v(); n++) {
        put(picture, "rect", {x: 10 + (rank + n) * slot, y: 4 + 18 * rank,
          width: Math.max(slot - 1, 0.5), height: 14, fill: COLOURS[n % m() % 5]});
      }
    }
  }
  show();
}

document.addEventListener("DOMContentLoaded", () => {
  const makers = {"play-memory": playMemory, "play-bubble": playBubble};
  for (const [id, make] of Object.entries(makers)) {
    const box = document.getElementById(id);
    if (box) make(box);
  }
});
