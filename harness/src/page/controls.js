
// Controls: buttons, keys, mouse and touch.

function zoom(factor, middle = (view.from + view.until) / 2) {
  const long = Math.min(run.end, Math.max(SHORTEST, span() * factor));
  look(middle - ((middle - view.from) / span()) * long, long);
}

/** Shows both tenures of an overlap, with a margin. */
function show(mark) {
  const long = (mark.end - mark.begin) * 1.6;
  look((mark.begin + mark.end - long) / 2, long);
  const line = lines.find(({ row }) => row === mark.row);
  box.scrollTop = line.top - box.clientHeight / 2;
}

function jump(by) {
  const middle = (view.from + view.until) / 2;
  const isWhole = span() >= run.end;
  const after = marks.find((mark) => isWhole || (mark.begin + mark.end) / 2 > middle + 1);
  const before = marks.findLast((mark) => isWhole || (mark.begin + mark.end) / 2 < middle - 1);
  show(by > 0 ? after ?? marks[0] : before ?? marks[marks.length - 1]);
}

const deeds = {
  in: () => zoom(1 / 2),
  out: () => zoom(2),
  all: () => look(0, run.end),
  next: () => jump(1),
  previous: () => jump(-1),
};

function listenToKeys() {
  const keys = {
    "+": deeds.in, "=": deeds.in, "-": deeds.out, 0: deeds.all,
    ArrowLeft: () => look(view.from - span() / 5, span()),
    ArrowRight: () => look(view.from + span() / 5, span()),
  };
  canvas.addEventListener("keydown", (event) => {
    const deed = keys[event.key];
    if (!deed || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    deed();
  });
}

function listenToWheel() {
  box.addEventListener("wheel", (event) => {
    const across = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      const x = event.clientX - canvas.getBoundingClientRect().left;
      zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 120), timeOf(Math.max(x, plot.gutter)));
    } else if (event.shiftKey || Math.abs(across) > Math.abs(event.deltaY)) {
      event.preventDefault();
      look(view.from + (across / plot.width) * span(), span());
    }
  }, { passive: false });
}

/** Handles dragging: one finger or the mouse scrolls, two fingers zoom. */
function listenToPointers() {
  const down = new Map();
  const places = () => [...down.values()].map((x) => x - canvas.getBoundingClientRect().left);
  canvas.addEventListener("pointerdown", (event) => {
    down.set(event.pointerId, event.clientX);
    canvas.setPointerCapture(event.pointerId);
    hover(event);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!down.has(event.pointerId)) return hover(event);
    const before = places();
    const times = before.map(timeOf);
    down.set(event.pointerId, event.clientX);
    const after = places();
    if (before.length === 1 && before[0] !== after[0]) {
      leave();
      look(view.from + times[0] - timeOf(after[0]), span());
    } else if (before.length === 2 && Math.abs(after[1] - after[0]) > 4) {
      // The times below the fingers stay in place.
      const perPixel = (times[1] - times[0]) / (after[1] - after[0]);
      if (perPixel > 0) look(times[0] - (after[0] - plot.gutter) * perPixel, perPixel * plot.width);
    }
  });
  const up = (event) => down.delete(event.pointerId);
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  // A finger leaves immediately after a tap; the tooltip remains.
  canvas.addEventListener("pointerleave", (event) => {
    if (event.pointerType !== "touch") leave();
  });
  canvas.addEventListener("dblclick", (event) => {
    zoom(1 / 3, timeOf(event.clientX - canvas.getBoundingClientRect().left));
  });
}

/** Handles the overview: a drag selects a part of the run, a click scrolls to a time. */
function listenToMap() {
  let begin = null;
  const at = (event) => {
    const { left, width } = map.getBoundingClientRect();
    return Math.max(0, Math.min(1, (event.clientX - left) / width)) * run.end;
  };
  map.addEventListener("pointerdown", (event) => {
    begin = { x: event.clientX, time: at(event) };
    map.setPointerCapture(event.pointerId);
  });
  map.addEventListener("pointermove", (event) => {
    if (begin && Math.abs(event.clientX - begin.x) > 4) {
      look(Math.min(begin.time, at(event)), Math.abs(at(event) - begin.time));
    }
  });
  map.addEventListener("pointerup", (event) => {
    if (begin && Math.abs(event.clientX - begin.x) <= 4) look(at(event) - span() / 2, span());
    begin = null;
  });
  map.addEventListener("pointercancel", () => { begin = null; });
}

function startTimeline() {
  byId("still").hidden = true;
  byId("live").hidden = false;
  byId("jumps").hidden = marks.length === 0;
  byId("tall").style.height = `${total}px`;
  const resize = () => {
    canvas.style.height = `${Math.min(total, box.clientHeight)}px`;
    repaint();
  };
  readColors();
  listenToKeys();
  listenToWheel();
  listenToPointers();
  listenToMap();
  box.addEventListener("scroll", repaint);
  new ResizeObserver(resize).observe(box);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readColors();
    repaint();
  });
  for (const button of document.querySelectorAll("[data-do]")) {
    button.addEventListener("click", deeds[button.dataset.do]);
  }
  for (const button of document.querySelectorAll(".show")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      show(marks.find(({ nth }) => nth === Number(button.dataset.overlap)));
      byId("timeline").scrollIntoView();
      canvas.focus({ preventScroll: true });
    });
  }
}

function startCopy() {
  const button = byId("copy");
  const command = byId("command");
  const copyByHand = () => {
    getSelection().selectAllChildren(command);
    return document.execCommand("copy");
  };
  button.hidden = false;
  button.addEventListener("click", async () => {
    let isCopied = true;
    try {
      await navigator.clipboard.writeText(command.textContent);
    } catch {
      // The clipboard may be unavailable for a page from a file.
      isCopied = copyByHand();
    }
    button.textContent = isCopied ? "Copied" : "Press Ctrl+C";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}

document.documentElement.classList.add("has-script");
startCopy();
if (byId("live")) startTimeline();
