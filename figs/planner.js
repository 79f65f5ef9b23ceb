/* A planner: what a layout holds, sends and takes, and a form to play with it.

The formulas are those of ddp_lab.scale.road.py, and a test compares the two.
The book loads this file, and a cell of lesson 21 puts it below its picture. */

"use strict";

const GB = 1e9;
const NUMBER = 2, STATES = 12;  // bytes: of a weight, a gradient, an activation; of Adam
const LAUNCH = 3e-4, LEAK = 0.1, ROOM = 0.9, HOP = 5e-6;

/** Return a rank's micro-batches, tokens in each, layers, and parameters. */
function stage(t, c) {
  const layers = Math.ceil(t.layers / c.pipeline);
  return {
    micro: Math.ceil(t.sequences / c.data / c.rows), tokens: c.rows * t.length, layers,
    part: t.parameters * layers / t.layers / c.tensor,
  };
}

/** Return bytes on a device, by kind. */
function memory(t, c) {
  const {micro, tokens, layers, part} = stage(t, c);
  let weights = NUMBER * part, gradients = NUMBER * part, gathered = 0;
  const optimizer = STATES * part / c.shard;
  if (gathers(c)) {
    gathered = 3 * weights / layers;
    weights /= c.shard;
    gradients /= c.shard;
  }
  const numbers = t.kept || 34 * t.width, whole = t.whole || 0;
  const kept = tokens * ((numbers - whole) / c.tensor + whole);
  const entered = tokens * NUMBER * t.width / c.tensor;
  const ahead = c.pipeline + (c.laps > 1 ? (c.pipeline - 1) / c.laps : 0);
  const flying = layers * Math.min(ahead, micro);
  let activations = flying * (c.recompute * entered + (1 - c.recompute) * kept);
  if (c.recompute) activations += kept;
  return {weights, gradients, optimizer, gathered, activations};
}

const gathers = c => c.kind.endsWith("sharded");
const sum = parts => Object.values(parts).reduce((total, each) => total + each, 0);

/** Return a rank's calls in a step: why, how many, how, bytes, ranks, stride. */
function callsOf(t, c) {
  const {micro, tokens, layers, part} = stage(t, c);
  const activation = NUMBER * t.width * tokens, times = layers * micro;
  let weights = NUMBER * part;
  const ends = 2 * c.laps - (c.pipeline === 2);
  const calls = [
    ["tensor sums", 4 * times * (1 + c.recompute / 2), "sum", activation, c.tensor, 1],
    ["passing on", ends * micro, "pass", activation / c.tensor, c.pipeline, c.tensor * c.data],
  ];
  if (gathers(c)) {
    calls.push(["gathering", 3 * times, "gather", weights / layers, c.shard, c.tensor]);
    weights /= c.shard;
  } else if (c.shard > 1) {
    calls.push(["gradients", 2 * layers, "gather", weights / layers, c.shard, c.tensor]);
  }
  const copies = c.data / c.shard;
  return [...calls, ["gradients", 1, "sum", weights, copies, c.tensor * c.shard]];
}

/** Return a rank's bytes and seconds in a call; every `stride`th rank takes part. */
function travel(t, how, size, ranks, stride) {
  const inside = Math.min(ranks, Math.max(1, Math.floor(t.machine / stride)));
  const link = inside === ranks ? t.fast : Math.min(t.fast, inside * t.slow);
  const once = (ranks - 1) / ranks * size;
  const [bytes, hops] = {
    gather: [once, ranks - 1],
    sum: [2 * once, 2 * Math.log2(ranks)],
    pass: ranks > 1 ? [size, 1] : [0, 0],
  }[how];
  return [bytes, bytes / link + hops * HOP];
}

/** Return what a rank sends in a step, and how long that takes, by why. */
function sent(t, c) {
  const total = {};
  for (const [why, times, ...call] of callsOf(t, c)) {
    const [bytes, time] = travel(t, ...call);
    total[why] ??= [0, 0];
    total[why][0] += times * bytes;
    total[why][1] += times * time;
  }
  return total;
}

/** Return the operations of a token, forward and backward. */
function operations(t) {
  return 6 * t.parameters + 6 * t.layers * t.width * t.length;
}

