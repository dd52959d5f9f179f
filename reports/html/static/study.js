"use strict";
// Draw every chart of the study. Colours are CSS variables, so a change of theme draws nothing anew.
(() => {
  const specs = JSON.parse(document.getElementById("data").textContent);
  const drawn = [...document.querySelectorAll("[data-chart]")].map((place) =>
    vegaEmbed(place, specs[Number(place.dataset.chart)], {
      mode: "vega",
      renderer: "svg",
      actions: false,
      tooltip: { theme: "custom" },
    }),
  );
  window.bbrscope = { charts: [], ready: false };
  Promise.all(drawn).then((all) => {
    window.bbrscope = { charts: all.map((each) => each.view), ready: true };
  });
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
})();
