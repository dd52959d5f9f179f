"""One change of a flow: what changed, from what to what, and the decisions that changed it."""

from __future__ import annotations

from dataclasses import dataclass

from ..bbr.codes import Code

BOUNDS = ("inflight_hi", "inflight_lo", "bw_lo")
# Names of changes that no decision explains.
GAP, SAMPLED, MID_FLOW = "GAP", "SAMPLED", "MID_FLOW"


@dataclass(frozen=True)
class Reason:
    """One decision, with its evidence in kernel units and in words (the kernel's names)."""

    code: Code
    evidence: dict[str, int]
    sentence: str


@dataclass(frozen=True)
class Change:
    """One change of a flow, or one decision about it.

    Attributes:
        seq: the event; ns: its time, CLOCK_MONOTONIC.
        about: phase, inflight_hi, inflight_lo, bw_lo, mss, timeout, or what the decision is about.
        old, new: phase names, or values in kernel units; None where there is none.
        name: decisive decision or observation, GAP, SAMPLED, MID_FLOW, or None if none is known.
        reasons: decisions of the event about it, the decisive one first.
        mss: tp.mss_cache at the event [bytes]; None: not recorded.
        doubt: what keeps one from being sure; empty if nothing does.
        phase_seq: the event that began the phase in which this happened.
        is_decision: it is one decision by itself, which may have left everything as it was.
        count: 1, and one more for each later change that was folded into this one; until_ns: time
            of the last of them; last: that change, None: nothing was folded; between: the values
            from which they went on.
    """

    seq: int
    ns: int
    about: str
    old: str | int | None
    new: str | int | None
    name: str | None
    reasons: tuple[Reason, ...]
    mss: int | None
    doubt: str = ""
    phase_seq: int = -1
    is_decision: bool = False
    count: int = 1
    until_ns: int = 0
    last: Change | None = None
    between: tuple[str | int | None, ...] = ()

    @property
    def is_phase(self) -> bool:
        """Tell whether the flow's phase changed."""
        return self.about == "phase" and not self.is_decision

    @property
    def latest(self) -> Change:
        """The last of the changes that were folded into this one, or this one itself."""
        return self.last or self
