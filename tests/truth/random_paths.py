"""Paths and flows that nobody chose: scenarios drawn from a seed, in the lab's own format."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Drawn:
    """What was drawn of a scenario: values by the names of the lab's format."""

    chance: random.Random
    path: dict[str, str]
    flows: list[dict[str, str]]
    changes: list[dict[str, str]] = field(default_factory=list)


def scenario_text(seed: int) -> str:
    """Return a scenario file: one path, BBR flows, and what else the drawn kinds have, one or two.

    Rates go from 3 to 50 Mbit/s, round trips from 3 (or 1) to 160 ms, buffers from 0.2 (or 0.03) to
    10 BDP.
    """
    chance = random.Random(seed)
    rate, rtt = _log(chance, 3, 50), _log(chance, 3, 160)
    path = {"rate": f"{rate}mbit", "rtt": f"{rtt}ms", "buffer": f"{_log(chance, 0.2, 10)}bdp"}
    it = Drawn(chance, path, [{"cc": chance.choice(("bbr", "bbr2", "bbr3"))}])
    kinds = chance.choices(range(len(KINDS)), k=chance.choice((1, 1, 2)))
    for kind in sorted(kinds):
        KINDS[kind](it)
    lines = [f'title = "path {seed}"', 'source = "drawn"', _line("duration", "20s"), "[path]"]
    lines += [_line(*each) for each in it.path.items()]
    for flow in it.flows:
        lines += ["[[flow]]", *(_line(*each) for each in flow.items())]
    for change in it.changes:
        lines += ["[[change]]", *(_line(*each) for each in change.items())]
    return "\n".join(lines) + "\n"


def write(seed: int, folder: Path) -> Path:
    """Write the scenario of a seed and return its file."""
    path = folder / f"path{seed}.toml"
    path.write_text(scenario_text(seed))
    return path


def _line(name: str, value: str) -> str:
    return f'{name} = "{value}"'


def _log(chance: random.Random, least: float, most: float) -> float:
    """Draw a value whose logarithm is uniform."""
    return round(least * (most / least) ** chance.random(), 2)


def _of(path: dict[str, str], name: str, by: float, unit: str) -> str:
    return f"{round(float(path[name].removesuffix(unit)) * by, 2)}{unit}"


def _alone(it: Drawn) -> None:
    """One flow, and nothing else."""


def _lossy(it: Drawn) -> None:
    it.path["loss"] = it.chance.choice(("0.1%", "0.5%", "1%", "2%", "5%"))


def _policed(it: Drawn) -> None:
    it.path |= {"buffer": it.chance.choice(("20kB", "50kB", "100kB", "200kB")), "aqm": "policer"}


def _reordered(it: Drawn) -> None:
    it.path["reorder"] = it.chance.choice(("0.5%", "1%", "3%"))


def _jittered(it: Drawn) -> None:
    it.path["jitter"] = it.chance.choice(("1ms", "2ms", "5ms"))


def _aggregated(it: Drawn) -> None:
    it.path["aggregation"] = it.chance.choice(("5ms", "10ms", "20ms"))


def _shared(it: Drawn) -> None:
    it.flows += [dict(it.flows[0]) for _ in range(it.chance.choice((1, 2, 3)))]


def _beside(it: Drawn) -> None:
    it.flows.append({"cc": it.chance.choice(("cubic", "reno"))})


def _late(it: Drawn) -> None:
    it.flows.append({**it.flows[0], "start": it.chance.choice(("20%", "40%"))})


def _further(it: Drawn) -> None:
    it.flows.append(
        {**it.flows[0], "extra_rtt": _of(it.path, "rtt", it.chance.choice((0.5, 1, 3)), "ms")}
    )


def _slow_writer(it: Drawn) -> None:
    rate = _of(it.path, "rate", it.chance.uniform(0.2, 0.9), "mbit")
    it.flows[0] |= {"kind": "rate-limited", "rate": rate}


def _pausing(it: Drawn) -> None:
    on, off = (
        it.chance.choice(("200ms", "500ms", "1s")),
        it.chance.choice(("100ms", "500ms", "1500ms")),
    )
    it.flows[0] |= {"kind": "on-off", "on": on, "off": off}


def _short(it: Drawn) -> None:
    size = it.chance.choice(("200kB", "1000kB"))
    one = {**it.flows[0], "kind": "fixed-size", "size": size}
    it.flows[:] = [{**one, "start": f"{second}s"} for second in range(4)]


def _marked(it: Drawn) -> None:
    queue = {
        "aqm": it.chance.choice(("red", "fq_codel")),
        "threshold": it.chance.choice(("1ms", "5ms")),
    }
    it.path |= {"ecn": "yes", **queue}


def _unmarked(it: Drawn) -> None:
    it.path |= {"ecn": "yes"}


def _near(it: Drawn) -> None:
    """So near that v2 and v3 may answer marks."""
    it.path |= {"rtt": f"{_log(it.chance, 1, 5)}ms"}


def _small_memory(it: Drawn) -> None:
    it.path["memory"] = it.chance.choice(("50kB", "100kB", "300kB"))


def _shallow(it: Drawn) -> None:
    it.path["buffer"] = f"{_log(it.chance, 0.03, 0.2)}bdp"


def _change(it: Drawn) -> None:
    what = it.chance.choice(("rate", "rtt", "loss", "outage"))
    value = {
        "rate": _of(it.path, "rate", it.chance.choice((0.3, 0.5, 2, 3)), "mbit"),
        "rtt": _of(it.path, "rtt", it.chance.choice((0.4, 2, 3)), "ms"),
        "loss": "2%",
        "outage": it.chance.choice(("300ms", "1s", "3s")),
    }[what]
    it.changes.append({"at": it.chance.choice(("30%", "50%")), "what": what, "value": value})


# Of two, what adds senders comes after what the first flow is.
KINDS: tuple[Callable[[Drawn], None], ...] = (
    *(_alone, _lossy, _policed, _reordered, _jittered, _aggregated, _change, _change),
    *(_near, _small_memory, _shallow, _unmarked, _marked, _marked),
    *(_slow_writer, _pausing, _short, _shared, _shared, _beside, _beside, _late, _further),
)
