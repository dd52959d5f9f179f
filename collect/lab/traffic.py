"""The traffic of one run: a program of its own, so that `collect` can start it when it records.

    python -m bbrscope.collect.lab.traffic PLAN.json

Starts iperf3 clients and makes the path's changes at their times, waits for all to end, and writes
what happened beside the plan. Every time in it is from the start of the traffic.
"""

from __future__ import annotations

import heapq
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...probes.base.errors import HostError
from . import host, testbed
from .lab_points import FlowSpec, LabPoint

PORT = 5201
# iperf3 needs this many round trips before its first byte of data: control connection and its
# cookie, parameters, data connection, start.
ROUND_TRIPS = 4
# How long a client may take beyond its time before it is ended: a queue must drain, and the
# control connection may have lost packets.
GRACE_S = 60.0


def interval_s(point: LabPoint) -> float:
    """Return the length of iperf3's intervals: a tenth of a second, but 2000 of them at most."""
    return max(0.1, round(point.duration_us / 2e9, 1))


def server(point: LabPoint, flow: FlowSpec) -> list[str]:
    """Return the command of a flow's receiver."""
    words = ["iperf3", "-s", "-1", "-J", "-p", str(PORT + flow.flow_no)]
    return [*words, "-i", f"{interval_s(point):g}"]


def client(point: LabPoint, flow: FlowSpec) -> list[str]:
    """Return the command of a flow's sender."""
    seconds = max(round((flow.stop_us - flow.start_us) / 1e6), 1)
    words = ["iperf3", "-c", testbed.receiver(point, flow.extra_rtt_us)]
    words += ["-p", str(PORT + flow.flow_no), "-C", flow.cc, "-J"]
    if flow.kind == "fixed-size":
        return [*words, "-n", str(flow.size_bytes), "-l", "16K"]
    words += ["-t", str(seconds)]
    if flow.kind == "rate-limited":
        # Blocks of 2 ms, so that the flow is as smooth as its rate allows.
        block = min(max(flow.rate_bps // 4000, 1448), 1 << 20)
        return [*words, "-b", str(flow.rate_bps), "-l", str(block)]
    if flow.kind == "on-off":
        # As much as the path carries while on, in one burst; then wait until the mean is met.
        burst = point.path.rate_bps * flow.on_us // 8_000_000
        block = max(16384, burst // 900)
        count = max(burst // block, 1)
        mean = count * block * 8_000_000 // (flow.on_us + flow.off_us)
        return [*words, "-b", f"{mean}/{count}", "-l", str(block)]
    return words


def plan(point: LabPoint, folder: Path) -> dict[str, Any]:
    """Return what `main` is to do: steps with their times in s, outputs in `folder`."""
    chance = random.Random(point.seed)
    steps: list[dict[str, Any]] = []
    for flow in point.flows:
        late = chance.random() * point.path.rtt_us
        steps.append(
            {
                "at_s": (flow.start_us + late) / 1e6,
                "flow_no": flow.flow_no,
                "command": client(point, flow),
                "output": str(folder / f"client{flow.flow_no}.json"),
                "until_s": flow.stop_us / 1e6 + (GRACE_S if flow.kind != "fixed-size" else 0.0),
            }
        )
    for change in point.changes:
        for at_us, command in testbed.commands(point, change):
            what, value = change.what, change.value
            if at_us != change.at_us:
                what, value = "outage over", 0.0
            steps.append({"at_s": at_us / 1e6, "command": command, "what": what, "value": value})
    return {"steps": steps, "result": str(folder / "traffic.json")}


def main() -> None:
    """Run the traffic of a plan: its flows, its changes, and what they reached."""
    wanted = json.loads(Path(sys.argv[1]).read_text())
    host.be_traffic()
    clients: dict[int, tuple[subprocess.Popen[bytes], float]] = {}
    # The lab is ending the recording: take the senders along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    before = host.cpu_times()
    outcome: dict[str, Any] = {
        "boottime_s": time.clock_gettime_ns(time.CLOCK_BOOTTIME) / 1e9,
        "flows": {},
        "changes": [],
        "problems": [],
    }
    if wanted["awake"]:
        os.kill(wanted["awake"], signal.SIGSTOP)
    start = time.monotonic()

    def now() -> float:
        return time.monotonic() - start

    try:
        follow(wanted["steps"], outcome, clients, now)
        while running := [each for each in clients.values() if each[0].poll() is None]:
            for process, until in running:
                if now() > until:
                    # iperf3 tells what it has when it is interrupted.
                    process.send_signal(signal.SIGINT)
                    wait_or_kill(process)
            time.sleep(0.05)
    finally:
        for process, _ in clients.values():
            process.kill()
        if wanted["awake"]:
            os.kill(wanted["awake"], signal.SIGCONT)
    outcome["seconds"] = now()
    outcome["cpu_busy"] = host.busy(before, host.cpu_times())
    for number, (process, _) in clients.items():
        outcome["flows"][str(number)]["status"] = process.returncode
    result = Path(wanted["result"])
    result.with_suffix(".partial").write_text(json.dumps(outcome))
    os.rename(result.with_suffix(".partial"), result)


def follow(
    steps: list[dict[str, Any]],
    outcome: dict[str, Any],
    clients: dict[int, tuple[subprocess.Popen[bytes], float]],
    now: Callable[[], float],
) -> None:
    """Take every step at its time, and note when that was."""
    due = [(step["at_s"], number, step) for number, step in enumerate(steps)]
    heapq.heapify(due)
    while due:
        at, _, step = heapq.heappop(due)
        time.sleep(max(at - now(), 0))
        if "flow_no" in step:
            outcome["flows"][str(step["flow_no"])] = {"launched_s": now()}
            inside = ["ip", "netns", "exec", testbed.SENDERS, *step["command"]]
            with open(step["output"], "wb") as output:
                process = subprocess.Popen(
                    inside, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
                )
            clients[step["flow_no"]] = (process, step["until_s"])
            continue
        try:
            host.call(*step["command"])
        except HostError as error:
            outcome["problems"].append(error.fact)
        outcome["changes"].append({"at_s": now(), "what": step["what"], "value": step["value"]})


def wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    """Give a client a moment to write its output."""
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()


if __name__ == "__main__":
    main()
