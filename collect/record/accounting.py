"""attempted = recorded + cut + lost: what a recording says of its own completeness, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import BundleError


def account(events: Any, told: dict[str, Any]) -> dict[str, Any]:
    """Per probe, in the first row of each event; and what the kernel says of the programs.

    `events` is the stream with its counters, `told` what the tracer said when it stopped.
    """
    probes = {}
    for tag, attempted in sorted(events.attempted.items()):
        row = tag if tag in events.rows else f"{tag}0"
        recorded, cut = events.rows.get(row, 0), events.cut.get(row, 0)
        lost = attempted - recorded - cut
        probes[tag] = {"attempted": attempted, "recorded": recorded, "cut": cut, "lost": lost}
    programs = told.get("programs", [])
    return {
        "probes": probes,
        "lost": max(events.lost, sum(max(p["lost"], 0) for p in probes.values())),
        "reported_lost_rows": events.lost,
        "runs": sum(p.get("run_cnt", 0) for p in programs) if told.get("counted") else None,
        "missed_runs": sum(p.get("recursion_misses", 0) for p in programs),
        "complete": bool(events.attempted) and not told.get("died") and not told.get("killed"),
    }


def trouble(manifest: dict[str, Any]) -> list[str]:
    """What a user must know before trusting the recording; empty when it is complete."""
    found = []
    if manifest.get("events_lost"):
        found.append(f"{manifest['events_lost']} rows were lost on the way to user space")
    done = manifest.get("completeness") or {}
    if done.get("sequence_missing"):
        found.append(f"{done['sequence_missing']} sequence numbers are missing")
    if done.get("chain_breaks"):
        found.append(f"tp.delivered does not add up at {done['chain_breaks']} calls of main()")
    accounting = manifest.get("accounting") or {}
    if accounting.get("missed_runs"):
        found.append(f"the kernel skipped {accounting['missed_runs']} runs of the probes")
    if accounting and not accounting.get("complete"):
        found.append("bpftrace did not end in order: its counters are missing")
    found += [note for note in manifest.get("notes") or [] if "unloaded" in note]
    ended = str(manifest.get("ended") or "")
    if ended.startswith(("bpftrace ended", "cannot write")):
        found.append(ended)
    return found


def lines(manifest: dict[str, Any]) -> Iterator[str]:
    """The account of a bundle, for a terminal.

    Raises:
        BundleError: the manifest's account is none.
    """
    try:
        yield from _lines(manifest)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BundleError(
            f"the manifest's account makes no sense ({type(error).__name__}: {error})",
            "was it changed by hand? record again",
        ) from error


def counted(number: Any) -> str:
    """A count of the kernel's that not every kernel keeps, nor every collector asks for."""
    return "not counted" if number is None else f"{int(number):,}"


def _lines(manifest: dict[str, Any]) -> Iterator[str]:
    yield f"recorded by {manifest.get('probe')}; ended: {manifest.get('ended') or 'not told'}"
    for step in manifest.get("ladder") or []:
        yield f"  {step['rung']} {step['outcome']}: {step['reason']}"
    accounting = manifest.get("accounting")
    if accounting is None:
        yield "nothing was counted in the kernel"
    else:
        heads = ("attempted", "recorded", "cut", "lost")
        yield "".join([f"{'probe':<6}", *(f"{head:>12}" for head in heads)])
        for tag, counts in accounting["probes"].items():
            yield "".join([f"{tag:<6}", *(f"{int(counts[head]):>12,}" for head in heads)])
        runs, missed = (counted(accounting.get(name)) for name in ("runs", "missed_runs"))
        yield f"runs of the probes: {runs}; skipped: {missed}"
    done = manifest.get("completeness")
    if done is not None:
        told = f"{int(done['events']):,} numbered events of {int(done['sockets']):,} sockets: "
        told += f"{int(done['sequence_missing']):,} numbers missing"
        if manifest.get("probe") != "tcp_probe":
            told += (
                f"; tp.delivered does not add up at {int(done['chain_breaks']):,} calls of main()"
            )
        yield told
    for change in manifest.get("settings_changed") or []:
        yield f"changed while recording: {change}"
