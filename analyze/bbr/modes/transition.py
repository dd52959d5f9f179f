"""The one place that assigns bbr.mode, and the predecessors that each mode may have.

        STARTUP -> DRAIN -> PROBE_BW        any of the three -> PROBE_RTT -> STARTUP or PROBE_BW

As plain Python an illegal step raises; compiled code pays nothing for the check.
"""

from __future__ import annotations

from ....probes.base.errors import BbrscopeError
from ....probes.base.jit import PLAIN, jit
from ..records import BBR_DRAIN, BBR_PROBE_BW, BBR_PROBE_RTT, BBR_STARTUP, MODES, Bbr

# The mode of a connection before bbr_init(), as the replay marks it.
NO_MODE = -1

# PROBE_BW follows itself where v1 gives up its policer's rate and restarts the gain cycle.
PREDECESSORS: dict[int, tuple[int, ...]] = {
    BBR_STARTUP: (NO_MODE, BBR_PROBE_RTT),
    BBR_DRAIN: (BBR_STARTUP,),
    BBR_PROBE_BW: (BBR_DRAIN, BBR_PROBE_RTT, BBR_PROBE_BW),
    BBR_PROBE_RTT: (BBR_STARTUP, BBR_DRAIN, BBR_PROBE_BW),
}


class IllegalTransitionError(BbrscopeError):
    """The estimator went to a mode from one that may not precede it."""


if PLAIN:

    def _check_predecessor(old: int, new: int) -> None:
        """Raise IllegalTransitionError unless mode `new` may follow mode `old`."""
        if old not in PREDECESSORS[new]:
            name = MODES[old] if 0 <= old < len(MODES) else str(old)
            raise IllegalTransitionError(
                f"the replay went from mode {name} to {MODES[new]}, which BBR never does",
                "if the recording is whole, this is a mistake in analyze/bbr: `git bisect` it",
            )

else:

    @jit
    def _check_predecessor(old: int, new: int) -> None:
        """Nothing: the check is for plain Python."""


@jit
def transition_to(bbr: Bbr, mode: int) -> None:
    """Change bbr.mode; called by the one function that enters each mode.

    Raises:
        IllegalTransitionError: as plain Python, if `mode` may not follow the present one.
    """
    _check_predecessor(bbr.mode, mode)
    bbr.mode = mode
