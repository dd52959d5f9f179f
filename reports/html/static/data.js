// Unpacks what pack.py packed, and answers for each signal: what is there to draw in this window?

// Base64, LEB128, zigzag, running sum -> Float64Array. Numbers may pass 2^32, so no bit shifts.
function unpack(text, scale) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  let count = 0;
  for (const byte of bytes) if (byte < 128) count++;
  const out = new Float64Array(count);
  let value = 0, part = 0, unit = 1, index = 0;
  for (const byte of bytes) {
    part += (byte & 127) * unit;
    if (byte >= 128) { unit *= 128; continue; }
    value += part % 2 ? -(part + 1) / 2 : part / 2;
    out[index++] = value * scale;
    part = 0; unit = 1;
  }
  return out;
}

// Index of the last element <= x, or -1.
function lastAtOrBefore(sorted, x) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (sorted[mid] <= x) low = mid + 1; else high = mid;
  }
  return low - 1;
}

class Signal {
  constructor(about) {
    Object.assign(this, about);
    this.t = unpack(about.t, 1e-6);
    const raw = unpack(about.v, 1);
    // -1 says unset; no signal is negative.
    this.v = raw.map((value) => (value < 0 ? NaN : value * about.scale));
    // How far below its value a range reaches.
    this.d = about.d ? unpack(about.d, about.scale) : null;
  }

  // Value at an instant: what holds (step), the nearest measurement (line; equal ones between two
  // equal ones are not kept), or what happened within `near` seconds (stem).
  at(time, near) {
    const i = lastAtOrBefore(this.t, time);
    const instant = this.shape === "stem" || this.shape === "range";
    if (time > this.end || (i < 0 && !instant)) return NaN;
    if (this.shape === "step") return this.v[i];
    const closer = i + 1 < this.t.length && (i < 0 || this.t[i + 1] - time < time - this.t[i]);
    const j = closer ? i + 1 : i;
    if (!instant || (j >= 0 && Math.abs(this.t[j] - time) <= near)) return this.v[j];
    return this.shape === "stem" ? 0 : NaN;
  }

  // Ends of an area at an instant, as text.
  spread(time, format) {
    const i = lastAtOrBefore(this.t, time), j = i + 1 < this.t.length && (i < 0 || this.t[i + 1] - time < time - this.t[i]) ? i + 1 : i;
    if (time > this.end || j < 0 || !Number.isFinite(this.v[j])) return "\u2013";
    return `${format(this.v[j] - this.d[j])} to ${format(this.v[j])}`;
  }

  // Rows for a chart that is `width` pixels wide: of each pixel column the first, the last, the
  // smallest and the largest point, so that no extreme is lost.
  rows(t0, t1, width, gaps) {
    const { t, v, key } = this, out = [];
    const from = Math.max(0, lastAtOrBefore(t, t0));
    const step = (t1 - t0) / Math.max(1, width);
    let gap = lastAtOrBefore(gaps.b, t0) + 1;
    let i = from, last = -1;
    const put = (j) => {
      if (j <= last) return;
      // A line must not run across what was not recorded; a step resumes with what it became.
      while (gap < gaps.a.length && gaps.a[gap] < t[j]) {
        const before = last >= 0 ? last : Math.max(0, j - 1);
        if (this.shape === "step") out.push({ t: gaps.a[gap], v: finite(v[before]), s: key });
        if (!this.d && this.shape !== "stem") out.push({ t: gaps.a[gap], v: null, s: key });
        if (this.shape === "step" && gaps.b[gap] < t[j])
          out.push({ t: gaps.b[gap], v: finite(v[lastAtOrBefore(t, gaps.b[gap])]), s: key });
        gap++;
      }
      out.push(this.d ? { t: t[j], v: finite(v[j]), b: finite(v[j] - this.d[j]), s: key } : { t: t[j], v: finite(v[j]), s: key });
      last = j;
    };
    while (i < t.length && t[i] <= t1) {
      const edge = t[i] + step;
      let low = i, high = i, j = i;
      for (; j < t.length && t[j] < edge && t[j] <= t1; j++) {
        if (!(v[j] >= v[low])) low = j;
        if (!(v[j] <= v[high])) high = j;
      }
      for (const k of [i, low, high, j - 1].sort((a, b) => a - b)) put(k);
      i = j;
    }
    if ((this.shape === "line" || this.shape === "area") && i < t.length) put(i);
    if (this.shape === "step" && last >= 0) {
      const end = Math.min(t1, this.end);
      if (end > t[last]) out.push({ t: end, v: finite(v[last]), s: key });
    }
    if (this.shape === "stem") return out.filter((row) => row.v > 0 && row.t >= t0);
    if (this.shape === "range") return out.filter((row) => row.t >= t0);
    return out;
  }
}

function finite(value) { return Number.isFinite(value) ? value : null; }

class Spans {
  constructor(about) {
    this.a = unpack(about.a, 1e-6);
    this.b = unpack(about.b, 1e-6);
    this.c = about.c ? unpack(about.c, 1) : null;
    this.names = about.names || [];
  }

  covers(time) {
    const i = lastAtOrBefore(this.a, time);
    return i >= 0 && time < this.b[i];
  }

  name(i) { return this.c ? this.names[this.c[i]] : ""; }

  at(time) {
    const i = lastAtOrBefore(this.a, time);
    return i >= 0 && time <= this.b[i] ? this.name(i) : "";
  }

  // Spans in the window. Of those narrower than a pixel, a pixel shows the one that lasted longest.
  rows(t0, t1, width) {
    const out = [], pixel = (t1 - t0) / Math.max(1, width);
    let cell = null, lasted = null;
    for (let i = Math.max(0, lastAtOrBefore(this.a, t0)); i < this.a.length && this.a[i] < t1; i++) {
      const a = Math.max(this.a[i], t0), b = Math.min(this.b[i], t1), c = this.name(i);
      if (b - a >= pixel) {
        out.push({ a, b, c });
        cell = null;
        continue;
      }
      if (!cell || a - cell.a >= pixel || a - cell.b > pixel) {
        out.push((cell = { a, b, c }));
        lasted = {};
      }
      cell.b = b;
      lasted[c] = (lasted[c] || 0) + b - a;
      if (lasted[c] > lasted[cell.c]) cell.c = c;
    }
    return out;
  }
}