/** Return what a step's time goes into, in seconds. */
function seconds(t, c) {
  const {micro, tokens, layers} = stage(t, c), wire = sent(t, c);
  const exposed = (why, behind) => {
    const time = wire[why] ? wire[why][1] : 0;
    return Math.max(time - behind, LEAK * time);
  };
  const layer = tokens * operations(t) / t.layers / c.tensor / t.flops;
  const spent = {computing: micro * layers * Math.max(layer, LAUNCH)};
  spent.recomputing = spent.computing * c.recompute / 3;
  spent.gathering = exposed("gathering", sum(spent));
  spent["tensor sums"] = wire["tensor sums"][1];
  spent["passing on"] = wire["passing on"][1];
  spent.bubble = sum(spent) * (c.pipeline - 1) / micro / c.laps;
  spent.gradients = exposed("gradients", spent.computing * 2 / 3 / micro);
  return spent;
}

/** Return which share of what the maker promises a step uses. */
function shareOfPeak(t, c, peak) {
  const work = operations(t) * t.sequences * t.length;
  return work / (c.data * c.tensor * c.pipeline) / sum(seconds(t, c)) / peak;
}

/** Return when each work of each of p ranks begins and ends, in 1F1B with v laps.

As figs/schedules.py: [kind, micro-batch, begin, end], where kind is 0 or 1, backward. */
function schedule(p, m, v, lasts) {
  const ends = new Map(), key = (kind, at, batch) => (kind * p * v + at) * m + batch;
  const order = (rank, kind, n) => {
    const lap = Math.floor(n / p) % v, batch = Math.floor(n / p / v) * p + n % p;
    return [kind, kind ? v - 1 - lap : lap, v > 1 ? batch : n];
  };
  const rows = Array.from({length: p}, (_, rank) => {
    const most = m * v, row = [];
    const ahead = v > 1 ? 2 * (p - rank - 1) + (v - 1) * p : p - rank - 1;
    for (let n = 0, back = 0; back < most; n++) {
      if (n < most) row.push(order(rank, 0, n));
      if (n >= Math.min(ahead, most)) row.push(order(rank, 1, back++));
    }
    return row;
  });
  const done = rows.map(() => []), free = rows.map(() => 0);
  for (let left = 2 * p * m * v; left > 0;) {
    const before = left;
    rows.forEach((row, rank) => {
      while (done[rank].length < row.length) {
        const [kind, lap, batch] = row[done[rank].length], at = lap * p + rank;
        let ready = 0;
        if (kind === 0 && at > 0) ready = ends.get(key(0, at - 1, batch));
        if (kind === 1) ready = ends.get(at < p * v - 1 ? key(1, at + 1, batch) : key(0, at, batch));
        if (ready === undefined) break;
        const begin = Math.max(ready, free[rank]);
        free[rank] = begin + lasts[kind];
        ends.set(key(kind, at, batch), free[rank]);
        done[rank].push([kind, batch, begin, free[rank]]);
        left -= 1;
      }
    });
    if (left === before) return null;  // ranks that wait for each other forever
  }
  return done;
}

/* --- what a layout is chosen from --- */

