"""v3 with what draft-ietf-ccwg-bbr-06 does otherwise: DRAIN, and the gains of DRAIN and PROBE_RTT.

- "Drain": it ends at the latest when the fourth round after its first ACK begins: if STARTUP has
  overestimated the bandwidth, inflight might never fall to the BDP. It paces at 0.5x, v3 at 0.34x.
- "ProbeRTT": cwnd_gain is 0.5, v3's 1.0 with a cap of 0.5 BDP: the same window.

v3 has the others of the draft's younger rules already: extra_acked in STARTUP with windows of one
round ("BBR.extra_acked"), PROBE_RTT's window ("ProbeRTTCwnd()"), and precautionary probing, where
stopped_risky_probe is the draft's prev_probe_precautionary. Not taken over: the draft looks for
STARTUP's plateau at the beginning of rounds only, and has no rules for ECN.
"""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..control.cwnd import bbr_bound_cwnd_for_inflight_model
from ..control.gains import bbr_update_gains
from ..control.pacing import bbr_set_pacing_rate
from ..log import note
from ..model.bandwidth import bbr_bw
from ..modes.phases import enter_probe_bw
from ..params import Params
from ..records import BBR_DRAIN, BBR_PROBE_RTT, MAIN, Bbr, Event, Log, Socket
from ..versions.v3 import bbr_init
from ..versions.v3 import dispatch as dispatch_v3
from .variant import Variant

# Indices of the variant's state: rounds begun since DRAIN was entered, and the mode after the
# last ACK.
DRAIN_ROUNDS, LAST_MODE = range(2)
MOST_DRAIN_ROUNDS = 3
_PROBE_RTT_CWND_GAIN = 128  # 0.5


@jit
def _leave_drain(bbr: Bbr, tp: Socket, rounds: int, p: Params, log: Log) -> None:
    """PROBE_BW, with the pacing rate and the bounds that follow from it on this very ACK."""
    note(log, codes.DRAIN_EXIT_ROUNDS, rounds)
    enter_probe_bw(bbr, tp, p, log)
    note(log, codes.PBW_ENTER_DOWN, bbr.probe_wait_us, bbr.rounds_since_probe)
    bbr_update_gains(bbr, p)
    bbr_set_pacing_rate(bbr, tp, bbr_bw(bbr, p), bbr.pacing_gain, p, log)
    bbr_bound_cwnd_for_inflight_model(bbr, tp, p, log)


@jit
def bound_drain(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    """Count the rounds that DRAIN lasts after the one it began in; more than three end it."""
    state = bbr.variant
    if bbr.mode != BBR_DRAIN or state[LAST_MODE] != BBR_DRAIN:
        state[DRAIN_ROUNDS] = 0
    elif bbr.round_start:
        state[DRAIN_ROUNDS] = state[DRAIN_ROUNDS] + 1
        if state[DRAIN_ROUNDS] > MOST_DRAIN_ROUNDS:
            _leave_drain(bbr, tp, state[DRAIN_ROUNDS], p, log)
    state[LAST_MODE] = bbr.mode


@jit
def dispatch(bbr: Bbr, ev: Event, p: Params, log: Log) -> None:
    """v3's callbacks, with the bound on DRAIN after each ACK."""
    dispatch_v3(bbr, ev, p, log)
    if ev.ctl.kind != MAIN:
        return
    bound_drain(bbr, ev.tp, p, log)
    if bbr.mode == BBR_PROBE_RTT:
        bbr.cwnd_gain = _PROBE_RTT_CWND_GAIN


_PARAMS = {"drain_gain": 128}  # 0.5
VARIANT = Variant("v3", _PARAMS, bbr_init, dispatch)
