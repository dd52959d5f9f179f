"""What a host offers to a recording: its types, its bpftrace, its BBR, and ways to attach."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ....probes import btf
from ....probes.attach import Attach
from ....probes.base.errors import HostError
from ....probes.phase_program import PhaseProgram
from ....probes.program import Program
from .. import filters
from ..plan import RecordingPlan
from ..process_sockets import RECEIVES, HowToSee
from . import bpftrace as tracing
from . import ladder, lockdown, target


@dataclass
class HostSurvey:
    """The host as it is: what can be recorded and how.

    `problems` rule out bpftrace altogether; `instance` tells one loading of BBR's module from the
    next (target.instance()).
    """

    types: btf.Btf | None
    bpftrace: tracing.Bpftrace | None
    target: target.Target | None
    steps: list[ladder.Step]
    problems: list[str]
    instance: int | None


def survey(plan: RecordingPlan) -> HostSurvey:
    """Look at the host; problems that rule out bpftrace are kept as reasons for the last rung.

    Raises:
        HostError: a filter names nothing, no BBR is loaded, or which one is meant is unclear.
    """
    filters.condition(plan.select, HowToSee())  # refuses what names nothing, on every rung
    problems: list[str] = []
    types, tool, chosen = None, None, None
    if plan.rung != "inet_diag":
        if os.geteuid() != 0:
            problems.append("not root: BPF needs it")
        else:
            try:
                types = btf.load()
                tool = tracing.find()
                chosen = target.choose(target.candidates(types), plan.bbr)
            except (target.UnclearError, target.NotLoadedError):
                raise
            except HostError as error:
                problems.append(f"{error.fact} ({error.way_out})" if error.way_out else error.fact)
    steps = ladder.ladder(tool, chosen, lockdown.mode(), plan.rung)
    instance = target.instance(chosen.module) if chosen else None
    return HostSurvey(types, tool, chosen, steps, problems, instance)


def probe_program(
    host: HostSurvey, attach: Attach, select: filters.Filters, backs_off: bool = False
) -> str:
    """The text of the bpftrace program for one way of attaching; see Program for `backs_off`.

    Raises:
        HostError: a process, cgroup or namespace of the filters does not exist, or a process
            cannot be told from others.
    """
    assert host.target is not None
    assert host.types is not None
    kernel = target.program_host(host.target, host.types)
    wanted = filters.condition(select, how_to_see(host.types, attach))
    kind = PhaseProgram if select.phases else Program
    version = host.target.version
    return kind(version, kernel, attach, wanted.text, wanted.setup, backs_off, wanted.begin).text()


def how_to_see(types: btf.Btf, attach: Attach) -> HowToSee:
    """How a program that is attached this way sees what processes do."""
    numbers_at = types.member_offset("pid", "numbers") or 0
    if attach.rung == "tcp_probe" or types.parameters(RECEIVES) is None:
        return HowToSee(attach.argument, numbers_at)
    point, file = attach.point(RECEIVES, module="vmlinux"), attach.read_argument("file", 0)
    return HowToSee(attach.argument, numbers_at, point, file)


def check_places(rung: str, chosen: target.Target | None, phases: bool = False) -> None:
    """Refuse probes that landed in another BBR of this kernel; with `phases` only main() has one.

    Raises:
        HostError: a callback is not among the functions that the kernel traces, or those cannot
            be seen.
    """
    if rung != "fentry" or chosen is None or not chosen.shared:
        return
    mounted = tracing.tracefs()
    if mounted is None:
        raise HostError(
            f"{', '.join(chosen.shared)} is in more than one place, and where the probes landed "
            "cannot be seen: mount -t tracefs tracefs /sys/kernel/tracing"
        )
    wanted = (chosen.version.main,) if phases else chosen.version.functions
    if names := [name for name in target.misplaced(chosen, mounted) if name in wanted]:
        raise HostError(
            f"the kernel attached to another {', '.join(names)}, by name only: unload the module"
            " of the other BBR to record this one whole"
        )
