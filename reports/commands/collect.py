"""``bbrscope collect``: record a run bundle on this host."""

from __future__ import annotations

import re
import time
from pathlib import Path

import click

from ...collect.errors import BbrscopeError
from ...collect.rungs import LADDER

# Rows that are not the first of an event.
NO_EVENTS = ("X", "IX", "P", "P0", "N", "R", "K")
SIZES = {"k": 10**3, "m": 10**6, "g": 10**9, "": 1}


def parse_size(_context: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """Turn 500M into bytes."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgG]?)(?:i?[bB])?", value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not a size like 500M or 2G")
    return int(float(match[1]) * SIZES[match[2].lower()])


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("-d", "--duration", type=click.FloatRange(min=0.1), help="Seconds to record.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Bundle folder to write.")
@click.option("--port", multiple=True, type=click.IntRange(1, 65535), help="Only this port.")
@click.option("--address", multiple=True, help="Only this IPv4 or IPv6 address, either end.")
@click.option("--pid", multiple=True, type=click.IntRange(min=1), help="Only this process.")
@click.option("--cgroup", multiple=True, help="Only sockets created in this cgroup (v2).")
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
@click.option("--ring", default=16384, show_default=True, help="tcpdump's ring, KiB.")
@click.option("--buffer", default="256M", callback=parse_size, help="Memory for rows [256M].")
@click.option("--max-size", callback=parse_size, help="End cleanly at this size, e.g. 2G.")
@click.option("--anonymize", is_flag=True, help="Replace addresses, keeping prefixes in common.")
@click.option("--print-probe", is_flag=True, help="Print the bpftrace program and exit.")
@click.option("--print-script", is_flag=True, help="Print a shell script that needs no Python.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def command(
    command: tuple[str, ...],
    duration: float | None,
    output: Path | None,
    port: tuple[int, ...],
    address: tuple[str, ...],
    pid: tuple[int, ...],
    cgroup: tuple[str, ...],
    netns: str | None,
    bbr: str | None,
    rung: str | None,
    interface: str | None,
    queue: str | None,
    no_packets: bool,
    ring: int,
    buffer: int,
    max_size: int | None,
    anonymize: bool,
    print_probe: bool,
    print_script: bool,
    quiet: bool,
) -> None:
    """Record every BBR decision input on this host into a bundle.

    Probes are attached first; then COMMAND runs, or -d seconds pass, or you press Ctrl-C.
    Exit status 1 says that events were lost or the recording ended badly; what there is stays
    usable.

    \b
    Examples:
      sudo bbrscope collect -- iperf3 -c 192.0.2.7
      sudo bbrscope collect -d 30 --port 443 -o edge7
      sudo bbrscope collect --netns s1 -i r:bottleneck -- ip netns exec s1 iperf3 -c 10.0.9.2
      bbrscope collect --rung inet_diag -d 60          (no root: ss-level samples only)
      bbrscope collect --print-script > collect.sh     (for hosts without Python)
    """
    from ...collect.record import filters, session

    if print_script:
        from ...collect.record.script import script

        click.echo(script(), nl=False)
        return
    select = filters.Filters(port, address, pid, cgroup, netns)
    name = output or Path(time.strftime("bbr-%Y%m%d-%H%M%S"))
    plan = session.Plan(
        output=name,
        command=command,
        duration_s=duration,
        select=select,
        bbr=bbr,
        rung=rung,
        interface=interface,
        packets=not no_packets,
        ring_kib=ring,
        queue=queue,
        max_bytes=max_size,
        buffer_bytes=buffer,
        quiet=quiet,
    )
    if print_probe:
        show_probe(plan)
        return
    path, manifest = session.run(plan, lambda text: click.echo(text, err=True))
    if anonymize:
        from ...collect.record.anonymize import anonymize as replace_addresses

        replace_addresses(path)
    report(path, manifest)


def show_probe(plan: object) -> None:
    """Print the program of the first rung that this host does not rule out."""
    from ...collect.record import session

    assert isinstance(plan, session.Plan)
    prepared = session.prepare(plan)
    for step in prepared.steps:
        if step.attach is not None:
            click.echo(session.program(prepared, step.attach, plan.select), nl=False)
            return
    reasons = prepared.problems or [f"{step.rung}: {step.reason}" for step in prepared.steps]
    raise BbrscopeError("no probe fits this host: " + "; ".join(reasons), "bbrscope doctor")


def report(path: Path, manifest: dict[str, object]) -> None:
    """Say what was recorded; exit 1 when it is not complete."""
    from ...collect.record.accounting import trouble

    rows = manifest["events"]
    assert isinstance(rows, dict)
    counted = sum(
        n for tag, n in rows.items() if tag[-1] not in "123456789" and tag[:2] not in NO_EVENTS
    )
    completeness = manifest.get("completeness")
    flows = completeness["sockets"] if isinstance(completeness, dict) else 0
    told = f"{counted} events of {flows} flows"
    if manifest["probe"] == "inet_diag":
        told = f"{manifest['samples']} samples of all flows"
    click.echo(f"{path}: {told} by {manifest['probe']}", err=True)
    click.echo(f"  ended: {manifest['ended']}", err=True)
    notes = manifest["notes"]
    assert isinstance(notes, list)
    for note in notes:
        click.echo(f"  note: {note}", err=True)
    if problems := trouble(manifest):
        way_out = f"bbrscope doctor --bundle {path} has the account"
        way_out += "; a larger --buffer loses less" if manifest["events_lost"] else ""
        raise BbrscopeError(
            f"{path} is kept, but it is not complete: " + "; ".join(problems), way_out
        )
    click.echo(f"  next: bbrscope ingest {path}", err=True)