const A100 = {flops: 190e12, fast: 235 * GB, memory: 80 * GB, machine: 8};
const H100 = {flops: 450e12, fast: 360 * GB, memory: 80 * GB, machine: 8};
const PEAKS = new Map([[A100, 312e12], [H100, 989e12]]);
// Seconds of a step that were reported, heads if attention kept its matrix; parameters, layers,
// width, sequences, length; the machine, and its cards' share of a device; kind, data,
// shard, tensor, pipeline, rows, recomputed, laps. As lesson 21 has them.
const PUBLISHED = {
  "Megatron 146B": [24.8, 96, [146e9, 80, 12288, 2304, 2048], A100, 23, ["DDP", 24, 1, 8, 8, 2, 1, 2]],
  "Megatron 530B": [54.1, 128, [530e9, 105, 20480, 2520, 2048], A100, 23, ["DDP", 9, 1, 8, 35, 1, 1, 3]],
  "Megatron 1T": [102.6, 160, [1008e9, 128, 25600, 3072, 2048], A100, 23, ["DDP", 6, 1, 8, 64, 1, 1, 1]],
  "MT-NLG 530B": [60.1, 128, [530e9, 105, 20480, 1920, 2048], A100, 23, ["DDP", 8, 1, 8, 35, 1, 1, 1]],
  "GPT-3, 2022": [13.75, 0, [175e9, 96, 12288, 64, 2048], A100, 23, ["DDP", 1, 1, 8, 8, 1, 0, 3]],
  "530B, 2022": [37.83, 0, [530e9, 105, 20480, 280, 2048], A100, 23, ["DDP", 1, 1, 8, 35, 1, 0, 3]],
  "1T, 2022": [71.49, 0, [1008e9, 128, 25600, 512, 2048], A100, 23, ["DDP", 1, 1, 8, 64, 1, 0, 1]],
  "BLOOM 176B": [104.5, 112, [176e9, 70, 14336, 2048, 2048], A100, 6, ["sharded optimizer", 8, 8, 4, 12, 2, 1, 1]],
  "OPT 175B": [19.5, 96, [175e9, 96, 12288, 992, 2048], A100, 23, ["sharded", 124, 124, 8, 1, 8, 1, 1]],
  "Llama 3 405B": [6.5, 0, [405e9, 126, 16384, 2048, 8192], H100, 45, ["sharded optimizer", 128, 128, 8, 16, 1, 0, 8]],
};
const OWN = {
  "7 billion": [0, 0, [6.7e9, 32, 4096, 1024, 4096], H100, 45, ["sharded", 64, 64, 1, 1, 1, 0, 1]],
  "70 billion": [0, 0, [69e9, 80, 8192, 1024, 4096], H100, 45, ["sharded", 512, 512, 1, 1, 1, 0, 1]],
};
const CUT = ["kind", "data", "shard", "tensor", "pipeline", "rows", "recompute", "laps"];
const TRAINING = ["parameters", "layers", "width", "sequences", "length"];
const named = (names, values) => Object.fromEntries(names.map((name, n) => [name, values[n]]));

/** Return a row of the tables above by names, as the form starts from it. */
function situation([reported, heads, sizes, gpu, slow, cut]) {
  const c = named(CUT, cut), t = {...named(TRAINING, sizes), ...gpu, slow: slow * GB};
  if (heads) Object.assign(t, withMatrix(t.width, heads, t.length));
  return {t: {...t, devices: c.data * c.tensor * c.pipeline}, c, heads, gpu, reported};
}

/** Return what is kept for backward where attention keeps its matrix, as until 2022. */
const withMatrix = (width, heads, length) =>
  ({kept: 34 * width + 5 * heads * length, whole: 10 * width});

/* --- the page --- */

const SVG = "http://www.w3.org/2000/svg";
const COLORS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442",
  "#882255"];  // the ranks'

/** Return a new element with some attributes, in `parent`. */
function put(parent, tag, attributes = {}, text = "") {
  const svg = tag === "svg" || parent.namespaceURI === SVG;
  const element = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  parent.append(element);
  return element;
}

/** Add a slider over some choices, as they are `written`; return what is chosen. */
function slider(box, title, choices, start, changed, written = String) {
  const label = put(box, "label", {}, `${title}: `);
  const shown = put(label, "output");
  const input = put(label, "input", {type: "range", min: 0});
  const chosen = () => choices[input.value];
  chosen.set = value => {
    if (!choices.includes(value)) choices = [...choices, value].sort((a, b) => a - b);
    input.max = choices.length - 1;
    input.value = choices.indexOf(value);
    tell();
  };
  function tell() {
    shown.textContent = written(chosen());
    input.setAttribute("aria-valuetext", shown.textContent);
  }
  input.addEventListener("input", () => { tell(); changed(); });
  chosen.set(choices[start]);
  return chosen;
}

const powers = (first, last) =>
  Array.from({length: last - first + 1}, (_, k) => 2 ** (first + k));
const thousands = n => n.toLocaleString("en-US");

function gb(bytes) {
  return `${(bytes / GB).toFixed(bytes < 10 * GB ? 1 : 0)} GB`;
}

