"""How smooth is zooming in a report? Frame times in a real Chromium.

    python tests/bench/bench_zoom.py REPORT.html [--frames 60]

Opens the page (make one with bench_report.py --flows 5 --keep FOLDER), then zooms into the middle
and out again, one step per frame, as a wheel would, and prints the median, 95th percentile and
largest time from one frame to the next, and the CPU time that a frame takes. 60 frames a second
leave 17 ms each; up to 100 ms still feels as if the charts follow the hand.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path

from selenium import webdriver

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run"
    " --disable-background-networking --disable-component-update --disable-sync"
    " --window-size=1400,1000"
).split()
ZOOM = """
const done = arguments[arguments.length - 1], frames = arguments[0], times = [];
const { win } = bbrscope, middle = (win.first + win.last) / 2;
let last = performance.now(), n = 0;
document.querySelector("#charts").scrollIntoView();
function frame(now) {
  times.push(now - last); last = now;
  if (n++ >= frames) { done(times.slice(2)); return; }
  win.zoom(n <= frames / 2 ? 0.8 : 1.25, middle);
  requestAnimationFrame(frame);
}
requestAnimationFrame(frame);
"""


def busy(browser: webdriver.Chrome) -> float:
    """CPU time that the page's own thread has used, in seconds: other work does not disturb it."""
    found = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return float(next(one["value"] for one in found if one["name"] == "TaskDuration"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", type=Path)
    parser.add_argument("--frames", type=int, default=60)
    asked = parser.parse_args()
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        parser.error("needs a browser: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    with tempfile.TemporaryDirectory() as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        try:
            browser.set_script_timeout(300)
            browser.get(asked.report.resolve().as_uri())
            browser.execute_async_script(
                "const done = arguments[0]; const wait = () => window.bbrscope &&"
                " bbrscope.panels.every((panel) => panel.view) ? done() : setTimeout(wait, 50);"
                " wait();"
            )
            browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
            before = busy(browser)
            times = sorted(browser.execute_async_script(ZOOM, asked.frames))
            worked = 1e3 * (busy(browser) - before) / asked.frames
        finally:
            browser.quit()
    print(
        f"{len(times)} frames: median {statistics.median(times):.0f} ms, 95 % within"
        f" {times[int(0.95 * len(times)) - 1]:.0f} ms, longest {times[-1]:.0f} ms;"
        f" {worked:.0f} ms of CPU each on the page's thread"
    )


if __name__ == "__main__":
    main()
