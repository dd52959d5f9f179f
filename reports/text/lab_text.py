"""The lab's catalogue in words: one line per scenario, or all about one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...collect.lab import estimate, scenario
from ...probes.base.plurals import plural
from .print_table import printable

if TYPE_CHECKING:
    from ...collect.lab.scenario import Scenario

HEAD = f"{'scenario':28} {'runs':>6} {'full':>8} {'quick':>8} {'in a guest':>11}  source"


def catalogue_line(loaded: Scenario) -> str:
    """Return a scenario's line of the catalogue, with the times below `HEAD`."""
    full, quick = list(scenario.points(loaded)), list(scenario.points(scenario.quick(loaded)))
    times = [
        estimate.words(estimate.total_s(full, vm=False)),
        estimate.words(estimate.total_s(quick, vm=False)),
        estimate.words(estimate.total_s(quick, vm=True)),
    ]
    return (
        f"{loaded.name:28} {len(full):6} {times[0]:>8} {times[1]:>8} {times[2]:>11}  "
        f"{loaded.source}: {loaded.title}"
    )


def description(loaded: Scenario) -> str:
    """Return all about a scenario: parameters in full and quick, and the claims of its source."""
    small = scenario.quick(loaded)
    full_values, quick_values = _values(loaded), _values(small)
    changed = {n: value for n, value in quick_values.items() if full_values[n] != value}
    lines = [
        f"{loaded.name}: {loaded.title} ({loaded.source})",
        *([f"  {loaded.about}"] if loaded.about else []),
        f"full, {_run_count(loaded)}:",
        *(f"  {name:12} {value}" for name, value in full_values.items()),
        f"quick, {_run_count(small)}, where it differs:",
        *(f"  {name:12} {value}" for name, value in changed.items()),
        "claims:",
        *(f"  {claim.text} ({claim.source})" for claim in loaded.claims),
    ]
    # What a scenario says must not look like another line of this text.
    return "\n".join(map(printable, lines))


def _run_count(loaded: Scenario) -> str:
    return plural(sum(1 for _ in scenario.points(loaded)), "run")


def _values(loaded: Scenario) -> dict[str, str]:
    """Return every parameter with its value, or the values that it goes through."""
    axes = {name: ", ".join(values) for name, values in loaded.sweep.items()}
    return {**loaded.params, **axes, "reps": str(loaded.reps)}
