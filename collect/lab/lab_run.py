"""Making runs: a testbed, a recording around the traffic, and a bundle that says what it is."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...probes.base.errors import HostError
from ..record.filters import Filters
from ..record.output import accounting
from ..record.output.folder import hand_over
from ..record.plan import RecordingPlan
from ..record.recording import run as record
from . import host, testbed, traffic
from .interrupt import InterruptedLabError, in_order
from .lab_points import FlowSpec, LabPoint
from .lab_results import KEY

Say = Callable[[str], None]

LOCK = Path("/run/bbrscope-lab.lock")
# A CPU that works longer than this share of the time is the bottleneck, not the path.
MAX_BUSY = 0.95
CAPACITY_S = 1
PARTIAL = ".partial"


@dataclass(frozen=True)
class LabCaptures:
    """What is recorded beside what iperf3 and ss say: BBR's kernel events, the packets."""

    events: bool = True
    packets: bool = True


@contextmanager
def exclusively() -> Iterator[set[str]]:
    """Hold the lab's lock, end in order at a signal, and unload the modules that came with it.

    Yields the modules that were there before.

    Raises:
        HostError: not root, or another lab is running.
    """
    host.require_root()
    with LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HostError(
                "another lab is running on this host", "wait for it: two would share the CPUs"
            ) from error
        except OSError as error:
            # A guest's kernel may be built without file locks; nobody else is in there.
            if error.errno != errno.ENOSYS:
                raise HostError(f"cannot lock {LOCK}: {error.strerror}") from error
        before = host.loaded_modules()
        priority = os.getpriority(os.PRIO_PROCESS, 0)
        host.yield_to_traffic()
        try:
            with in_order():
                yield before
        finally:
            os.setpriority(os.PRIO_PROCESS, 0, priority)
            host.unload(host.loaded_modules() - before)
            LOCK.unlink(missing_ok=True)


def finished(folder: Path) -> bool:
    """Tell whether `folder` holds a whole run of the lab."""
    try:
        return KEY in json.loads((folder / "manifest.json").read_text())
    except (OSError, ValueError):
        return False


def capacity(point: LabPoint) -> int:
    """Return bit/s that this machine forwards through the testbed, without a bottleneck.

    Measured over one second, before any probe is attached: iperf3's goodput, counted as whole
    Ethernet frames (1514 bytes for 1448 of payload).
    """
    free = replace(
        point.path,
        rate_bps=100_000_000_000,
        rtt_us=1000,
        buffer_bytes=10_000_000,
        loss=0.0,
        reorder=0.0,
        jitter_us=0,
        aggregation_us=0,
        host_bps=0,
        aqm="fifo",
    )
    bulk = FlowSpec(1, "reno", "bulk", 0, CAPACITY_S * 10**6, 0)
    trial = replace(point, path=free, flows=(bulk,), changes=(), duration_us=CAPACITY_S * 10**6)
    with testbed.built(trial), tempfile.TemporaryDirectory() as name, servers(trial, Path(name)):
        command = traffic.client(trial, bulk)
        outcome = json.loads(host.call("ip", "netns", "exec", testbed.SENDERS, *command))
    goodput: float = outcome["end"]["sum_received"]["bits_per_second"]
    return round(goodput * 1514 / 1448)


def refuse_beyond(point: LabPoint, limit_bps: int) -> None:
    """Refuse a run that asks for more than the machine forwards.

    Raises:
        HostError: it does.
    """
    highest = max([point.path.rate_bps, *(int(c.value) for c in point.changes if c.what == "rate")])
    if highest > limit_bps:
        raise HostError(
            f"refused: {highest / 1e6:.0f} Mbit/s, but this machine forwards "
            f"{limit_bps / 1e6:.0f} Mbit/s through the testbed",
            "set a lower rate: --set rate=...",
        )


