// Data of the run. Times are in microseconds since its start.

const byId = (id) => document.getElementById(id);
const run = JSON.parse(byId("run").textContent);

/**
 * Unpacks the flat list of a row. `from` and `ends` are sorted, so that they can be searched. `half` is
 * 1 and 2 for two tenures that overlap, and 0 for others.
 */
function unpack({ resource, holds }) {
  const length = holds.length / 4;
  const row = {
    resource, length, marks: [],
    from: new Float64Array(length), until: new Float64Array(length), ends: new Float64Array(length),
    who: new Uint32Array(length), end: new Uint8Array(length), half: new Uint8Array(length),
  };
  let from = 0;
  let last = 0;
  for (let i = 0; i < length; i++) {
    from += holds[4 * i];
    const until = from + holds[4 * i + 1];
    if (from < last) {
      row.half[i] = 3 - (row.half[i - 1] || 1);
      row.half[i - 1] ||= 1;
    }
    last = Math.max(last, until);
    row.from[i] = from;
    row.until[i] = until;
    row.ends[i] = last;
    row.who[i] = holds[4 * i + 2];
    row.end[i] = holds[4 * i + 3];
  }
  return row;
}

const rows = run.rows.map(unpack);

const marks = [];
for (let i = 0; i < run.overlaps.length; i += 6) {
  const [row, nth, from, long, begin, whole] = run.overlaps.slice(i, i + 6);
  const mark = { row: rows[row], nth, from, until: from + long, begin, end: begin + whole };
  rows[row].marks.push(mark);
  marks.push(mark);
}
marks.sort((a, b) => a.from - b.from);

const targets = run.targets.map(({ name, lanes, faults }) => {
  const list = [];
  for (let i = 0; i < faults.length; i += 4) {
    const [nemesis, lane, from, long] = faults.slice(i, i + 4);
    list.push({ target: name, nemesis: run.nemeses[nemesis], lane, from, until: from + long });
  }
  return { name, lanes, faults: list };
});

/** The index of the first time that is at least `time`. */
function first(times, time) {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The visible part.
const SHORTEST = 20;
const view = { from: 0, until: run.end };

function look(from, long) {
  const span = Math.min(run.end, Math.max(SHORTEST, long));
  view.from = Math.min(Math.max(0, from), run.end - span);
  view.until = view.from + span;
  leave();
  repaint();
}

const span = () => view.until - view.from;
const clock = (time) => `${(time / 1e6).toFixed(6)} s`;

/** Formats a number with three digits, rounded down as everywhere on the page. */
function threeDigits(x) {
  const digits = x < 10 ? 2 : x < 100 ? 1 : 0;
  return (Math.floor(x * 10 ** digits + 1e-9) / 10 ** digits).toFixed(digits);
}

function took(time) {
  if (time < 1) return "less than 1 µs";
  if (time < 1e3) return `${Math.floor(time)} µs`;
  if (time < 1e6) return `${threeDigits(time / 1e3)} ms`;
  if (time < 60e6) return `${threeDigits(time / 1e6)} s`;
  return `${Math.floor(time / 60e6)} min ${Math.floor((time % 60e6) / 1e6)} s`;
}

function holder(row, i) {
  const who = row.who[i];
  return `client ${run.who[2 * who]}, task ${run.who[2 * who + 1]}`;
}
