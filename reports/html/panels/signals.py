"""What a chart is made of: signals (where a value comes from, how it is drawn) in panels.

Expressions are SQL over one row of `events`, or of another source (see sources.py). Those of struct
bbr are the state before the event, in force since the event before; `state` marks them, and they
are drawn from there on. The charts themselves are tables of these: flow_panels.py, path_panels.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Signal:
    """One line of a chart.

    Attributes:
        key: name in the page and of the colour.
        label: what the legend says.
        about: what it is, for the tooltip.
        sql: value in whole steps of `scale`.
        scale: what a step is worth in the panel's unit.
        shape: step (holds until the next), line, stem (happens at an instant), range (from `base`
            below the value up to it, at an instant), or area (the same, without a break).
        where: SQL condition under which the row has a value.
        source: name of the rows it is read from, see sources.py.
        base: SQL, how far down a range reaches.
        wraps: a sequence number of 32 bits; drawn from the flow's first one on, without wrapping.
        state: the value holds since the event before.
        keep: every change is kept, whatever the size.
        dash: lengths of dash and space; none: solid.
        width: of the line, in pixels.
        colour: its name in palette.py, if it is not the key.
        round_trip: SQL, the round trip in us at each of a line's values; the line ends where none
            was seen for longer than data in flight allows (`spaced` of thin.py says how long).
            None: it goes on until the next value.
        against: key of the signal that the read-out tells beside it, as its difference from this.
    """

    key: str
    label: str
    about: str
    sql: str
    scale: float = 1.0
    shape: str = "step"
    where: str = "true"
    state: bool = False
    keep: bool = False
    dash: tuple[int, ...] = ()
    width: float = 1.6
    source: str = "events"
    base: str = ""
    wraps: bool = False
    colour: str = ""
    round_trip: str = ""
    against: str = ""

    @property
    def paint(self) -> str:
        """Name of the colour, see palette.py."""
        return self.colour or self.key

    @property
    def column(self) -> str:
        """The value as a column `key`, and what goes with it.

        `key`_down is how far down a range reaches, `key`_rtt the round trip at a line's value.
        """
        value = f"round({self.sql})::BIGINT"
        if "OVER (" in self.sql:
            # Differences reach across rows, so they may not be restricted first.
            return f"{value} AS {self.key}"
        column = f"CASE WHEN {self.where} THEN {value} END AS {self.key}"
        if self.round_trip:
            column += f", coalesce({self.round_trip}, 0)::BIGINT AS {self.key}_rtt"
        return f"{column}, ({self.base})::BIGINT AS {self.key}_down" if self.base else column


@dataclass(frozen=True)
class Panel:
    """One chart: signals of the same unit; `domain` fixes the axis, which else fits the window."""

    key: str
    title: str
    unit: str
    signals: tuple[Signal, ...]
    zero: bool = True
    height: int = 150
    domain: tuple[float, float] | None = None

    def of(self, signals: tuple[Signal, ...]) -> Panel:
        """Return the same chart with other signals."""
        return replace(self, signals=signals)