def one(point: LabPoint, place: str, captures: LabCaptures, folder: Path, say: Say) -> Path:
    """Make one run; return its bundle in `folder`. Once it is there, it is not touched any more.

    Raises:
        HostError: the host cannot make it.
        InterruptedLabError: a signal came; the run is not kept.
    """
    name = point.run_name(os.uname().release)
    with tempfile.TemporaryDirectory(prefix="bbrscope-lab-") as scratch:
        work = Path(scratch)
        plan = traffic.plan(point, work)
        versions = host.bbr_versions(flow.cc for flow in point.flows)
        recording = _recording(work, name, captures, versions)
        with awake(place == "vm") as pid, testbed.built(point), servers(point, work):
            (work / "plan.json").write_text(json.dumps({**plan, "awake": pid}))
            bundle, manifest = record(recording, lambda _text: None)
        if not manifest["ended"].startswith("the command ended"):
            if manifest["ended"].startswith("SIG"):
                raise InterruptedLabError
            raise HostError(f"the recording ended early: {manifest['ended']}", "bbrscope doctor")
        if recording.rung is None and manifest["rung"] not in ("fentry", "kprobe"):
            tried = [step for step in manifest["ladder"] if step["rung"] in ("fentry", "kprobe")]
            why = "; ".join(f"{step['rung']}: {step['reason']}" for step in tried)
            raise HostError(f"the probes cannot attach: {why}", "bbrscope doctor")
        result = work / "traffic.json"
        if not result.exists():
            raise HostError(f"the traffic of {name} ended badly: {manifest['ended']}")
        outcome = json.loads(result.read_text())
        _attach(point, bundle, work)
        if problems := _describe(point, place, manifest, outcome, bundle, versions):
            say(f"  marked invalid: {problems}")
        return _publish(bundle, folder / name)


@contextmanager
def awake(wanted: bool) -> Iterator[int | None]:
    """Keep a guest's CPU from idling but while the traffic runs; yield the pid that does it.

    An idle guest that waits for a file of its host skips time, up to the next timer: timeouts of
    minutes would pass in a moment.
    """
    if not wanted:
        yield None
        return
    spin = ["nice", "-n", "19", "sh", "-c", "while :; do :; done"]
    process = subprocess.Popen(spin, stdin=subprocess.DEVNULL, process_group=0)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def _recording(
    work: Path, name: str, captures: LabCaptures, versions: dict[str, str]
) -> RecordingPlan:
    # Ctrl-C reaches the traffic, too, but it is for the lab to end it.
    command = (
        "env",
        "--ignore-signal=INT",
        sys.executable,
        "-m",
        f"{__package__}.traffic",
        str(work / "plan.json"),
    )
    version = host.recorded(versions)
    return RecordingPlan(
        output=work / name,
        command=command,
        select=Filters(netns=testbed.SENDERS),
        bbr=version,
        rung=None if version and captures.events else "inet_diag",
        interface=testbed.BOTTLENECK,
        packets=captures.packets,
        quiet=True,
        as_root=True,  # it enters namespaces
    )


@contextmanager
def servers(point: LabPoint, work: Path) -> Iterator[None]:
    """Run the receivers; wait until all of them listen."""
    running: list[subprocess.Popen[bytes]] = []
    try:
        for flow in point.flows:
            inside = ["ip", "netns", "exec", testbed.RECEIVERS, *traffic.server(point, flow)]
            with (work / f"server{flow.flow_no}.json").open("wb") as output:
                running.append(
                    subprocess.Popen(
                        inside,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        process_group=0,
                        preexec_fn=host.be_traffic,
                    )
                )
        _wait_listening(len(running))
        yield
        for server in running:
            with suppress(subprocess.TimeoutExpired):
                server.wait(2)
    finally:
        for server in running:
            server.kill()
            server.wait()


