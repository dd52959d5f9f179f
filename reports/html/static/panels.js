// One Vega view per chart. Only charts in sight are drawn; the others wait until they are.

const PADDING = { left: 62, right: 14 };

class Panel {
  // Widths on paper, in CSS pixels: the layout of the page to come is not known before. Charts over
  // time stand two in a row there.
  static printing = 0;
  // While the window moves, only charts in view are drawn, with half the detail: it must keep up
  // with the hand. The rest follows as soon as it stands still.
  static moving = false;
  // `bands`: the flow whose phases stand behind.
  constructor(box, about, flow, bands, win) {
    Object.assign(this, { box, about, flow, bands, win });
    this.plot = box.querySelector(".plot");
    this.chips = [...box.querySelectorAll(".chip")];
    this.hidden = new Set();
    this.view = null; this.dirty = true; this.seen = false; this.inside = false;
    this.cursor = this.plot.appendChild(element("div", "cursor"));
    this.brush = this.plot.appendChild(element("div", "brush"));
    for (const chip of this.chips) chip.addEventListener("click", () => this.toggle(chip));
  }

  get width() {
    const outer = Panel.printing / 2 || this.plot.clientWidth;
    return Math.max(80, outer - PADDING.left - PADDING.right);
  }

  toggle(chip) {
    const on = chip.getAttribute("aria-pressed") !== "true";
    chip.setAttribute("aria-pressed", on);
    if (on) this.hidden.delete(chip.dataset.key); else this.hidden.add(chip.dataset.key);
    this.refresh(true);
  }

  refresh(now = false) {
    this.dirty = true;
    if (now || (Panel.moving ? this.inside : this.seen)) this.draw();
  }

  draw() {
    if (!this.dirty) return;
    if (!this.view) { this.make(); return; }
    this.dirty = false;
    const { t0, t1 } = this.win, width = this.width;
    this.view.width(width).signal("t0", t0).signal("t1", t1);
    for (const [name, rows] of Object.entries(this.data(t0, t1, width, Panel.moving ? width / 2 : width))) this.view.data(name, rows);
    this.view.run();
  }

  // Views come into being asynchronously; drawing follows as soon as there is one.
  make() {
    if (this.making) return;
    const mount = this.plot.insertBefore(element("div", "mount"), this.plot.firstChild);
    const options = {
      mode: "vega", renderer: "svg", actions: false, tooltip: false, hover: false,
      defaultStyle: false, logLevel: 1,
    };
    this.making = vegaEmbed(mount, structuredClone(this.about.spec), options).then(({ view }) => {
      this.view = view;
      this.draw();
    });
  }

  // Rows for every mark. Bands behind are a hint: three pixels wide, they tell as much as one.
  data(t0, t1, width, detail) {
    if (this.about.lanes) return this.laneData(t0, t1, width);
    const gaps = this.flow.gaps, out = { bands: [], gaps: gaps.rows(t0, t1, detail) };
    if (this.bands.lanes.phase) out.bands = this.bands.lanes.phase.rows(t0, t1, detail / 3);
    for (const shape of this.about.shapes) out[`${shape}s`] = [];
    for (const key of this.about.keys) {
      if (this.hidden.has(key)) continue;
      const signal = this.flow.signals[key], rows = signal.rows(t0, t1, detail, gaps);
      const list = out[`${signal.shape}s`];
      for (const row of rows) list.push(row);
    }
    return out;
  }

  laneData(t0, t1, width) {
    const lanes = [], labels = [], pixels = width / (t1 - t0);
    for (const [lane, spans] of Object.entries(this.flow.lanes)) {
      for (const row of spans.rows(t0, t1, width)) {
        lanes.push({ lane: this.about.lanes[lane], ...row });
        if ((row.b - row.a) * pixels > 7 * row.c.length + 6)
          labels.push({ lane: this.about.lanes[lane], m: (row.a + row.b) / 2, label: this.label(row.c) });
      }
    }
    return { lanes, labels };
  }

  label(category) { return this.about.labels?.[category] || category; }

  timeAt(clientX) {
    const x = clientX - this.plot.getBoundingClientRect().left - PADDING.left;
    return this.win.t0 + (x / this.width) * (this.win.t1 - this.win.t0);
  }

  pixelAt(time) {
    return PADDING.left + ((time - this.win.t0) / (this.win.t1 - this.win.t0)) * this.width;
  }

  // Show the values at an instant in the legend; NaN clears it.
  point(time) {
    const inside = time >= this.win.t0 && time <= this.win.t1;
    this.cursor.style.display = inside ? "block" : "none";
    if (inside) this.cursor.style.left = `${this.pixelAt(time)}px`;
    const near = (3 / this.width) * (this.win.t1 - this.win.t0);
    for (const chip of this.chips) {
      const text = inside ? this.read(chip.dataset.key, time, near) : "";
      chip.querySelector("output").textContent = text;
    }
  }

  read(key, time, near) {
    if (this.about.lanes) return this.label(this.flow.lanes[key].at(time));
    if (this.flow.gaps.covers(time)) return "gap";
    const signal = this.flow.signals[key];
    if (signal.shape === "area") return signal.spread(time, format);
    const value = signal.at(time, near), other = this.about.against[key];
    const gap = other ? this.flow.signals[other]?.at(time, near) - value : NaN;
    if (!Number.isFinite(gap)) return format(value);
    return `${format(value)} (${other} ${gap < 0 ? "\u2212" : "+"}${format(Math.abs(gap))})`;
  }

  select(from, to) {
    const left = this.pixelAt(Math.min(from, to)), right = this.pixelAt(Math.max(from, to));
    Object.assign(this.brush.style, { display: "block", left: `${left}px`, width: `${right - left}px` });
  }
}

// A chart without a time axis: it only follows the width of the page.
class Still {
  constructor(plot, spec) {
    this.plot = plot;
    const options = {
      mode: "vega", renderer: "svg", actions: false, tooltip: false, hover: false,
      defaultStyle: false, logLevel: 1,
    };
    const { left, right } = spec.padding;
    this.around = left + right;
    this.made = vegaEmbed(plot, spec, options).then(({ view }) => { this.view = view; this.refresh(); });
  }

  refresh() {
    const outer = Panel.printing || this.plot.clientWidth;
    this.view?.width(Math.max(80, outer - this.around)).run();
  }
}

function element(tag, name) {
  const made = document.createElement(tag);
  made.className = name;
  return made;
}

function format(value) {
  if (!Number.isFinite(value)) return "\u2013";
  if (Number.isInteger(value)) return String(value);
  return value.toFixed(Math.abs(value) < 10 ? 2 : 1);
}
