
// Drawing: the axis, a line for each target and for each resource, and the overview above.

const AXIS = 24;
const LANE = 12;
const ROW = 20;
const box = byId("box");
const canvas = byId("lanes");
const map = byId("map");
const lines = [];
let total = AXIS + 4;
for (const target of targets) {
  const height = target.lanes * LANE + 4;
  lines.push({ top: total, height, target });
  total += height;
}
total += 6;
for (const row of rows) {
  lines.push({ top: total, height: ROW, row });
  total += ROW;
}
total += 4;

const plot = { gutter: 88, width: 1, height: 1 };
const xOf = (time) => plot.gutter + ((time - view.from) / span()) * plot.width;
const timeOf = (x) => view.from + ((x - plot.gutter) / plot.width) * span();

let colors = {};
function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["paper", "raised", "ink", "soft", "line", "hold", "ran-out", "mark"]) {
    colors[name] = style.getPropertyValue(`--${name}`).trim();
  }
  colors.faults = run.nemeses.map(({ color }) => style.getPropertyValue(`--f${color}`).trim());
  run.nemeses.forEach((nemesis, i) => { nemesis.paint = colors.faults[i]; });
}

/** Sets the size of a canvas in physical pixels, clears it, and returns its context. */
function prepare(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = colors.paper;
  pen.fillRect(0, 0, width, height);
  pen.textBaseline = "middle";
  pen.font = "11px system-ui, sans-serif";
  return pen;
}

/** Draws the tenures that are wide enough, and returns the share of each pixel that the other tenures cover. */
function shades(row, from, until, width, draw) {
  const covered = new Float32Array(width + 1);
  const perPixel = (until - from) / width;
  let any = false;
  const last = first(row.from, until);
  for (let i = first(row.ends, from); i < last; i++) {
    const left = (Math.max(row.from[i], from) - from) / perPixel;
    const right = (Math.min(row.until[i], until) - from) / perPixel;
    if (right < left) continue;
    if (row.until[i] - row.from[i] >= 3 * perPixel) {
      draw(i, left, right - left);
      continue;
    }
    any = true;
    for (let x = Math.floor(left); x <= right && x <= width; x++) {
      // Never zero, so that it is visible.
      covered[x] += Math.max(1e-6, Math.min(right, x + 1) - Math.max(left, x));
    }
  }
  return any ? covered : null;
}

function paintShades(pen, covered, left, top, height) {
  pen.fillStyle = colors.hold;
  const shade = (x) => (covered[x] > 0 ? Math.min(8, Math.ceil(covered[x] * 8)) : 0);
  for (let x = 0; x < covered.length; ) {
    const begin = x;
    const now = shade(x);
    while (x < covered.length && shade(x) === now) x++;
    if (now === 0) continue;
    pen.globalAlpha = 0.16 + 0.84 * (now / 8);
    pen.fillRect(left + begin, top, x - begin, height);
  }
  pen.globalAlpha = 1;
}

function paintRow(pen, row, top) {
  const bar = ROW - 8;
  const covered = shades(row, view.from, view.until, Math.floor(plot.width), (i, x, width) => {
    // Two holders at the same time get a half of the line each.
    const half = row.half[i];
    const y = top + 6 + (half === 2 ? bar / 2 + 0.5 : 0);
    const height = half === 0 ? bar : bar / 2 - 0.5;
    pen.fillStyle = colors.hold;
    pen.fillRect(plot.gutter + x, y, Math.max(1, width - (width > 4 ? 0.6 : 0)), height);
    if ((row.end[i] & 3) !== 0) {
      pen.fillStyle = colors["ran-out"];
      const edge = Math.min(4, width / 2);
      pen.fillRect(plot.gutter + x + width - edge, y, edge, height);
    }
    if (width > 120 && half === 0) {
      pen.fillStyle = colors.paper;
      pen.fillText(holder(row, i), plot.gutter + x + 6, y + bar / 2 + 0.5);
    }
  });
  if (covered) paintShades(pen, covered, plot.gutter, top + 6, bar);
  for (const mark of row.marks) paintMark(pen, mark, top, bar);
}

/** Draws an overlap at least three pixels wide, with a triangle above it: visible at every zoom level. */
function paintMark(pen, mark, top, bar) {
  if (mark.until < view.from || mark.from > view.until) return;
  const left = Math.max(xOf(mark.from), plot.gutter);
  const right = Math.min(xOf(mark.until), plot.gutter + plot.width);
  const width = Math.max(3, right - left);
  pen.fillStyle = colors.mark;
  if (width < 16) {
    pen.fillRect(left - (width > 3 ? 0 : 1.5), top + 5, width, bar + 2);
  } else {
    // Wide marks are transparent, so that both tenures remain visible.
    pen.globalAlpha = 0.45;
    pen.fillRect(left, top + 5, width, bar + 2);
    pen.globalAlpha = 1;
    pen.strokeStyle = colors.mark;
    pen.strokeRect(left + 0.5, top + 5.5, width - 1, bar + 1);
  }
  const middle = (left + Math.max(left, right)) / 2;
  pen.beginPath();
  pen.moveTo(middle - 5, top);
  pen.lineTo(middle + 5, top);
  pen.lineTo(middle, top + 7);
  pen.fill();
}

function paintTarget(pen, target, top) {
  for (const fault of target.faults) {
    if (fault.until < view.from || fault.from > view.until) continue;
    const left = Math.max(xOf(fault.from), plot.gutter);
    const width = Math.max(2, Math.min(xOf(fault.until), plot.gutter + plot.width) - left);
    const y = top + 2 + fault.lane * LANE;
    pen.fillStyle = fault.nemesis.paint;
    pen.fillRect(left, y, width, LANE - 1);
    if (width < 12) continue;
    pen.fillStyle = colors.paper;
    const words = width > 150 ? `${fault.nemesis.letter}  ${fault.nemesis.name}` : fault.nemesis.letter;
    pen.save();
    pen.beginPath();
    pen.rect(left, y, width, LANE);
    pen.clip();
    pen.fillText(words, left + 3, y + 6);
    pen.restore();
  }
}