/** Draw parts of a whole beside each other in `picture`, and name them in `legend`. */
function drawParts(picture, legend, sizes, scale, colors, said) {
  picture.replaceChildren();
  legend.replaceChildren();
  let x = 10;
  Object.entries(sizes).forEach(([name, n], at) => {
    put(picture, "rect", {x, y: 8, width: n * scale, height: 32, fill: colors[at]});
    if (n > 0) {
      const key = put(legend, "span");
      put(key, "span", {style: `color: ${colors[at]}`, "aria-hidden": true}, "■ ");
      put(key, "span", {}, `${name} ${said(n)}`);
      legend.append(" ");
    }
    x += n * scale;
  });
}

const KINDS = {
  "DDP": "nothing (DDP)",
  "sharded optimizer": "the optimizer (ZeRO-1)",
  "sharded": "everything (ZeRO-3)",
  "hybrid sharded": "everything, in a machine (hybrid)",
};
const WHYS = {
  "computing": "#0072B2", "recomputing": "#56B4E9", "gathering": "#009E73",
  "tensor sums": "#E69F00", "passing on": "#CC79A7", "bubble": "#999999", "gradients": "#D55E00",
};
const LINES = {tensor: ["■", "#E69F00"], data: ["●", "#009E73"], pipeline: ["◆", "#0072B2"]};
const MACHINES = n => n === 1 ? "in one machine" : `over ${thousands(n)} machines`;

/** Return the ranks of a rank's line along each dimension; tensor runs fastest. */
function lines(c, rank) {
  const found = {};
  let stride = 1;
  for (const along of ["tensor", "data", "pipeline"]) {
    const first = rank - Math.floor(rank / stride) % c[along] * stride, step = stride;
    found[along] = Array.from({length: c[along]}, (_, n) => first + n * step);
    stride *= c[along];
  }
  return found;
}

/** Say whether it fits, and what it is bound by. */
function verdict(t, c) {
  const held = memory(t, c), spent = seconds(t, c), time = sum(spent);
  const [most, next] = Object.entries(spent).sort((a, b) => b[1] - a[1]);
  const percent = ([, part]) => `${Math.round(100 * part / time)} %`;
  const [kind] = Object.entries(held).sort((a, b) => b[1] - a[1])[0];
  const room = `${gb(ROOM * t.memory)} usable`;
  return sum(held) > ROOM * t.memory
    ? `It does not fit: ${gb(sum(held))} for ${room}, with ${kind} the largest part.`
    : `It fits (${gb(sum(held))} of ${room}), and a step of ${time.toPrecision(3)} s is `
      + `bound by ${most[0]} (${percent(most)}), then ${next[0]} (${percent(next)}).`;
}

