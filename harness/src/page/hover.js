
// The tooltip: text for the position of the pointer.

const tip = byId("hover");
const ENDS = ["released", "expired before the release", "lost, and the holder was notified"];

/** The text for a position on the canvas, and the span to highlight on all lines. */
function find(x, y) {
  const scrolled = y + box.scrollTop;
  if (x < plot.gutter || y < AXIS) return null;
  const line = lines.find(({ top, height }) => scrolled >= top && scrolled < top + height);
  if (!line) return null;
  return line.row ? findHold(line.row, x) : findFault(line, x, scrolled);
}

function findFault({ target, top }, x, y) {
  const lane = Math.floor((y - top - 2) / LANE);
  const near = target.faults.filter((fault) =>
    fault.lane === lane && xOf(fault.from) - 3 <= x && x <= Math.max(xOf(fault.until), xOf(fault.from) + 2) + 3);
  if (near.length === 0) return null;
  const words = near.slice(0, 3).map(({ nemesis, from, until }) =>
    `${nemesis.letter}  ${nemesis.name}, ${target.name}\nat ${clock(from)} for ${took(until - from)}` +
    (nemesis.promised ? "" : "\noutside the guarantee"));
  const fault = near[0];
  return { words: words.join("\n"), from: fault.from, until: fault.until, paint: fault.nemesis.paint };
}

function findHold(row, x) {
  const near = row.marks.filter((mark) => xOf(mark.from) - 6 <= x && x <= xOf(mark.until) + 6);
  if (near.length > 0) {
    const { nth, from, until } = near[0];
    const more = near.length > 1 ? `\nand ${near.length - 1} more here` : "";
    const words = `OVERLAP ${nth + 1}, resource ${row.resource}\nat ${clock(from)} for ${took(until - from)}${more}`;
    return { words: [words, ...holdsAt(row, x).slice(0, 2)].join("\n"), from, until, paint: colors.mark };
  }
  const all = holdsAt(row, x);
  if (all.length === 0) return null;
  const words = all.length <= 2 ? all.join("\n") : `resource ${row.resource}: ${all.length} tenures here\nzoom in to separate them`;
  return { words, from: 0, until: 0, paint: colors.ink };
}

function holdsAt(row, x) {
  const [from, until] = [timeOf(x - 1), timeOf(x + 1)];
  const all = [];
  for (let i = first(row.ends, from); i < row.length && row.from[i] <= until; i++) {
    if (row.until[i] < from) continue;
    const end = ENDS[row.end[i] & 3] + (row.end[i] & 4 ? "; renewed" : "");
    const long = took(row.until[i] - row.from[i]);
    all.push(`${holder(row, i)} held resource ${row.resource}\nat ${clock(row.from[i])} for ${long}\n${end}`);
  }
  return all;
}

function hover(event) {
  const at = canvas.getBoundingClientRect();
  const found = find(event.clientX - at.left, event.clientY - at.top);
  if ((picked && picked.from) !== (found && found.from)) repaint();
  picked = found;
  tip.hidden = !found;
  if (!found) return;
  tip.textContent = found.words;
  const live = byId("live").getBoundingClientRect();
  const [x, y] = [event.clientX - live.left, event.clientY - live.top];
  const left = x + 14 + tip.offsetWidth < live.width ? x + 14 : x - 14 - tip.offsetWidth;
  tip.style.left = `${Math.max(0, Math.min(left, live.width - tip.offsetWidth))}px`;
  // Above the finger, which would cover it.
  tip.style.top = `${event.pointerType === "touch" ? y - tip.offsetHeight - 24 : y + 16}px`;
}

function leave() {
  tip.hidden = true;
  if (picked) repaint();
  picked = null;
}
