/* Things to play with: sliders, a formula, a picture. Formulas first, then the page.

Sliders, and what a device holds, are those of figs/planner.js. */

"use strict";

const MODELS = {  // parameters, layers, width; 2,048 tokens in a sequence
  "1.3 billion": [1.3e9, 24, 2048],
  "7 billion": [6.7e9, 32, 4096],
  "13 billion": [13e9, 40, 5120],
  "70 billion": [69e9, 80, 8192],
};

/** Return the share of a step in which the p stages of a pipeline wait. */
function bubble(p, m, v) {
  return (p - 1) / (m * v + p - 1);
}

/** Return seconds of an all-reduce in five ways, by name: as formulas() of book/costs.py. */
function costs(n, size, inside, across, node) {
  const takes = (wire, bytes) => wire.alpha + wire.beta * bytes;
  const nodes = n / node, near = Math.log2(node), far = Math.log2(nodes);
  const fast = takes(inside, size), slow = takes(across, size);
  let halves = 0;
  for (let k = 1; k <= near + far; k++) {
    halves += takes(k <= near ? inside : across, size / 2 ** k);
  }
  return {
    to_root: 2 * ((node - 1) * fast + (n - node) * slow),
    tree: 2 * (near * fast + far * slow),
    ring: 2 * (n - 1) * takes(nodes > 1 ? across : inside, size / n),
    halving: 2 * halves,
    two_level: 2 * (node - 1) * fast + 2 * (nodes - 1) * takes(across, size / nodes),
  };
}

/* --- the page --- */

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
    const total = sum(bytes);
    const fits = total < 0.9 * 80 * GB ? "fits on" : "does not fit on";
    told.textContent = `${gb(total)} ${fits} a device of 80 GB (the line).`;
    picture.setAttribute("aria-label", told.textContent);
    const scale = 640 / Math.max(total, 80 * GB);
    drawParts(picture, legend, bytes, scale, COLORS, gb);
    const edge = 10 + 80 * GB * scale;
    put(picture, "line", {x1: edge, x2: edge, y1: 2, y2: 46, stroke: "currentColor"});
  }
  show();
}

function playBubble(box) {
  const counts = Array.from({length: 32}, (_, n) => n + 1);
  const p = slider(box, "stages p", counts.slice(0, 16), 3, () => show());
  const m = slider(box, "micro-batches m", counts, 7, () => show());
  const v = slider(box, "stages of each rank v", [1, 2, 4], 0, () => show());
  const told = put(box, "p", {"aria-live": "polite"});
  const frame = put(box, "div", {style: "overflow-x: auto", tabindex: 0});
  const picture = put(frame, "svg", {role: "img", style: "min-width: 600px"});

  function show() {
    const share = (100 * bubble(p(), m(), v())).toFixed(1);
    told.textContent = `(p − 1) / (m·v + p − 1) = ${p() - 1} / ${m() * v() + p() - 1}: `
      + `each rank waits for ${share} % of the time.`;
    picture.setAttribute("aria-label", told.textContent);
    picture.setAttribute("viewBox", `0 0 660 ${18 * p() + 8}`);
    picture.replaceChildren();
    const total = m() * v() + p() - 1, left = 58, slot = (650 - left) / total;
    const write = (text, x, rank, anchor) => put(picture, "text", {x, y: 15 + 18 * rank,
      "font-size": 11, "text-anchor": anchor, fill: "currentColor"}, text);
    for (let rank = 0; rank < p(); rank++) {  // forward: rank r begins after r slots
      write(`rank ${rank}`, left - 6, rank, "end");
      for (let n = 0; n < m() * v(); n++) {
        const x = left + (rank + n) * slot, batch = String(n % m());
        put(picture, "rect", {x, y: 4 + 18 * rank, width: Math.max(slot - 1, 0.5), height: 14,
          fill: COLORS[rank % 8], "fill-opacity": 0.35});
        if (slot > 7 * batch.length) write(batch, x + slot / 2, rank, "middle");
      }
    }
  }
  show();
}

const WAYS = {  // the name, the formula where all wires are alike, how it is drawn
  to_root: ["to a root and back", "2(n − 1)(α + βS)", "", 0],
  tree: ["a tree", "2 log₂n (α + βS)", "7 4", 1],
  ring: ["a ring", "2(n − 1)(α + βS/n)", "", 2],
  halving: ["halving and doubling", "2 log₂n α + 2βS(n − 1)/n", "2 3", 3],
  two_level: ["two levels", "2(g − 1)(α + βS) inside, 2(m − 1)(α + βS/m) between", "9 3 2 3", 4],
};
const DARK = ["#0072B2", "#B87700", "#008F6B", "#B85C94", "#3D8FC4"];

function amount(value, units, base) {
  let at = 0;
  while (value >= base && at < units.length - 1) { value /= base; at += 1; }
  return `${Number(value.toPrecision(3))} ${units[at]}`;
}
const bytes = value => amount(value, ["B", "KB", "MB", "GB"], 1024);
const time = seconds => amount(seconds * 1e6, ["µs", "ms", "s"], 1000);

