// Mouse, touch and keys on a chart: drag to zoom, shift-drag or one finger to pan, two to pinch.

function listen(panel, win, point, home) {
  const plot = panel.plot, touches = new Map();
  let drag = null;

  plot.addEventListener("pointermove", (event) => {
    if (event.pointerType === "touch") return touchMove(event);
    point(panel.timeAt(event.clientX));
    if (!drag) return;
    if (drag.pan) win.set(...shifted(drag, event.clientX));
    else panel.select(drag.from, panel.timeAt(event.clientX));
  });
  plot.addEventListener("pointerleave", (event) => {
    if (!drag && event.pointerType !== "touch") point(NaN);
  });
  plot.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "touch") {
      touches.set(event.pointerId, event.clientX);
      point(panel.timeAt(event.clientX));
      drag = { x: event.clientX, t0: win.t0, t1: win.t1 };
      return;
    }
    if (event.button !== 0) return;
    plot.setPointerCapture(event.pointerId);
    drag = { from: panel.timeAt(event.clientX), x: event.clientX, t0: win.t0, t1: win.t1, pan: event.shiftKey };
  });
  plot.addEventListener("pointerup", (event) => {
    if (event.pointerType !== "touch" && drag && !drag.pan && Math.abs(event.clientX - drag.x) > 4) {
      const to = panel.timeAt(event.clientX);
      win.set(Math.min(drag.from, to), Math.max(drag.from, to));
    }
    finish(event);
  });
  plot.addEventListener("pointercancel", finish);
  plot.addEventListener("dblclick", () => home());
  plot.addEventListener("wheel", (event) => {
    // A plain wheel scrolls the page; only with a modifier does it mean the chart.
    if (!event.ctrlKey && !event.metaKey && !event.altKey) return;
    event.preventDefault();
    win.zoom(Math.exp(Math.sign(event.deltaY) * 0.2), panel.timeAt(event.clientX));
  }, { passive: false });
  plot.addEventListener("keydown", (event) => {
    if (key(event, win, panel, point, home)) event.preventDefault();
  });

  function finish(event) {
    touches.delete(event.pointerId);
    drag = null;
    panel.brush.style.display = "none";
  }

  function shifted(start, x) {
    const by = ((start.x - x) / panel.width) * (start.t1 - start.t0);
    return [start.t0 + by, start.t1 + by];
  }

  function touchMove(event) {
    if (!touches.has(event.pointerId)) return;
    const before = [...touches.values()];
    touches.set(event.pointerId, event.clientX);
    const after = [...touches.values()];
    if (after.length === 1 && drag) win.set(...shifted(drag, event.clientX));
    if (after.length === 2) {
      const was = Math.abs(before[0] - before[1]), is = Math.abs(after[0] - after[1]);
      if (was > 8 && is > 8) win.zoom(was / is, panel.timeAt((after[0] + after[1]) / 2));
      drag = null;
    }
  }
}

// The keys of a focused chart. The cursor moves by one pixel, with shift the window moves.
function key(event, win, panel, point, home) {
  const pixel = (win.t1 - win.t0) / panel.width;
  const at = Number.isFinite(panel.time) ? panel.time : (win.t0 + win.t1) / 2;
  const move = (by) => {
    panel.time = Math.min(Math.max(at + by, win.t0), win.t1);
    point(panel.time, true);
  };
  const actions = {
    ArrowLeft: () => (event.shiftKey ? win.pan(-0.25) : move(-5 * pixel)),
    ArrowRight: () => (event.shiftKey ? win.pan(0.25) : move(5 * pixel)),
    "+": () => win.zoom(0.5, at),
    "=": () => win.zoom(0.5, at),
    "-": () => win.zoom(2, at),
    0: home,
    Home: home,
    Escape: () => point(NaN),
  };
  const action = actions[event.key];
  if (!action || event.ctrlKey || event.metaKey || event.altKey) return false;
  action();
  return true;
}
