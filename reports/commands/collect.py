"""``bbrscope collect``: record a run bundle on this host."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ...collect.bundle.rungs import LADDER
from ...probes.base.errors import BbrscopeError
from ...probes.base.plurals import plural
from ..options import gather
from ..text.screen import say

if TYPE_CHECKING:
    from ...collect.record.filters import Filters
    from ...collect.record.plan import RecordingPlan

# Rows that are not the first of an event.
NO_EVENTS = ("X", "IX", "P", "P0", "N", "R", "K")
# As powers of 1000; of 1024 with an i: MiB.
SIZES = {"": 0, "k": 1, "m": 2, "g": 3}


def parse_sample(_context: click.Context, _param: click.Parameter, value: str) -> int:
    """Turn 1/64 into 64.

    Raises:
        click.BadParameter: it is not 1/N.
    """
    match = re.fullmatch(r"1/([1-9]\d{0,5})", value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not a share like 1/64")
    return int(match[1])


def parse_percent(
    _context: click.Context, _param: click.Parameter, value: str | None
) -> float | None:
    """Turn 5% into 5.0.

    Raises:
        click.BadParameter: it is no percentage above 0.
    """
    if value is None:
        return None
    match = re.fullmatch(r"(\d{1,4}(?:\.\d{1,3})?)%?", value)
    if match is None or not float(match[1]):
        raise click.BadParameter(f"{value!r} is not a part of a CPU like 5%")
    return float(match[1])


def parse_size(_context: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """Turn 500M or 64MiB into bytes.

    Raises:
        click.BadParameter: it is no size.
    """
    if value is None:
        return None
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)(?:([kKmMgG])(i?))?[bB]?", value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not a size like 500M, 64MiB or 2G")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** SIZES[(match[2] or "").lower()])


@dataclass(frozen=True)
class CollectRequest:
    """The options of `collect` that say what to record, and how."""

    command: tuple[str, ...]
    duration: float | None
    output: Path | None
    port: tuple[int, ...]
    address: tuple[str, ...]
    pid: tuple[int, ...]
    cgroup: tuple[str, ...]
    netns: str | None
    bbr: str | None
    rung: str | None
    interface: str | None
    queue: str | None
    no_packets: bool
    snaplen: int | None
    ring: int
    buffer: int
    max_size: int | None
    as_root: bool
    wait: bool
    load_module: bool
    quiet: bool
    last: str | None
    until: tuple[str, ...]
    after: str
    memory: int
    keep: int | None
    rotate: str | None
    sample: int
    phases: bool
    max_cpu: float | None

    def plan(self) -> RecordingPlan:
        """Return what to do on this host; a bundle without a name is named after the time.

        Raises:
            click.UsageError: COMMAND would open the socket that --wait waits for.
        """
        from ...collect.record.plan import RecordingPlan

        if self.wait and self.command:
            raise click.UsageError(
                "--wait waits for a socket that COMMAND would open: use --load-module"
            )
        return RecordingPlan(
            output=self.output or Path(time.strftime("bbr-%Y%m%d-%H%M%S")),
            command=self.command,
            duration_s=self.duration,
            select=self._filters(),
            bbr=self.bbr,
            rung=self.rung,
            interface=self.interface,
            packets=not self.no_packets,
            snaplen=self.snaplen,
            ring_kib=self.ring,
            queue=self.queue,
            max_bytes=self.max_size,
            buffer_bytes=self.buffer,
            quiet=self.quiet,
            as_root=self.as_root,
            wait=self.wait,
            load_module=self.load_module,
            max_cpu=self.max_cpu,
        )

    def _filters(self) -> Filters:
        from ...collect.record.filters import Filters

        which = self.port, self.address, self.pid, self.cgroup, self.netns
        return Filters(*which, self.sample, self.phases)


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("-d", "--duration", type=click.FloatRange(min=0.1), help="Seconds to record.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Bundle folder to write.")
@click.option("--port", multiple=True, type=click.IntRange(1, 65535), help="Only this port.")
@click.option("--address", multiple=True, help="Only this IPv4 or IPv6 address, either end.")
@click.option(
    "--pid",
    multiple=True,
    type=click.IntRange(min=1),
    help="Only what this process connects, listens for or is handed.",
)
@click.option("--cgroup", multiple=True, help="Only sockets created in this cgroup (v2) itself.")
@click.option("--netns", help="Only this network namespace (ip netns list).")
@click.option("--bbr", type=click.Choice(["v1", "v2", "v3"]), help="Which BBR, if there are two.")
@click.option(
    "--rung",
    type=click.Choice([rung.name for rung in LADDER]),
    help="Attach this way or not at all, instead of the best that holds.",
)
@click.option("-i", "--interface", help="DEV or NETNS:DEV for packets and queue [by route].")
@click.option("--queue", help="Sample the queue of DEV, NETNS:DEV or ssh://HOST/DEV instead.")
@click.option("--no-packets", is_flag=True, help="Do not run tcpdump.")
@click.option(
    "--snaplen",
    type=click.IntRange(64, 262144),
    help="Keep this much of each packet, payload included [its headers only].",
)
@click.option("--ring", default=16384, show_default=True, help="tcpdump's ring buffer, KiB.")
@click.option("--buffer", default="256M", callback=parse_size, help="Memory for rows [256M].")
@click.option("--max-size", callback=parse_size, help="End cleanly at this size, e.g. 2G.")
@click.option("--as-root", is_flag=True, help="Run COMMAND as root, not as who called sudo.")
@click.option("--wait", is_flag=True, help="Wait until a socket asks for BBR, if none has yet.")
@click.option("--load-module", is_flag=True, help="modprobe tcp_bbr, if no BBR is loaded.")
@click.option("--last", metavar="TIME", help="Flight recorder: keep this much in memory, e.g. 60s.")
@click.option("--until", multiple=True, metavar="TRIGGER", help="Write a bundle when this happens.")
@click.option(
    "--after", default="1s", show_default=True, help="After a trigger, record this much longer."
)
@click.option(
    "--memory", default="256M", callback=parse_size, help="Memory of the flight recorder [256M]."
)
@click.option(
    "--rotate", metavar="TIME", help="Write everything, a bundle every TIME with flows: 10m."
)
@click.option(
    "--sample", default="1/1", callback=parse_sample, help="Record this share of flows: 1/64 [all]."
)
@click.option("--phases", is_flag=True, help="Record only where BBR's phase changes.")
@click.option(
    "--max-cpu",
    callback=parse_percent,
    help="Record fewer flows above this, e.g. 5% of a CPU; writing a bundle is left out.",
)
@click.option(
    "--keep", type=click.IntRange(min=1), help="Keep only so many of its bundles, the newest [all]."
)
@click.option("--follow", is_flag=True, help="Print the story of the flows as it happens.")
@click.option("--anonymize", is_flag=True, help="Replace addresses, keeping prefixes in common.")
@click.option("--print-probe", is_flag=True, help="Print the bpftrace program and exit.")
@click.option("--print-unit", is_flag=True, help="Print a systemd unit of a flight recorder.")
@click.option("--print-script", is_flag=True, help="Print a shell script that needs no Python.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@gather(CollectRequest)
def command(
    request: CollectRequest,
    anonymize: bool,
    follow: bool,
    print_probe: bool,
    print_unit: bool,
    print_script: bool,
) -> None:
    """Record every BBR decision input on this host into a bundle.

    Probes are attached first; then COMMAND runs, or -d seconds pass, or you press Ctrl-C.
    Exit status 1 says that events were lost, that nothing was recorded, or that the recording
    ended badly; what there is stays usable. Else it is COMMAND's own. Under sudo, COMMAND runs as
    the user who called it.

    \b
    Examples:
      sudo bbrscope collect -- iperf3 -c 192.0.2.7
      sudo bbrscope collect -d 30 --port 443 -o edge7
      sudo bbrscope collect --as-root --netns s1 -i r:eth1 -- ip netns exec s1 iperf3 -c 10.0.9.2
      sudo bbrscope collect --wait -d 60               (tcp_bbr is not loaded yet)
      sudo bbrscope collect --follow -d 60             (and tell what flows decide meanwhile)
      sudo bbrscope collect --phases --max-cpu 5% -d 3600   (phase changes only: little overhead)
      bbrscope collect --rung inet_diag -d 60          (no root: ss-level samples only)
      bbrscope collect --print-script > collect.sh     (for hosts without Python)
    \b
    Flight recorder: --last keeps the last seconds in bounded memory, and each --until writes them
    as an ordinary bundle when it happens; then it goes on. After its bundle a trigger writes no
    other until half of --last has passed; how often it fired meanwhile is told. Triggers:
      signal            kill -USR1 of bbrscope (always, whatever else is waited for)
      rto               a retransmission timeout
      rate<5mbit/3s     a flow with data in flight delivers less than that for so long
      losses>=100/1s    a flow loses so many packets within that time
      CODE              a decision, e.g. PRTT_ENTER_EXPIRED (all: bbrscope schema --codes)
      sql:CONDITION     of any event, by columns of the table events: sql:tp_srtt_us/8 > 200000
      sudo bbrscope collect --last 60s --until rto --until 'rate<1mbit/5s' -o edge7
      sudo bbrscope collect --rotate 10m --keep 100 --sample 1/64 -o edge7   (for weeks)
      bbrscope collect --print-unit > /etc/systemd/system/bbrscope.service
    """
    if print_script:
        from ...collect.record.script import script

        say(script(), nl=False)
    elif print_probe:
        show_probe(request.plan())
    elif print_unit:
        from ..live.flight import unit

        say(unit(), nl=False)
    elif request.last is not None or request.rotate is not None:
        from ..live.flight import record_flight

        if anonymize or follow or request.max_size is not None:
            raise click.UsageError(
                "--anonymize, --follow and --max-size are for a recording into one bundle"
            )
        if request.rotate is not None and (request.last is not None or request.until):
            raise click.UsageError("--rotate writes everything: --last and --until do not fit")
        record_flight(request.plan(), request)
    elif request.until or request.keep:
        raise click.UsageError("--until and --keep need --last or --rotate")
    else:
        _record(replace(request.plan(), anonymize=anonymize), follow)


def _record(plan: RecordingPlan, follow: bool) -> NoReturn:
    """Record, say what came of it, and exit as the command that was recorded did."""
    from ...collect.record.recording import run

    onlooker = None
    if follow:
        from ..live.story_printer import StoryPrinter

        onlooker = StoryPrinter()
    path, manifest = run(plan, lambda text: say(text, err=True), onlooker)
    report(path, manifest)
    sys.exit(manifest["command_status"] or 0)


def show_probe(plan: RecordingPlan) -> None:
    """Print the program of the first rung that this host does not rule out.

    Raises:
        BbrscopeError: it rules out all of them.
    """
    from ...collect.record.host.survey import probe_program, survey

    host = survey(plan)
    for step in host.steps:
        if step.attach is not None:
            say(probe_program(host, step.attach, plan.select), nl=False)
            return
    reasons = host.problems or [f"{step.rung}: {step.reason}" for step in host.steps]
    raise BbrscopeError("no probe fits this host: " + "; ".join(reasons), "bbrscope doctor")


def report(path: Path, manifest: dict[str, Any]) -> None:
    """Say what was recorded.

    Raises:
        BbrscopeError: it is not complete, or there is nothing in it.
    """
    from ...collect.record.output.accounting import EMPTY_WAY_OUT, is_empty, no_socket, trouble

    say(f"{path}: {_contents(manifest)} by {manifest['rung']}", err=True)
    say(f"  ended: {manifest['ended']}", err=True)
    for note in manifest["notes"]:
        say(f"  note: {note}", err=True)
    if problems := trouble(manifest):
        way_out = f"bbrscope doctor --bundle {path} has the account"
        way_out += "; a larger --buffer loses less" if manifest["events_lost"] else ""
        raise BbrscopeError(
            f"{path} is kept, but it is not complete: " + "; ".join(problems), way_out
        )
    if is_empty(manifest):
        nothing = no_socket(manifest["setup"]["filters"])
        left = "; what COMMAND leaves running is not waited for: record it by -d or --pid"
        raise BbrscopeError(
            f"{path} is empty: {nothing} while it was recorded",
            EMPTY_WAY_OUT + (left if manifest["command_status"] is not None else ""),
        )
    say(f"  next: bbrscope ingest {path}", err=True)


def _contents(manifest: dict[str, Any]) -> str:
    """Return how much was recorded, in words."""
    if manifest["rung"] == "inet_diag":
        return f"{plural(manifest['polls'], 'poll')} of all flows"
    events = sum(
        rows
        for tag, rows in manifest["events"].items()
        if tag[-1] not in "123456789" and tag[:2] not in NO_EVENTS
    )
    completeness = manifest.get("completeness")
    flows = completeness["flows"] if isinstance(completeness, dict) else 0
    return f"{plural(events, 'event')} of {plural(flows, 'flow')}"