/** Draw the five costs as lines over `xs`, on logarithmic axes, with `here` marked. */
function chart(box, xs, here, label, shown, of) {
  const picture = put(put(box, "div", {class: "ddp-chart"}), "svg",
    {viewBox: "0 0 660 250", role: "img", "aria-label": `seconds over ${label}`});
  const ys = xs.map(of), all = ys.flatMap(y => Object.values(y)).filter(y => y > 0);
  const low = Math.floor(Math.log10(Math.min(...all)));
  const high = Math.ceil(Math.log10(Math.max(...all)));
  const x = value => 70 + 570 * Math.log(value / xs[0]) / Math.log(xs.at(-1) / xs[0]);
  const y = value => 205 - 190 * (Math.log10(value) - low) / (high - low || 1);
  const words = {"font-size": 12, fill: "currentColor"};
  for (let power = low; power <= high; power++) {
    const at = y(10 ** power);
    put(picture, "line", {x1: 70, x2: 640, y1: at, y2: at, stroke: "#8886"});
    put(picture, "text", {...words, x: 64, y: at + 4, "text-anchor": "end"}, time(10 ** power));
  }
  const marks = xs.filter((_, n) => n % Math.ceil(xs.length / 7) === 0);
  for (const mark of marks) {
    put(picture, "text", {...words, x: x(mark), y: 224, "text-anchor": "middle"}, shown(mark));
  }
  put(picture, "text", {...words, x: 355, y: 244, "text-anchor": "middle"}, label);
  put(picture, "line", {x1: x(here), x2: x(here), y1: 12, y2: 206, stroke: "currentColor"});
  for (const [name, [, , dash, color]] of Object.entries(WAYS)) {
    const points = xs.map((each, n) => [x(each), y(ys[n][name])])
      .filter(point => point.every(Number.isFinite)).join(" ");
    put(picture, "polyline", {points, fill: "none", stroke: DARK[color],
      "stroke-width": 2.5, "stroke-dasharray": dash});
  }
}

function playCost(box) {
  const draw = () => show();
  const size = slider(box, "size of the tensor S", powers(3, 34), 17, draw, bytes);
  const ranks = slider(box, "ranks n", powers(1, 12), 3, draw);
  const alpha = slider(box, "latency between nodes α",
    [1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 5e-4, 1e-3, 5e-3], 4, draw, time);
  const rate = slider(box, "bytes in a second between nodes 1/β",
    [12.5e6, 125e6, 1.25e9, 3e9, 12.5e9, 25e9, 50e9, 100e9, 400e9], 4, draw,
    value => `${value < 1e9 ? value / 1e6 + " MB/s" : value / 1e9 + " GB/s"}`);
  const node = slider(box, "ranks of a node g", powers(0, 6), 3, draw);
  const gain = slider(box, "inside a node, α and β are", [1, 3, 10, 30, 100], 2, draw,
    times => times === 1 ? "the same" : `${times} times less`);
  const told = put(box, "p", {"aria-live": "polite"});
  const table = put(put(box, "div", {class: "ddp-chart"}), "table");
  const charts = put(box, "div", {class: "ddp-chart"});

  function show() {
    const across = {alpha: alpha(), beta: 1 / rate()};
    const inside = {alpha: alpha() / gain(), beta: across.beta / gain()};
    const of = (n, s) => costs(n, s, inside, across, Math.min(node(), n));
    const now = of(ranks(), size());
    const best = Object.keys(now).reduce((a, b) => now[b] < now[a] * 0.999 ? b : a);
    told.textContent = `${bytes(size())} over ${ranks()} ranks: ${WAYS[best][0]} `
      + `${best === "two_level" ? "are" : "is"} the fastest of the five: ${time(now[best])}.`;
    table.replaceChildren();
    const head = put(put(table, "thead"), "tr"), body = put(table, "tbody");
    for (const name of ["way", "seconds", "formula, if all wires are alike"]) {
      put(head, "th", {scope: "col"}, name);
    }
    for (const [name, [words, formula, dash, color]] of Object.entries(WAYS)) {
      const row = put(body, "tr"), cell = put(row, "td");
      const key = put(cell, "svg", {viewBox: "0 0 34 8", "aria-hidden": true,
        style: "width: 34px; height: 8px; min-height: 0; margin-right: 0.5em"});
      put(key, "line", {x1: 0, x2: 34, y1: 4, y2: 4, stroke: DARK[color],
        "stroke-width": 3, "stroke-dasharray": dash});
      put(cell, name === best ? "b" : "span", {}, words);
      put(row, "td", {}, time(now[name]));
      put(row, "td", {}, formula);
    }
    charts.replaceChildren();
    chart(charts, powers(3, 34), size(), "size of the tensor", bytes, s => of(ranks(), s));
    chart(charts, powers(1, 12), ranks(), "ranks", String, n => of(n, size()));
  }
  show();
}

document.addEventListener("DOMContentLoaded", () => {
  const makers = {"play-cost": playCost, "play-memory": playMemory, "play-bubble": playBubble,
    "play-planner": planner};
  for (const [id, make] of Object.entries(makers)) {
    const box = document.getElementById(id);
    if (box) make(box);
  }
});
