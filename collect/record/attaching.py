"""Attach by the first rung that holds, and remember what became of those above it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ...probes.attach import Attach
from ...probes.base.errors import HostError
from ..bundle.bundle import EVENTS
from ..bundle.rungs import PHASES
from . import process_sockets
from .captures.side_captures import SideCaptures
from .cpu_limit import CpuLimit
from .host import clocks, host_facts, ladder, survey
from .host.bpftrace import KNOWS_KPTR, Bpftrace
from .host.survey import HostSurvey
from .output.outputs import Outputs
from .output.stream import Tap
from .plan import RecordingPlan
from .tracer import Tracer


@dataclass(frozen=True)
class Attempt:
    """A rung and what came of it: `outcome` is ruled out, failed or used."""

    rung: str
    outcome: str
    reason: str


class Workplace(Protocol):
    """Where the program that is attached lies, and what its rows go to."""

    @property
    def probe(self) -> Path:
        """The file from which bpftrace reads the program."""

    @property
    def outputs(self) -> Outputs:
        """Who keeps the rows."""

    def write_probe(self, program: str) -> None:
        """Write that file."""


class Attaching:
    """One way down the ladder; afterwards `rung` and `tracer` (None for inet_diag) are set.

    `rung` is the name of a rung, "phases" where --phases was asked for and bpftrace is attached;
    `attempts` has every rung that was tried; `limit` is None without --max-cpu. `unheeded` says
    what was asked that this rung cannot do; "" if nothing.
    """

    def __init__(
        self,
        plan: RecordingPlan,
        host: HostSurvey,
        place: Workplace,
        say: Callable[[str], None],
        tap: Tap | None = None,
    ) -> None:
        self.plan = plan
        self.host = host
        self.place = place
        self.say = say
        self.tap = tap
        self.attempts: list[Attempt] = []
        self.rung = ""
        self.tracer: Tracer | None = None
        self.limit: CpuLimit | None = None
        self.unheeded = ""
        # CPUs that have run all along, and those that came up meanwhile (if it matters).
        self._cpus = host_facts.online_cpus()
        self._late: set[int] = set()

    @property
    def notes(self) -> list[str]:
        """What of the recording is not as it was asked for."""
        limited = self.limit.notes if self.limit is not None else []
        return [*filter(None, (self.unheeded, self._without_ring())), *limited]

    def look(self, now_ns: int) -> None:
        """What is to be done again and again while it records; `now_ns` is CLOCK_MONOTONIC's."""
        self._look_at_cpus()
        if self.limit is not None:
            self.limit.check(now_ns)

    def _look_at_cpus(self) -> None:
        """Note which CPUs came up, those that went and came back too, though they may go again.

        Only where each has a ring of its own.
        """
        if self.host.bpftrace is None or self.host.bpftrace.shared_ring:
            return
        online = host_facts.online_cpus()
        self._late |= online - self._cpus
        self._cpus &= online

    def _without_ring(self) -> str:
        """Name the CPUs whose rows are lost: a ring for each was opened at the beginning.

        The ring of one that goes is not used again when it comes back.
        """
        self._look_at_cpus()
        tool = self.host.bpftrace
        if self.tracer is None or tool is None or not self._late:
            return ""
        names = ", ".join(map(str, sorted(self._late)))
        said = "what CPUs print that were brought up meanwhile is lost"
        return f"{said} by bpftrace {tool.version}: CPU {names}"

    def attach(self, stopped: Callable[[], bool]) -> None:
        """Try the rungs in order.

        Raises:
            HostError: none holds, or the user ended it.
        """
        for step in self.host.steps:
            if self._take(step, stopped):
                self._say_why_lower()
                self._limit()
                self._say_unheeded()
                return
        reasons = [f"{each.rung}: {each.outcome}, {each.reason}" for each in self.attempts]
        raise HostError(
            "nothing could be attached: " + "; ".join(reasons + self.host.problems),
            "bbrscope doctor",
        )

    def _take(self, step: ladder.Step, stopped: Callable[[], bool]) -> bool:
        """Try one rung; tell whether it holds."""
        if not step.usable:
            self.attempts.append(Attempt(step.rung, "ruled out", step.reason))
            return False
        if step.attach is None:
            reason = "; ".join(self.host.problems) or step.reason
            self._use(step.rung, reason)
            return True
        try:
            self.tracer = self._start(step, step.attach, stopped)
        except HostError as error:
            self.attempts.append(Attempt(step.rung, "failed", error.fact))
            if stopped():
                raise
            return False
        self._use(step.rung, step.reason)
        return True

    def _start(self, step: ladder.Step, attach: Attach, stopped: Callable[[], bool]) -> Tracer:
        assert self.host.bpftrace is not None
        select, backs_off = self.plan.select, self.plan.max_cpu is not None
        attach = with_address(with_clock(attach), self.host.bpftrace)
        program = survey.probe_program(self.host, attach, select, backs_off)
        self.place.write_probe(program)
        self.say(f"attaching: {step.rung} ({step.reason})")
        output = self.place.outputs.open(EVENTS)
        tracer = Tracer(
            self.host.bpftrace, self.place.probe, output, self.plan.buffer_bytes, self.tap
        )
        try:
            tracer.wait_attached(stopped)
            survey.check_places(step.rung, self.host.target, select.phases)
            process_sockets.tell(select.pids, tracer.process.pid)
        except BaseException:
            tracer.stop()
            self.place.outputs.drop(EVENTS)
            self.place.probe.unlink(missing_ok=True)
            raise
        return tracer

    def _use(self, rung: str, reason: str) -> None:
        self.rung = PHASES.name if self.tracer and self.plan.select.phases else rung
        self.attempts.append(Attempt(rung, "used", reason))

    def _limit(self) -> None:
        """Watch what the recording takes of the CPU, if that was asked."""
        if self.tracer is not None and self.plan.max_cpu is not None:
            pid, sample = self.tracer.process.pid, self.plan.select.sample
            self.limit = CpuLimit(self.plan.max_cpu, pid, self.say, sample)

    def _say_unheeded(self) -> None:
        """Name what only a program in the kernel would do."""
        select = self.plan.select
        asked = {
            "--sample": select.sample > 1,
            "--phases": select.phases,
            "--max-cpu": self.plan.max_cpu is not None,
        }
        options = [name for name, given in asked.items() if given]
        if self.tracer is None and options:
            self.unheeded = f"{self.rung} records every flow: {', '.join(options)} without effect"
            self.say(f"  {self.unheeded}")

    def count_too(self, beside: SideCaptures) -> None:
        """With --max-cpu, count the CPU time of the side captures, too."""
        if self.limit is not None:
            self.limit.pids += beside.pids
            self.limit.samplers += beside.samplers.values()

    def _say_why_lower(self) -> None:
        """Name the better rungs that this host does not have."""
        for each in self.attempts[:-1]:
            self.say(f"  {each.rung} {each.outcome}: {each.reason}")
        if self.tracer is None and self.host.problems:
            self.say(f"  {'; '.join(self.host.problems)}")


