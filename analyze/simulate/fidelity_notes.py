"""For which paths a simulation was compared with kernels, and what is not modelled.

Every number of a simulation is printed with this; README.md of this folder has the comparison.
"""

from __future__ import annotations

from collections.abc import Sequence

from .world.world_setup import PathSetup, Setup
from .world.worlds import PATH_PACKET

_COMPARED = (
    "compared with kernels' recordings (bbrscope simulate --fidelity): goodput within 2 %, RTTs"
    " within 5 %, losses within 15 % on such paths"
)

# Of what was compared: paths' shortest round trips and, of FIFOs, the buffers in BDP (recorded are
# 0.2 to 4; a fit of the largest came to 5.7), and random loss.
_ROUND_TRIPS_US = 9_900, 80_000
_BUFFERS_BDP = 0.15, 6.0
_MOST_LOSS = 0.02
# Packets in a token bucket; recorded ones have two, up to a part of one.
_MOST_BUCKET = 3

_GUESSED = "the path is fitted from the recording alone, for which intervals are wider"


def outside(setup: Setup) -> list[str]:
    """Why a simulation of this world may disagree with kernels; empty: no reason is known."""
    versions = [flow.version for flow in setup.flows]
    return [*_of_path(setup), *_of_flows(setup, versions)]


def _of_path(setup: Setup) -> list[str]:
    path, why = setup.path, []
    if not 5_000_000 <= path.rate_bps <= 40_000_000:
        why.append("no kernel's recording has this rate")
    if not _ROUND_TRIPS_US[0] <= path.rtt_us <= _ROUND_TRIPS_US[1]:
        why.append("no kernel's recording has this round trip")
    if _has_other_buffer(path):
        why.append("no kernel's recording has such a buffer")
    if not path.policer and path.burst_bytes > _MOST_BUCKET * (path.mss + path.headers):
        why.append("no kernel's recording has such a token bucket")
    if path.loss > _MOST_LOSS:
        why.append("no recording with so much random loss was compared")
    if path.marks_us or path.ecn:
        why.append(
            "with ECN marks the RTT's 95 % comes out up to 16 % low, and goodput up to 2 % high"
        )
    if path.jitter_us or path.aggregation_us or path.policer:
        why.append("jitter, ACK aggregation and policers were never compared")
    if path.reorder:
        why.append(
            "with reordering it is chance whether v1 loses 40 packets in STARTUP or none, and the"
            " RTT's median comes out up to 5 % low under v1 and v2"
        )
    changed = {what for _, what, _ in path.changes}
    if changed & {"rtt", "loss"}:
        why.append("changes of the round trip and of the loss were never compared")
    if "outage" in changed:
        why.append("an outage of the data alone was never compared")
    if "acks" in changed:
        why.append(
            "where ACKs alone are lost goodput comes out up to 4 % high, and v1's losses at 0.6"
            " times"
        )
    if "down" in changed:
        why.append(
            "after an outage losses come out up to 15 % low, and RTTs 5 to 10 % low from"
            " a recording whose hosts were quieter than usual"
        )
    return why


def _has_other_buffer(path: PathSetup) -> bool:
    """Whether a FIFO that drops at its end is shorter or longer than those that were recorded."""
    if path.policer or path.marks_us:
        return False
    size = path.limit_bytes or path.limit_packets * PATH_PACKET
    bdp = path.rate_bps * path.rtt_us / 8e6
    return size > 0 and not _BUFFERS_BDP[0] <= size / bdp <= _BUFFERS_BDP[1]


def _of_flows(setup: Setup, versions: list[str | None]) -> list[str]:
    why = []
    if any(flow.variant for flow in setup.flows):
        why.append("no kernel runs these rules: only the sender and the path were compared")
    if len([version for version in versions if version]) > 1:
        why.append(
            "where flows with BBR share a path, losses come out at 0.4 to 1.2 times, and v2 probes"
            " more often"
        )
    if "v2" in versions and setup.path.loss:
        why.append(
            "under random loss kernels' own runs of v2 differ by 8 % in goodput, and more of its"
            " probes go too high"
        )
    if "v3" in versions and setup.path.loss:
        why.append("under random loss kernels' own runs of v3 differ by 6 % in goodput")
    if "v2" in versions and any(what == "rate" for _, what, _ in setup.path.changes):
        why.append("after a change of rate v2 carries up to 5 % too little")
    others = {flow.cc for flow in setup.flows if not flow.version}
    if "cubic" in others:
        why.append(
            "CUBIC was compared beside BBR in one scenario, where v2's STARTUP ended later and it"
            " stayed longer in DOWN"
        )
    if others & {"reno", "vegas"}:
        why.append("Reno and Vegas were never compared")
    if "dctcp" in others:
        why.append("DCTCP was compared alone, on one path; without ECN it is Reno")
    if any(flow.unseen for flow in setup.flows):
        why.append("others on the path are taken for one flow with CUBIC")
    if any(flow.kind in ("fixed-size", "on-off") for flow in setup.flows):
        why.append("transfers of fixed size and pauses were never compared")
    return why


def reasons(*setups: Setup) -> list[str]:
    """Why simulations of these worlds may disagree with kernels; empty: no reason is known."""
    return [*dict.fromkeys(reason for setup in setups for reason in outside(setup))]


def statement(*setups: Setup, guessed: bool = False) -> str:
    """One sentence on numbers from these worlds: compared with kernels, or why not.

    `guessed`: the path was fitted from the recording alone, see fitted_path.py.
    """
    return sentence(reasons(*setups), guessed=guessed)


def sentence(why: Sequence[str], *, guessed: bool = False) -> str:
    """The sentence of `statement`, from the result of `reasons`."""
    text = f"does not hold here: {'; '.join(why)}" if why else _COMPARED
    return f"{text}; {_GUESSED}" if guessed else text
