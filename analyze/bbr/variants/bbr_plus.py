"""BBR+ (Lanigan20, for high-speed rail): gains of 1.5x and 0.5x, and an RTprop above the minimum.

RTprop is min_rtt + lambda x the standard deviation of the RTT. The study does not say over which
samples: here over the last 512 to 1024 of them.

The study's code adds to the last RTT in place of the minimum, and rounds what it adds down to whole
milliseconds: that is why lambda made no difference there.
"""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..kernel_units import U32_MAX
from ..log import note
from ..params import Params
from ..records import Bbr, Log, RateSample, Socket
from ..versions.v1 import bbr_init, bbr_update_min_rtt
from .v1_with import Piece, v1_with
from .variant import Variant

# Indices of the variant's state: v1's own minimum [us]; of the samples their number, the first
# [us], the sum and the sum of the squares of their distances from it.
MIN_RTT, SAMPLES, FIRST, SUM, SQUARES = range(5)
MOST_SAMPLES = 1024
_FARTHEST = 1 << 21  # us; keeps the square of the sum in 64 bits

_GAINS = {"pacing_gain": [384, 128] * 4}  # 1.5, 0.5
_USEC_PER_MSEC = 1000


@jit
def isqrt(x: int) -> int:
    """The whole part of the square root."""
    root, bit = 0, 1 << 44
    while bit > 0:
        if x >= root + bit:
            x -= root + bit
            root = (root >> 1) + bit
        else:
            root >>= 1
        bit >>= 2
    return root


@jit
def take_rtt(bbr: Bbr, rtt_us: int) -> None:
    """Enter a sample; from MOST_SAMPLES on the sums are halved, so that old samples fade."""
    state = bbr.variant
    if state[SAMPLES] == 0:
        state[FIRST] = rtt_us
    distance = min(max(rtt_us - state[FIRST], -_FARTHEST), _FARTHEST)
    if state[SAMPLES] >= MOST_SAMPLES:
        state[SAMPLES] = state[SAMPLES] // 2
        state[SUM] = state[SUM] // 2
        state[SQUARES] = state[SQUARES] // 2
    state[SAMPLES] = state[SAMPLES] + 1
    state[SUM] = state[SUM] + distance
    state[SQUARES] = state[SQUARES] + distance * distance


@jit
def deviation_us(bbr: Bbr) -> int:
    """The standard deviation of the RTT samples [us]; 0 without any."""
    state = bbr.variant
    n, total = state[SAMPLES], state[SUM]
    if n == 0:
        return 0
    return isqrt(max((state[SQUARES] - total * total // n) // n, 0))


def rtprop_of(shift: int, lanigan_code: bool) -> Piece:
    """v1's RTT filter, whose minimum is then raised by the deviation / 2**shift.

    `lanigan_code`: as the study's code does it, see above.
    """

    @jit
    def update_rtprop(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
        state, old_us = bbr.variant, bbr.min_rtt_us
        if state[MIN_RTT]:
            bbr.min_rtt_us = state[MIN_RTT]
        bbr_update_min_rtt(bbr, tp, rs, p, log)
        state[MIN_RTT] = bbr.min_rtt_us
        if rs.rtt_us >= 0:
            take_rtt(bbr, rs.rtt_us)
        if bbr.min_rtt_us == U32_MAX:
            return
        min_rtt_us, added_us = bbr.min_rtt_us, deviation_us(bbr) >> shift
        if lanigan_code:
            added_us = added_us // _USEC_PER_MSEC * _USEC_PER_MSEC
            if rs.rtt_us > 0:
                min_rtt_us = rs.rtt_us
        new_us = min_rtt_us + added_us
        bbr.min_rtt_us = new_us
        if new_us != old_us:
            note(log, codes.RTPROP_WITH_DEVIATION, old_us, new_us, min_rtt_us, added_us)

    return update_rtprop


HALF = Variant("v1", _GAINS, bbr_init, v1_with(min_rtt=rtprop_of(1, False)))
EIGHTH = Variant("v1", _GAINS, bbr_init, v1_with(min_rtt=rtprop_of(3, False)))
LANIGAN_CODE = Variant("v1", _GAINS, bbr_init, v1_with(min_rtt=rtprop_of(1, True)))