def with_clock(attach: Attach) -> Attach:
    """Make the clock of an old bpftrace CLOCK_MONOTONIC.

    Its nsecs is CLOCK_BOOTTIME, which counts suspended time, too: the difference is subtracted.
    """
    if attach.clock != "nsecs":
        return attach
    now = clocks.sample()
    ahead = now.boottime_ns - now.monotonic_ns
    # Within the reading's own uncertainty the clocks are one: the host was never suspended.
    if abs(ahead) <= max(now.uncertainty_ns, 20_000):
        return attach
    return dataclasses.replace(attach, clock=f"(nsecs - {ahead})")


def with_address(attach: Attach, bpftrace: Bpftrace) -> Attach:
    """Replace the name of the kernel's jiffies by the address, which holds until the next boot.

    bpftrace 0.17 looks for the name in all of /proc/kallsyms, at each of its eight places: that
    takes longer than all else until it is attached.
    """
    if ladder.NAMED_JIFFIES not in attach.jiffies or bpftrace.number < KNOWS_KPTR:
        return attach
    address = ladder.kernel_address("jiffies")
    if not address:
        return attach
    named, pointer = ladder.NAMED_JIFFIES, f"kptr({address:#x})"
    return dataclasses.replace(attach, jiffies=attach.jiffies.replace(named, pointer))
