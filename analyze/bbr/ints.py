"""The kernel's integers: fixed widths, wrap-around, and where C truncates.

Everything the estimator holds is an ``int64``; 32-bit kernel values are kept as their unsigned
value and masked wherever C would store them. Only quantities that can pass 2**63 (rates in bytes
per second) are ``uint64``: they are made by `u64` and never mixed with ``int64`` in one expression,
because numba would turn that into a float. As plain Python the same functions mask Python's
unbounded integers.
"""

from __future__ import annotations

import numpy as np

from ...probes.base.jit import PLAIN, jit
from .kernel_units import MSEC_PER_SEC

_U64_MASK = 0xFFFFFFFFFFFFFFFF


@jit
def u32(x: int) -> int:
    """`x` as C stores it in a u32: its low 32 bits, unsigned."""
    return x & 0xFFFFFFFF


@jit
def s32(x: int) -> int:
    """`x` as C reads it from an s32: its low 32 bits, signed."""
    return ((x & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


if PLAIN:

    def u64(x: int) -> int:
        """Store to a u64."""
        return x & _U64_MASK

    def i64(x: int) -> int:
        """Back from u64 to the common signed 64 bits; the value must fit."""
        return x

else:

    @jit
    def u64(x: int) -> int:
        """Store to a u64."""
        return np.uint64(x)  # type: ignore[return-value]  # numba's uint64 is an int to mypy

    @jit
    def i64(x: int) -> int:
        """Back from u64 to the common signed 64 bits; the value must fit."""
        return np.int64(x)  # type: ignore[return-value]  # numba's int64 is an int to mypy


# tcp before()
@jit
def before(seq1: int, seq2: int) -> bool:
    """Is seq1 strictly before seq2, modulo 2**32? (include/net/tcp.h before())"""
    return s32(seq1 - seq2) < 0


# tcp after()
@jit
def after(seq1: int, seq2: int) -> bool:
    """Is seq1 strictly after seq2, modulo 2**32? (include/net/tcp.h after())"""
    return s32(seq2 - seq1) < 0


# tcp tcp_stamp_us_delta()
@jit
def tcp_stamp_us_delta(t1: int, t0: int) -> int:
    """Microseconds from t0 to t1, at least 0, cut to u32 (include/net/tcp.h)."""
    delta = t1 - t0
    return u32(delta) if delta > 0 else 0


@jit
def msecs_to_jiffies(ms: int, hz: int) -> int:
    """Milliseconds to ticks, rounded up (kernel/time/time.c)."""
    return (ms * hz + MSEC_PER_SEC - 1) // MSEC_PER_SEC


@jit
def ilog2(x: int) -> int:
    """Index of the highest set bit; -1 for 0, as the kernel's fls-based ilog2()."""
    n = -1
    while x > 0:
        x >>= 1
        n += 1
    return n


@jit
def bw_times(bw: int, factor: int) -> int:
    """`(u64)bw * factor`; both below 2**32, so the product needs all 64 bits."""
    return u64(u64(bw) * u64(factor))


@jit
def mul_shift(a: int, b: int, shift: int) -> int:
    """`(u64)a * b >> shift`, stored to a u32; a and b below 2**32."""
    return u32(i64(bw_times(a, b) >> u64(shift)))