/** Draw all GPUs, machine by machine, and mark the lines of one rank. */
function drawMesh(picture, legend, t, c, rank) {
  const found = lines(c, rank), used = c.tensor * c.data * c.pipeline;
  const machines = Math.ceil(t.devices / t.machine);
  const high = t.machine > 1 ? 2 : 1, wide = Math.ceil(t.machine / high);
  let size = 14;
  const columns = () => Math.floor(640 / (wide + 1) / size);
  const tall = () => Math.ceil(machines / columns()) * (high + 1) * size;
  while (tall() > 230) size -= 0.25;
  const side = 0.84 * size, half = side / 2, across = columns();
  const marks = {
    "■": `h${side}v${side}h${-side}z`,
    "●": `m0 ${half}a${half} ${half} 0 1 0 ${side} 0a${half} ${half} 0 1 0 ${-side} 0z`,
    "◆": `m${half} 0l${half} ${half}l${-half} ${half}l${-half} ${-half}z`,
  };
  const place = r => {
    const machine = Math.floor(r / t.machine), seat = r % t.machine;
    const x = 10 + (machine % across * (wide + 1) + seat % wide) * size;
    const y = 4 + (Math.floor(machine / across) * (high + 1) + Math.floor(seat / wide)) * size;
    return `M${x.toFixed(2)} ${y.toFixed(2)}`;
  };
  const fill = (ranks, mark, color) =>
    put(picture, "path", {d: ranks.map(r => place(r) + marks[mark]).join(""), ...color});
  const rest = new Set(Array.from({length: t.devices}, (_, r) => r));
  for (const line of Object.values(found)) line.forEach(r => rest.delete(r));
  picture.replaceChildren();
  picture.setAttribute("viewBox", `0 0 660 ${Math.ceil(tall() + 8)}`);
  const idle = [...rest].filter(r => r >= used);
  fill([...rest].filter(r => r < used), "■", {fill: "currentColor", "fill-opacity": 0.25});
  fill(idle, "■", {fill: "none", stroke: "currentColor", "stroke-opacity": 0.4, "stroke-width": 0.5});
  legend.replaceChildren(`${thousands(t.devices)} GPUs in ${thousands(machines)} machines. `);
  for (const [along, [mark, color]] of Object.entries(LINES)) {
    const homes = [...new Set(found[along].map(r => Math.floor(r / t.machine)))];
    const over = homes.length, block = `h${wide * size}v${high * size}h${-wide * size}z`;
    if (size < 8) {  // a mark alone is too small to be seen
      const others = homes.filter(home => home !== Math.floor(rank / t.machine));
      const d = others.map(home => place(home * t.machine) + block).join("");
      put(picture, "path", {d, fill: color, "fill-opacity": 0.35});
    }
    fill(found[along].filter(r => r !== rank), mark, {fill: color});
    const key = put(legend, "span");
    put(key, "span", {style: `color: ${color}`, "aria-hidden": true}, `${mark} `);
    put(key, "span", {}, `${along} ${found[along].length}: ${MACHINES(over)}`);
    legend.append(" ");
  }
  fill([rank], "■", {fill: "currentColor"});
  picture.setAttribute("aria-label", legend.textContent);
  return (x, y) => {  // which rank is there
    const column = Math.floor((x - 10) / size), row = Math.floor((y - 4) / size);
    const machine = Math.floor(row / (high + 1)) * across + Math.floor(column / (wide + 1));
    const r = machine * t.machine + row % (high + 1) * wide + column % (wide + 1);
    return column % (wide + 1) < wide && row % (high + 1) < high && r < used ? r : null;
  };
}

/** Draw when each stage of a pipeline works; backward takes twice as long as forward. */
function drawSchedule(picture, legend, c, micro) {
  const p = c.pipeline;
  picture.replaceChildren();
  picture.style.display = p > 1 && p * micro * c.laps <= 40000 ? "" : "none";
  if (p === 1) return legend.replaceChildren("One stage: no bubble.");
  const share = 100 * (p - 1) / (micro * c.laps + p - 1);
  legend.replaceChildren(
    `A pipeline of ${p} ranks, ${micro} micro-batches: each rank waits for `
    + `${share.toFixed(1)} % of the time. `);
  if (picture.style.display) return legend.append("(Too many to draw.)");
  const rows = schedule(p, micro, c.laps, [1, 2]);
  const end = Math.max(...rows.map(row => row.at(-1)[3])), slot = 640 / end;
  const high = Math.max(1, Math.min(14, 150 / p)), gap = slot > 3 ? 1 : 0;
  picture.setAttribute("viewBox", `0 0 660 ${Math.ceil(p * (high + 1) + 8)}`);
  [[0, "#56B4E9", "forward"], [1, "#0072B2", "backward"]].forEach(([kind, color, name]) => {
    const d = rows.flatMap((row, rank) => row.filter(work => work[0] === kind)
      .map(([, , begin, until]) => {
        const wide = ((until - begin) * slot - gap).toFixed(2);
        const x = (10 + begin * slot).toFixed(2), y = (4 + rank * (high + 1)).toFixed(2);
        return `M${x} ${y}h${wide}v${high}h-${wide}z`;
      }));
    put(picture, "path", {d: d.join(""), fill: color});
    const key = put(legend, "span");
    put(key, "span", {style: `color: ${color}`, "aria-hidden": true}, "■ ");
    put(key, "span", {}, name);
    legend.append(" ");
  });
  picture.setAttribute("aria-label", legend.textContent);
}

