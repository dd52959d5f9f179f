// The window of time that every chart shows, its share of the address, and who wants to know.

class Window {
  constructor(first, last) {
    this.first = first; this.last = last;
    this.t0 = first; this.t1 = last;
    this.listeners = [];
    this.pending = 0;
  }

  // 10 us: finer than the events of a fast flow, coarse enough for axis labels.
  static finest = 1e-5;

  set(t0, t1, write = true) {
    if (!(t1 > t0)) return;
    let span = Math.min(Math.max(t1 - t0, Window.finest), this.last - this.first);
    const middle = (t0 + t1) / 2;
    t0 = Math.min(Math.max(t1 - t0 === span ? t0 : middle - span / 2, this.first), this.last - span);
    this.t0 = t0; this.t1 = t0 + span;
    if (write) this.write();
    if (!this.pending) this.pending = requestAnimationFrame(() => { this.pending = 0; this.tell(); });
  }

  tell() { for (const listener of this.listeners) listener(this.t0, this.t1); }

  all() { this.set(this.first, this.last); }

  whole() { return this.t0 <= this.first && this.t1 >= this.last; }

  zoom(factor, about = (this.t0 + this.t1) / 2) {
    this.set(about - (about - this.t0) * factor, about + (this.t1 - about) * factor);
  }

  pan(share) {
    const by = (this.t1 - this.t0) * share;
    this.set(this.t0 + by, this.t1 + by);
  }

  fragment() {
    const digits = Math.min(6, Math.max(1, Math.ceil(3 - Math.log10(this.t1 - this.t0))));
    return `#t=${this.t0.toFixed(digits)}-${this.t1.toFixed(digits)}`;
  }

  write() {
    const fragment = this.whole() ? "#" : this.fragment();
    try { history.replaceState(null, "", fragment); } catch { /* some browsers refuse on file: */ }
  }

  // "#t=12.3-14.0" -> window; anything else is left to the browser.
  read() {
    const found = /^#t=(-?[\d.]+)-(-?[\d.]+)$/.exec(location.hash);
    if (found) this.set(Number(found[1]), Number(found[2]), false);
    return Boolean(found);
  }
}
