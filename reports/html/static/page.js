// Puts the page together: data, charts, tables, the window in the address, print.

const DATA = JSON.parse(document.getElementById("data").textContent);
const win = new Window(DATA.t0, DATA.t1);

function flowOf(about) {
  const signals = {}, lanes = {};
  for (const signal of about.signals) signals[signal.key] = new Signal({ ...signal, end: about.end });
  for (const [lane, spans] of Object.entries(about.lanes)) lanes[lane] = new Spans(spans);
  return { signals, lanes, gaps: new Spans(about.gaps), number: about.flow };
}

const flows = DATA.flows.map(flowOf);
const panels = [...document.querySelectorAll(".panel")].map((box) => {
  const about = DATA.panels[box.dataset.panel];
  return new Panel(box, { ...about, spec: DATA.specs[about.spec] }, flows[about.flow], flows[about.bands ?? about.flow], win);
});

const stills = [...document.querySelectorAll("[data-still]")].map((plot) => new Still(plot, DATA.stills[plot.dataset.still]));

const sight = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const panel = panels.find((one) => one.box === entry.target);
    panel.seen = entry.isIntersecting;
    if (panel.seen) panel.draw();
  }
}, { rootMargin: "400px 0px" });
const sharp = new IntersectionObserver((entries) => {
  for (const entry of entries) panels.find((one) => one.box === entry.target).inside = entry.isIntersecting;
});
new ResizeObserver(() => {
  if (!Panel.printing) for (const one of [...panels, ...stills]) one.refresh();
}).observe(document.body);

let spoken = 0;
function point(time, aloud = false) {
  for (const panel of panels) if (panel.seen) panel.point(time);
  const clock = document.getElementById("clock");
  clock.textContent = Number.isFinite(time) ? `${time.toFixed(4)} s` : "";
  if (!aloud) return;
  clearTimeout(spoken);
  // Wait until the key is let go: a screen reader should say where one ended, not every step.
  spoken = setTimeout(() => {
    const focused = panels.find((panel) => panel.plot === document.activeElement);
    const said = (focused ? focused.chips : []).map((chip) => chip.textContent.trim()).join(", ");
    document.getElementById("aloud").textContent = `${time.toFixed(3)} seconds: ${said}`;
  }, 400);
}

function home() { win.all(); }

for (const panel of panels) { listen(panel, win, point, home); sight.observe(panel.box); sharp.observe(panel.box); }

const from = document.getElementById("from"), to = document.getElementById("to");
const rows = [...document.querySelectorAll("tr[data-a]")];
let still = 0;
win.listeners.push((t0, t1) => {
  Panel.moving = true;
  for (const panel of panels) panel.refresh();
  clearTimeout(still);
  still = setTimeout(settle, 150);
  from.value = t0.toFixed(3); to.value = t1.toFixed(3);
  document.body.classList.toggle("zoomed", !win.whole());
  for (const row of rows) {
    const inside = !win.whole() && Number(row.dataset.b) >= t0 && Number(row.dataset.a) <= t1;
    row.classList.toggle("inside", inside);
  }
});

function settle() {
  Panel.moving = false;
  for (const panel of panels) panel.refresh();
}

for (const box of [from, to])
  box.addEventListener("change", () => win.set(Number(from.value), Number(to.value)));
const buttons = {
  earlier: () => win.pan(-0.5), later: () => win.pan(0.5),
  closer: () => win.zoom(0.5), wider: () => win.zoom(2), whole: home,
  copy: () => navigator.clipboard?.writeText(location.href.split("#")[0] + win.fragment()),
  theme: () => {
    const root = document.documentElement;
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  },
};
for (const [name, action] of Object.entries(buttons))
  document.getElementById(name).addEventListener("click", action);

// A row of a table is a link to its time; the whole row may be clicked.
document.addEventListener("click", (event) => {
  const row = event.target.closest("tr[data-a]");
  if (row && !event.target.closest("a") && !String(getSelection())) show(row);
  const link = event.target.closest("a[href^='#t=']");
  if (link && link.getAttribute("href") === location.hash) win.read();
  if (link) reveal(link.closest("tr, .shared, .finding"));
});

function show(row) {
  location.hash = row.querySelector("a").getAttribute("href");
  reveal(row);
}

// Bring the charts of a row's or finding's flow into sight, unless some of them are.
function reveal(place) {
  for (const other of rows) other.classList.toggle("chosen", other === place);
  const flow = place?.closest(".flow") || document.getElementById(`flow-${place?.dataset.flow}`);
  const charts = (flow || document).querySelector(".charts");
  const { top, bottom } = charts.getBoundingClientRect();
  if (bottom < 200 || top > innerHeight - 200) charts.scrollIntoView({ block: "start" });
}

for (const box of document.querySelectorAll("input[data-bound]")) {
  const list = box.closest(".list");
  box.addEventListener("change", () => {
    for (const row of list.querySelectorAll(`tr[data-what="${box.dataset.bound}"]`)) row.hidden = !box.checked;
  });
}

// On a phone, more than three findings unfolded push the charts screens away.
if (matchMedia("(max-width: 40rem)").matches) {
  for (const fold of document.querySelectorAll("details.later")) fold.open = false;
}

window.addEventListener("hashchange", () => win.read());
const opened = [];
window.addEventListener("beforeprint", () => {
  for (const fold of document.querySelectorAll("details:not([open])")) { fold.open = true; opened.push(fold); }
  Panel.printing = 690; Panel.moving = false;
  for (const one of [...panels, ...stills]) one.refresh(true);
});
window.addEventListener("afterprint", () => {
  for (const fold of opened.splice(0)) fold.open = false;
  Panel.printing = 0;
  for (const one of [...panels, ...stills]) one.refresh();
});

// The charts out of sight come when there is time, so that printing finds them all.
const idle = window.requestIdleCallback || ((task) => setTimeout(task, 200));
for (const panel of panels) idle(() => panel.make());

if (!win.read()) win.set(DATA.window[0], DATA.window[1], false);
window.bbrscope = { win, panels, stills, flows };