/** Make `box` a form; `start` is a situation {t, c} of a reader's own. */
function planner(box, start) {
  box.replaceChildren();
  box.className = "ddp-play";
  const rows = {};
  if (start) {
    const gpu = [...PEAKS.keys()].find(each => each.flops === start.t.flops) || named(
      Object.keys(A100), Object.keys(A100).map(name => start.t[name]));
    const heads = (start.t.kept - 34 * start.t.width) / 5 / start.t.length;
    rows["as in the cell"] = {...start, gpu, heads: start.t.kept ? heads : 0};
  }
  for (const [name, row] of Object.entries({...OWN, ...PUBLISHED})) rows[name] = situation(row);
  const models = new Map([[A100, "A100"], [H100, "H100"]]);
  const gpuName = gpu => models.get(gpu) || "the cell's";
  const gpus = [...new Set([...PEAKS.keys(), ...Object.values(rows).map(row => row.gpu)])];

  const label = put(box, "label", {}, "start from");
  const select = put(label, "select");
  Object.keys(rows).forEach(name => put(select, "option", {}, name));
  const add = (place, ...rest) => slider(place, ...rest.slice(0, 2), 0, show, ...rest.slice(2));
  const percent = part => `${100 * part} %`;
  const form = {
    devices: add(box, "GPUs", powers(0, 14), thousands),
    tensor: add(box, "tensor", [1, 2, 4, 8, 16]),
    pipeline: add(box, "pipeline", [1, 2, 4, 8, 16, 32, 64]),
    laps: add(box, "stages per rank (laps)", [1, 2, 3, 4, 5, 8]),
    kind: add(box, "sharded over the data ranks", Object.keys(KINDS), kind => KINDS[kind]),
    rows: add(box, "sequences per micro-batch", [1, 2, 4, 8, 16]),
    recompute: add(box, "layers recomputed", [0, 0.25, 0.5, 0.75, 1], percent),
  };
  const about = put(box, "details"), summary = put(about, "summary");
  const more = put(about, "div", {class: "ddp-sliders"});
  const rates = [1, 3, 6, 12, 23, 45, 100].map(rate => rate * GB);
  Object.assign(form, {
    layers: add(more, "layers", [8, 16, 24, 32, 48, 64, 80, 96, 128]),
    width: add(more, "width", [1024, 2048, 4096, 8192, 12288, 16384, 25600], thousands),
    sequences: add(more, "sequences of a step", powers(3, 13), thousands),
    length: add(more, "tokens of a sequence", powers(10, 17), thousands),
    matrix: add(more, "attention keeps its matrix", [false, true], yes => yes ? "yes" : "no"),
    gpu: add(more, "GPU", gpus, gpuName),
    slow: add(more, "bandwidth between machines, per GPU", rates, rate => `${rate / GB} GB/s`),
  });
  const told = put(box, "p", {"aria-live": "polite", class: "ddp-told"});
  const canvas = title => {
    put(box, "p", {class: "ddp-head"}, title);
    return [put(box, "svg", {viewBox: "0 0 660 48", role: "img"}), put(box, "p")];
  };
  const [bytes, bytesKey] = canvas("memory of a GPU; a layout may use up to the line");
  const [times, timesKey] = canvas("seconds of a step");
  const [mesh, meshKey] = canvas("which ranks share a machine");
  const choice = put(box, "label", {class: "ddp-wide"}, "show the groups of rank ");
  const shown = put(choice, "output"), rank = put(choice, "input", {type: "range", min: 0, value: 0});
  const [lanes, lanesKey] = canvas("the pipeline's schedule");
  const drawn = [bytes, bytesKey, times, timesKey, mesh, meshKey, lanes, lanesKey];
  mesh.setAttribute("class", "ddp-mesh");
  let row, at = () => null;

  select.addEventListener("change", () => begin(select.value));
  rank.addEventListener("input", show);
  mesh.addEventListener("click", event => {
    const {left, top, width} = mesh.getBoundingClientRect(), scale = 660 / width;
    const found = at((event.clientX - left) * scale, (event.clientY - top) * scale);
    if (found !== null) { rank.value = found; show(); }
  });

  function begin(name) {
    row = rows[name];
    const from = {...row.t, ...row.c, matrix: row.heads > 0, gpu: row.gpu};
    for (const [name, control] of Object.entries(form)) control.set(from[name]);
    show();
  }

  /** Return what the sliders say, and what is odd about it. */
  function read() {
    const now = named(Object.keys(form), Object.values(form).map(control => control()));
    const wider = now.width / row.t.width, larger = wider ** 2 * now.layers / row.t.layers;
    const heads = (row.heads || row.t.width / 128) * wider;
    const t = {...now, parameters: row.t.parameters * larger, ...now.gpu};
    if (now.matrix) Object.assign(t, withMatrix(now.width, heads, now.length));
    const {devices, tensor, pipeline, rows, recompute} = now, odd = [];
    const data = Math.floor(devices / tensor / pipeline);
    const near = Math.floor(t.machine / tensor);
    const hybrid = near && data % near === 0 ? near : data;
    const shard = {"DDP": 1, "hybrid sharded": hybrid}[now.kind] ?? data;
    const kind = shard > 1 ? now.kind : "DDP";
    const c = {kind, data, shard, tensor, pipeline, rows, recompute, laps: now.laps};
    const {micro, layers} = stage(t, c), left = devices - data * tensor * pipeline;
    if (c.laps > 1 && (micro % pipeline || layers < c.laps || pipeline === 1)) {
      c.laps = 1;
      odd.push(pipeline === 1 ? "Laps need a pipeline."
        : `Laps need a multiple of ${pipeline} micro-batches and a layer each: counted as one lap.`);
    }
    if (left) odd.push(`${thousands(left)} GPUs are left over.`);
    if (data > t.sequences) odd.push("Some ranks have no sequence.");
    if (pipeline > t.layers) odd.push("Some stages have no layer.");
    return {t, c, odd, micro};
  }

  /** Say how much of the peak is used; and what was reported, while the layout is that. */
  function peakTold(t, c) {
    const peak = PEAKS.get(form.gpu()), name = select.value;
    if (!peak) return "";
    const share = shareOfPeak(t, c, peak);
    const asReported = row.reported && sum(seconds(row.t, row.c)) === sum(seconds(t, c));
    return `That is ${Math.round(100 * share)} % of the GPUs' peak`
      + (asReported ? `; in the paper a step took ${row.reported} s, which is `
        + `${Math.round(100 * share * sum(seconds(t, c)) / row.reported)} %.` : ".");
  }

  function show() {
    const {t, c, odd, micro} = read();
    const model = `${thousands(Number((t.parameters / GB).toPrecision(3)))} billion parameters`;
    summary.textContent = `${model}, ${thousands(t.sequences)} sequences of `
      + `${thousands(t.length)} tokens a step, on ${gpuName(form.gpu())}`;
    if (c.data === 0) {
      told.textContent = `Tensor ${c.tensor} and pipeline ${c.pipeline} need `
        + `${thousands(c.tensor * c.pipeline)} GPUs.`;
      drawn.forEach(each => each.replaceChildren());
      at = () => null;
      return;
    }
    const spent = seconds(t, c), held = memory(t, c);
    told.textContent = [
      `Tensor ${c.tensor} × pipeline ${c.pipeline} × data ${c.data}, with ${micro} micro-batch${micro === 1 ? "" : "es"} each.`,
      verdict(t, c), peakTold(t, c), ...odd].join(" ");
    const scale = 640 / Math.max(sum(held), t.memory), edge = 10 + ROOM * t.memory * scale;
    drawParts(bytes, bytesKey, held, scale, COLORS, gb);
    put(bytes, "rect", {x: 10, y: 8, width: t.memory * scale, height: 32, fill: "none",
      stroke: "currentColor", "stroke-opacity": 0.35});
    put(bytes, "line", {x1: edge, x2: edge, y1: 2, y2: 46, stroke: "currentColor"});
    drawParts(times, timesKey, spent, 640 / sum(spent), Object.values(WHYS),
      time => `${time.toPrecision(2)} s`);
    rank.max = c.tensor * c.data * c.pipeline - 1;
    shown.textContent = rank.value;
    at = drawMesh(mesh, meshKey, t, c, Number(rank.value));
    drawSchedule(lanes, lanesKey, c, micro);
    bytes.setAttribute("aria-label", bytesKey.textContent);
    times.setAttribute("aria-label", timesKey.textContent);
  }

  begin(select.value);
}
