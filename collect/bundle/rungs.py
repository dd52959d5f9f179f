"""The rungs of the attach ladder, best first: what a recording made on each can and cannot answer.

Said once, here; `doctor`, `collect`, the manifest, ingest, `explain`, `report` and the store's view
`rungs` all say it in these words. Standard library only: `collect` runs where nothing else is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Rung:
    """One way to reach BBR's state; `cannot` completes the sentence "it cannot ...".

    `replays`: every input of every callback is there, so that a replay can be compared.
    """

    name: str
    replays: bool
    can: str
    cannot: str

    @property
    def answers(self) -> str:
        """What it can and what it cannot answer, in one sentence."""
        return f"{self.can}; it cannot {self.cannot}"


LADDER = (
    Rung(
        "fentry",
        True,
        "every input of every callback, replayable bit for bit",
        "tell what happens outside BBR and TCP's own state: the path, the receiver",
    ),
    Rung(
        "kprobe",
        True,
        "every input of every callback, replayable bit for bit",
        "count on every call being seen: a kprobe can fail to fire without a trace, so completeness"
        " is proven from the data",
    ),
    Rung(
        "tcp_probe",
        False,
        "the state of socket and BBR whenever a packet arrives: phases, bounds, filters, windows",
        "say why anything changed: there is no rate sample and no callback, so nothing can be"
        " replayed",
    ),
    Rung(
        "inet_diag",
        False,
        "what `ss -ti` shows from time to time: BBR's bandwidth, min_rtt and gains, window, RTT,"
        " bytes",
        "see what lies between two samples, or BBR's filters and bounds, or say why anything"
        " changed: nothing can be replayed",
    ),
)
# No rung of the ladder: the state by whichever holds, where the phase changes only.
PHASES = Rung(
    "phases",
    False,
    "when BBR's phase changed, and the state of socket and BBR at the next ACK",
    "see what lies between two changes of the phase, or say why anything changed: nothing can be"
    " replayed",
)
# No rung of the ladder: what people have, and ingest reads.
KERNEL_LOG = Rung(
    "kernel_log",
    False,
    "what v2alpha's debug lines print of ACKs of note: phase, bounds, bandwidth, window, losses",
    "see ACKs that were not printed, or flows' own ports, or say why anything changed: nothing can"
    " be replayed",
)
CAPTURE = Rung(
    "capture",
    False,
    "every packet that passed the capture point: throughput, data sent again, RTT from there on,"
    " data in flight",
    "see BBR's phases, bounds, window and pacing, or say why anything changed: nothing can be"
    " replayed",
)
RUNGS = {rung.name: rung for rung in (*LADDER, PHASES, KERNEL_LOG, CAPTURE)}
# Those whose runs have rows of table samples and no events.
SAMPLED = ("inet_diag", "kernel_log")


def named_rung(manifest: Mapping[str, object]) -> str:
    """Return the rung that a bundle's manifest names, or "" if it names none.

    Older bundles have it under the key `probe`.
    """
    name = manifest.get("rung", manifest.get("probe"))
    return name if isinstance(name, str) else ""