def _wait_listening(servers: int) -> None:
    deadline = time.monotonic() + 20 + servers / 5
    while time.monotonic() < deadline:
        listing = host.call("ip", "netns", "exec", testbed.RECEIVERS, "ss", "-tlnH")
        if len(listing.splitlines()) >= servers:
            return
        time.sleep(0.1)
    raise HostError("iperf3 does not listen in the testbed", "try it by hand: iperf3 -s")


def _attach(point: LabPoint, bundle: Path, work: Path) -> None:
    """Put each flow's two outputs into the bundle as one, as iperf3 --get-server-output does."""
    for flow in point.flows:
        report = _loaded(work / f"client{flow.flow_no}.json")
        received = _loaded(work / f"server{flow.flow_no}.json")
        if "error" not in received:
            report["server_output_json"] = received
        text = json.dumps(report)
        (bundle / f"iperf{flow.flow_no}.json").write_text(text)


def _loaded(path: Path) -> dict[str, Any]:
    text = path.read_text(errors="replace") if path.exists() else ""
    try:
        loaded = json.loads(text)
    except ValueError:
        loaded = {"error": text.strip()[-500:] or "it said nothing"}
    return loaded if isinstance(loaded, dict) else {"error": "no object"}


def _describe(
    point: LabPoint,
    place: str,
    manifest: dict[str, Any],
    outcome: dict[str, Any],
    bundle: Path,
    versions: dict[str, str],
) -> str:
    """Write into the manifest which run this is; return why it is not what it says, if so."""
    problems = [
        *outcome["problems"],
        *accounting.trouble(manifest),
        *_failed_flows(point, bundle),
        *_cpu_bound(outcome["cpu_busy"]),
    ]
    manifest["scenario"] = {"id": point.scenario, "description": point.title}
    manifest["setup"] = {**manifest["setup"], **point.params}
    manifest["changes"] = outcome["changes"]
    manifest["traffic_start_uptime_s"] = outcome["boottime_s"]
    manifest[KEY] = {
        **point.described(place),
        "changes": outcome["changes"],
        "cpu_busy": outcome["cpu_busy"],
        "valid": not problems,
        "why_invalid": "; ".join(problems),
        "flows": [_flow(point, flow, outcome, versions) for flow in point.flows],
    }
    (bundle / "manifest.json").write_text(json.dumps(manifest, indent=1, default=str) + "\n")
    return "; ".join(problems)


def _failed_flows(point: LabPoint, bundle: Path) -> Iterator[str]:
    """Yield what iperf3 said of flows that failed; those of a fixed size end by themselves."""
    for flow in point.flows:
        report = _loaded(bundle / f"iperf{flow.flow_no}.json")
        if "error" in report and flow.kind != "fixed-size":
            yield f"flow {flow.flow_no}: iperf3 said {report['error']!r:.200}"


def _cpu_bound(busy: float) -> Iterator[str]:
    if busy > MAX_BUSY:
        yield (
            f"CPU-bound: the busiest CPU worked {busy:.0%} of the time, so the machine was the"
            " bottleneck"
        )


def _flow(
    point: LabPoint, flow: FlowSpec, outcome: dict[str, Any], versions: dict[str, str]
) -> dict[str, Any]:
    launched = outcome["flows"].get(str(flow.flow_no), {}).get("launched_s", flow.start_us / 1e6)
    trips = traffic.ROUND_TRIPS * (point.path.rtt_us + flow.extra_rtt_us) / 1e6
    return flow.described(versions.get(flow.cc), round(launched + trips, 6))


def _publish(bundle: Path, output: Path) -> Path:
    """Bring a bundle to its place: whole, or not at all, also if a guest is ended right after."""
    partial = output.with_name(output.name + PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    try:
        shutil.copytree(bundle, partial)
        for path in partial.iterdir():
            with path.open("rb") as written:
                os.fsync(written.fileno())
        hand_over(partial)
        shutil.rmtree(output, ignore_errors=True)
        partial.rename(output)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise HostError(f"cannot write {output}: {error.strerror}") from error
    return output
