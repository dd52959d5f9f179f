"""Printing what other rules would have decided."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pathlib import Path

    from ..analyze.what_if import Drift, Moment, WhatIf

_MIN_EVENTS = 100  # control connections say nothing about rules


def show(
    names: Sequence[str],
    path: Path,
    settings: Sequence[str],
    as_version: str | None,
    flow: int | None,
    seed: int,
    as_json: bool,
) -> None:
    """Ask for each flow of the runs and print the answers."""
    from ..analyze import session, what_if
    from ..collect.errors import BbrscopeError
    from ..collect.store import open_store

    answers = []
    with open_store(path, read_only=True) as store:
        for name in names or store.runs():
            info = session.run_info(store.con, store.run_id(name))
            values = what_if.parse_settings(settings, as_version or info.flavour)
            chosen = (flow,) if flow is not None else _busy_flows(store.con, info)
            if flow is not None and flow not in info.flows:
                raise BbrscopeError(
                    f"{name} has no flow {flow}", f"it has {', '.join(map(str, info.flows))}"
                )
            answers += [
                what_if.ask(store.con, info, one, values, as_version, seed) for one in chosen
            ]
    if as_json:
        click.echo(json.dumps({"what_if": [asdict(answer) for answer in answers]}))
        return
    for answer in answers:
        _print(answer)


def _busy_flows(con: object, info: object) -> tuple[int, ...]:
    """The run's flows worth asking about: all with a hundred events, or else the busiest."""
    rows = con.execute(  # type: ignore[attr-defined]  # duckdb is imported lazily
        "SELECT flow, events FROM flows WHERE run_id = ? ORDER BY events DESC",
        [info.run_id],  # type: ignore[attr-defined]  # likewise
    ).fetchall()
    busy = sorted(int(flow) for flow, events in rows if events >= _MIN_EVENTS)
    return tuple(busy or [int(flow) for flow, _ in rows[:1]])


def _seconds(moment: Moment) -> str:
    return f"{moment.t_ns / 1e9:.3f} s (event {moment.seq})"


def _print(answer: WhatIf) -> None:
    drift = answer.drift
    rules = f"{answer.as_version}'s rules" if answer.as_version != answer.version else "its rules"
    click.echo(f"{answer.run} flow {answer.flow}: recorded with {answer.version}, under {rules}")
    if answer.as_version == answer.version:
        for name, (old, new) in answer.changed.items():
            click.echo(f"  {name}: {old} -> {new}")
    else:
        click.echo(f"  {len(answer.changed)} parameters differ (--json lists them)")
    for caveat in answer.caveats:
        click.echo(f"  note: {caveat}")
    if answer.first_decision is None:
        click.echo("  Every decision is the same.")
    else:
        only, other = answer.first_decision.recorded, answer.first_decision.other
        click.echo(f"  first different decision: {_seconds(answer.first_decision)}")
        click.echo(f"    recorded:   {', '.join(_without(only, other)) or '(none)'}")
        click.echo(f"    other rules: {', '.join(_without(other, only)) or '(none)'}")
    if drift.first_output is None:
        click.echo("  cwnd and pacing rate are the same throughout: the answer is exact.")
        return
    first = drift.first_output
    click.echo(f"  first different output: {_seconds(first)}")
    click.echo(f"    recorded:   {', '.join(first.recorded)}")
    click.echo(f"    other rules: {', '.join(first.other)}")
    click.echo("  drift over the whole flow    recorded   other rules")
    click.echo(
        f"    mean cwnd (packets)      {drift.mean_cwnd[0]:10.1f}  {drift.mean_cwnd[1]:10.1f}"
    )
    pacing = [rate * 8 / 1e6 for rate in drift.mean_pacing]
    click.echo(f"    mean pacing (Mbit/s)     {pacing[0]:10.2f}  {pacing[1]:10.2f}")
    click.echo(f"    phase changes            {drift.transitions[0]:10}  {drift.transitions[1]:10}")
    _print_trust(drift)


def _print_trust(drift: Drift) -> None:
    exact, close = 100 * drift.exact_share, 100 * drift.close_share
    click.echo(
        f"  trust: exact for the first {exact:.1f} % of the time. After that the recorded inputs"
    )
    click.echo("  are those of packets sent under the old rules (open loop); cwnd and pacing stay")
    click.echo(
        f"  within 5 % of the recorded ones on {close:.1f} % of events, and the phase is the same"
    )
    click.echo(f"  on {100 * drift.same_phase_share:.1f} %.")


def _without(names: list[str], others: list[str]) -> list[str]:
    """What only one side decided; all of it if the difference is one of order."""
    only = [name for name in names if name not in others]
    return only or ([] if set(names) <= set(others) and len(names) < len(others) else names)
