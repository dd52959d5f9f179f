"""What a user asks of a recording, and which names a recording may have."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ...probes.base.errors import HostError
from ..bundle.manifest_values import NAME_HOLDS, RUN_NAME
from .filters import Filters
from .host.bpftrace import BUFFER_BYTES


@dataclass(frozen=True)
class RecordingPlan:
    """What the user asked for.

    `command` runs while recording, as the user who called sudo unless `as_root`; `rung` is the only
    way to attach that may be tried; `snaplen` is how many bytes of each packet are kept, None for
    its headers only; `wait` waits for BBR to be loaded, `load_module` loads it; above `max_cpu`
    percent of a CPU fewer flows are recorded; `anonymize` replaces addresses before the bundle has
    its name.
    """

    output: Path
    command: tuple[str, ...] = ()
    duration_s: float | None = None
    select: Filters = field(default_factory=Filters)
    bbr: str | None = None
    rung: str | None = None
    interface: str | None = None
    packets: bool = True
    snaplen: int | None = None
    ring_kib: int = 16384
    queue: str | None = None
    max_bytes: int | None = None
    buffer_bytes: int = BUFFER_BYTES
    quiet: bool = False
    as_root: bool = False
    wait: bool = False
    load_module: bool = False
    max_cpu: float | None = None
    anonymize: bool = False


def check_name(output: Path) -> None:
    """Refuse a folder whose name no run could have: ingest names the run after it.

    Raises:
        HostError: it is empty, `.`, `..` or `/`, or has characters that a run's name may not have.
    """
    if not RUN_NAME.fullmatch(output.name):
        raise HostError(
            f"{str(output)!r} does not end in a name for the recording",
            f"the last part of --output may hold {NAME_HOLDS}",
        )
