"""For which paths a simulation was compared with kernels, and what is not modelled.

Every number of a simulation is printed with this. `docs/fidelity.md` has the comparison.
"""

from __future__ import annotations

from .world_setup import Setup

_COMPARED = (
    "compared with kernels (bbrscope simulate --fidelity): bulk flows over one tbf bottleneck of"
    " 10 to 20 Mbit/s and 30 to 40 ms"
)


def outside(setup: Setup) -> list[str]:
    """Why a world is outside of what was compared; empty where it is not."""
    path, why = setup.path, []
    if not 5_000_000 <= path.rate_bps <= 40_000_000:
        why.append("no kernel's recording has this rate")
    if not 20_000 <= path.rtt_us <= 80_000:
        why.append("no kernel's recording has this round trip")
    if path.marks_us or path.ecn:
        why.append("ECN marks and the receiver's echo are simplified")
    if path.jitter_us or path.aggregation_us or path.policer:
        why.append("jitter, ACK aggregation and policers were never compared")
    if path.reorder:
        why.append("reordering was never compared")
    if any(flow.version is None for flow in setup.flows):
        why.append("CUBIC and Reno are compared beside BBR in one scenario only")
    if any(flow.kind in ("fixed-size", "on-off") for flow in setup.flows):
        why.append("transfers of fixed size and pauses were never compared")
    return why


def statement(setup: Setup) -> str:
    """One sentence: compared with kernels, or why not."""
    why = outside(setup)
    return f"does not hold here: {'; '.join(why)}" if why else _COMPARED
