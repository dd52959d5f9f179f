"""Which runs `bbrscope lab run` was asked for, and where they go."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...probes.base.errors import ScenarioError

if TYPE_CHECKING:
    from ...collect.lab.lab_run import LabCaptures
    from ...collect.lab.scenario import Scenario


@dataclass(frozen=True)
class LabRequest:
    """The options of `lab run` that say which runs to make, and where they go."""

    name: str
    settings: tuple[str, ...]
    cc: str | None
    reps: int | None
    quick: bool
    output: Path
    no_events: bool
    no_packets: bool
    store: Path

    @property
    def names_controls(self) -> bool:
        """Did the user name congestion controls, with --cc or --set cc=...?"""
        return self.cc is not None or any(text.startswith("cc=") for text in self.settings)

    @property
    def captures(self) -> LabCaptures:
        """What to record of each run."""
        from ...collect.lab.lab_run import LabCaptures

        return LabCaptures(events=not self.no_events, packets=not self.no_packets)

    @property
    def own_file(self) -> Path | None:
        """The scenario's file if it is not in the catalogue."""
        return Path(self.name) if self.name.endswith(".toml") else None

    def scenario(self) -> Scenario:
        """Load the scenario with what the options change in it.

        Raises:
            ScenarioError: there is no such scenario or parameter, or a setting has no value.
        """
        from ...collect.lab import scenario

        loaded = scenario.load(self.name)
        loaded = scenario.quick(loaded) if self.quick else loaded
        loaded = scenario.override(loaded, self._values())
        return loaded if self.reps is None else replace(loaded, reps=self.reps)

    def guest_words(self) -> list[str]:
        """Return the arguments that mean the same runs inside a guest."""
        own_file = self.own_file
        return [
            self.name if own_file is None else f"/out/{own_file.name}",
            *(word for setting in self.settings for word in ("--set", setting)),
            *(["--cc", self.cc] if self.cc is not None else []),
            *(["--reps", str(self.reps)] if self.reps else []),
            *["--quick"] * self.quick,
            *["--no-events"] * self.no_events,
            *["--no-packets"] * self.no_packets,
        ]

    def _values(self) -> dict[str, list[str]]:
        values = {}
        for setting in (*self.settings, *([f"cc={self.cc}"] if self.cc is not None else [])):
            key, equals, text = setting.partition("=")
            if not equals or not text:
                raise ScenarioError(
                    f"{setting!r} sets nothing", "write --set rate=20mbit or --cc bbr,cubic"
                )
            values[key] = text.split(",")
        return values
