"""What a recording says of itself in manifest.json, from its first moment to its end."""

from __future__ import annotations

from typing import Any

from ...bundle.rungs import RUNGS
from ..attaching import Attaching
from ..captures.side_captures import SideCaptures
from ..host import clocks, target
from ..host import host_facts as facts
from ..host.clocks import ClockReading
from ..plan import RecordingPlan
from ..tracer import TracerEnd
from . import accounting

UNFINISHED = "unknown: the collector is at work, or was killed"


def in_utf_8(value: object) -> object:
    """A setting of the user's as JSON can hold it: bytes that are no UTF-8 become \\x.. texts."""
    if isinstance(value, str):
        return value.encode(errors="surrogateescape").decode(errors="backslashreplace")
    if isinstance(value, dict):
        return {name: in_utf_8(each) for name, each in value.items()}
    return [in_utf_8(each) for each in value] if isinstance(value, list | tuple) else value


class ManifestWriter:
    """Collects the facts; `at_start` and `at_end` are whole manifests."""

    def __init__(self, plan: RecordingPlan, attaching: Attaching) -> None:
        self.plan = plan
        self.attaching = attaching
        self.begin = clocks.sample()
        self.sysctls = facts.sysctls(plan.select.prefix)
        self.parameters = facts.module_parameters()
        self.facts = self._facts()

    def _facts(self) -> dict[str, Any]:
        """What does not change while recording."""
        plan, survey = self.plan, self.attaching.host
        host = facts.host(plan.select.prefix)
        chosen, rung = survey.target, RUNGS[self.attaching.rung]
        command = [str(in_utf_8(word)) for word in plan.command]
        return {
            "format": "bbrscope-bundle",
            "version": 1,
            "name": plan.output.name,
            "bbr": chosen.version.name if chosen else None,
            "scenario": {"id": "live", "description": " ".join(command) or "recorded live"},
            "setup": {"filters": in_utf_8(plan.select.describe()), "command": command},
            "kernel": host["kernel"],
            "constants": facts.constants(survey.types),
            "rung": self.attaching.rung,
            "answers": {"can": rung.can, "cannot": rung.cannot},
            "decoded_as": chosen.reason if chosen else None,
            "ladder": [vars(each) for each in self.attaching.attempts],
            "bpftrace": survey.bpftrace.version if survey.bpftrace else None,
            "host": host,
            "sysctls": self.sysctls,
            "module_params": self.parameters,
        }

    def at_start(self, now: ClockReading, notes: list[str]) -> dict[str, Any]:
        """The manifest of a recording under way: rows are not counted yet, `complete` is false.

        `now` stands for the end of the clocks: written again and again, it lets packets and events
        of a recording that was killed be joined.
        """
        return {
            **self.facts,
            "ended": UNFINISHED,
            "unfinished": True,
            "events": None,
            "events_lost": 0,
            "notes": [*notes, *self.attaching.notes],
            "clocks": clocks.describe(self.begin, now),
        }

    def of_dump(
        self, name: str, start: ClockReading, end: ClockReading, notes: list[str]
    ) -> dict[str, Any]:
        """The manifest of a part of a recording that goes on; the clocks are those of its ends.

        What the kernel counted of the probes is known at the end of a recording only: that the
        part is complete shows in its sequence numbers.
        """
        return {
            **self.facts,
            "name": name,
            "notes": [*notes, *self.attaching.notes],
            "clocks": clocks.describe(start, end),
            "settings_changed": self._changes(),
        }

    def at_end(
        self,
        ended: str,
        command_status: int | None,
        tracer_end: TracerEnd | None,
        packets: dict[str, Any] | None,
        side: SideCaptures,
    ) -> dict[str, Any]:
        """The manifest of a recording that is over: what ended it, and how its parts ended."""
        notes = [*side.notes, *self.attaching.notes]
        survey = self.attaching.host
        if survey.target and target.instance(survey.target.module) != survey.instance:
            notes.append(f"module {survey.target.module} was unloaded during the recording")
        rows = self._rows(tracer_end)
        if tracer_end is not None and side.socket_samples and not any(rows["events"].values()):
            notes.append("no event was recorded of the sockets that ss saw: idle, or not chosen")
        return {
            **self.facts,
            "ended": ended,
            "command_status": command_status,
            "packets": packets,
            "notes": notes,
            "polls": side.polls,
            "socket_samples": side.socket_samples,
            "clocks": clocks.describe(self.begin, clocks.sample()),
            "settings_changed": self._changes(),
            **rows,
        }

    def _rows(self, tracer_end: TracerEnd | None) -> dict[str, Any]:
        """Rows by tag, and the account of each probe."""
        if self.attaching.tracer is None or tracer_end is None:
            return {"events": {}, "events_lost": 0}
        events = self.attaching.tracer.events
        account = accounting.account(events, tracer_end)
        return {
            "events": dict(events.rows),
            "accounting": account,
            "events_lost": account["lost"],
            "said": events.talk[:50],
        }

    def _changes(self) -> list[str]:
        """Settings that are no longer what they were at the start.

        Where a namespace or a module has gone meanwhile, its settings tell nothing any more.
        """
        now = {**facts.sysctls(self.plan.select.prefix), **facts.module_parameters()}
        before = {**self.sysctls, **self.parameters}
        return [
            f"{name}: {value} -> {now[name]}"
            for name, value in before.items()
            if now.get(name, value) != value
        ]