function paintAxis(pen) {
  const least = (span() / plot.width) * 90;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least);
  const digits = Math.min(6, Math.max(0, 6 - Math.floor(Math.log10(step) + 1e-9)));
  for (let n = Math.ceil(view.from / step); n * step <= view.until; n++) {
    const x = Math.round(xOf(n * step)) + 0.5;
    pen.fillStyle = colors.line;
    pen.fillRect(x - 0.5, 0, 1, plot.height);
    pen.fillStyle = colors.soft;
    const label = `${((n * step) / 1e6).toFixed(digits)} s`;
    if (x + pen.measureText(label).width + 4 < plot.gutter + plot.width) pen.fillText(label, x + 4, 12);
  }
}

/** Draws a line with a label where the number of nodes changes. */
function paintChanges(pen) {
  for (let i = 0; i < run.changes.length; i += 2) {
    const [nodes, from] = run.changes.slice(i, i + 2);
    if (from < view.from || from > view.until) continue;
    const x = Math.round(xOf(from));
    const words = `${nodes} ${nodes === 1 ? "node" : "nodes"}`;
    pen.fillStyle = colors.paper;
    pen.fillRect(x, plot.height - 16, pen.measureText(words).width + 8, 16);
    pen.fillStyle = colors.ink;
    pen.fillRect(x - 1, 0, 2, plot.height);
    pen.fillText(words, x + 4, plot.height - 8);
  }
}

let picked = null;
function paint() {
  const width = box.clientWidth;
  plot.height = Math.min(total, box.clientHeight);
  plot.gutter = width < 500 ? 78 : 92;
  plot.width = Math.max(1, width - plot.gutter);
  const pen = prepare(canvas, width, plot.height);
  paintAxis(pen);
  if (picked && picked.until > view.from && picked.from < view.until) {
    // Highlights the span below the pointer on all lines.
    pen.globalAlpha = 0.14;
    pen.fillStyle = picked.paint;
    const left = Math.max(plot.gutter, xOf(picked.from));
    pen.fillRect(left, AXIS, Math.max(2, xOf(picked.until) - left), plot.height);
    pen.globalAlpha = 1;
  }
  pen.save();
  pen.beginPath();
  pen.rect(0, AXIS, width, plot.height - AXIS);
  pen.clip();
  for (const { top, height, target, row } of lines) {
    const y = top - box.scrollTop;
    if (y + height < AXIS || y > plot.height) continue;
    if (row) paintRow(pen, row, y);
    else paintTarget(pen, target, y);
    pen.fillStyle = colors.paper;
    pen.fillRect(0, y, plot.gutter, height);
    pen.fillStyle = colors.soft;
    const label = row ? `resource ${row.resource}` : target.name;
    pen.fillText(label, 8, y + (row ? 12 : 8), plot.gutter - 14);
  }
  pen.restore();
  paintChanges(pen);
  pen.fillStyle = colors.line;
  pen.fillRect(plot.gutter - 1, 0, 1, plot.height);
  paintMap();
  byId("span").textContent = `${clock(view.from)} – ${clock(view.until)} (${took(span())})`;
}

// The overview: the share of resources held over time, which is computed once, and the visible part.
let held = null;
function paintMap() {
  const [width, height] = [map.clientWidth, map.clientHeight];
  const pen = prepare(map, width, height);
  pen.fillStyle = colors.raised;
  pen.fillRect(0, 0, width, height);
  if (!held || held.length !== width) held = density(width);
  pen.fillStyle = colors.hold;
  held.forEach((part, x) => pen.fillRect(x, height - part * (height - 10), 1, part * (height - 10)));
  for (const { target } of lines) {
    for (const fault of target ? target.faults : []) {
      pen.fillStyle = fault.nemesis.paint;
      const [left, right] = [fault.from, fault.until].map((time) => (time / run.end) * width);
      pen.fillRect(left, 0, Math.max(1, right - left), 5);
    }
  }
  const [left, right] = [view.from, view.until].map((time) => (time / run.end) * width);
  pen.globalAlpha = 0.72;
  pen.fillStyle = colors.paper;
  pen.fillRect(0, 0, left, height);
  pen.fillRect(right, 0, width - right, height);
  pen.globalAlpha = 1;
  pen.strokeStyle = colors.ink;
  pen.strokeRect(Math.min(left, width - 2) + 0.5, 0.5, Math.max(2, right - left - 1), height - 1);
  pen.fillStyle = colors.mark;
  for (const mark of marks) pen.fillRect((mark.from / run.end) * width - 1, 0, 3, height);
}

/** The time held in each pixel, summed over all resources and scaled to a maximum of 1. */
function density(width) {
  const all = new Float32Array(width);
  const perPixel = run.end / width;
  for (const row of rows) {
    for (let i = 0; i < row.length; i++) {
      const right = row.until[i] / perPixel;
      for (let left = row.from[i] / perPixel; left < right; ) {
        const x = Math.floor(left);
        const edge = Math.min(right, x + 1);
        all[Math.min(x, width - 1)] += edge - left;
        left = edge;
      }
    }
  }
  const most = all.reduce((a, b) => Math.max(a, b), 1e-9);
  return all.map((part) => part / most);
}

let isDue = false;
function repaint() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    paint();
  });
}
