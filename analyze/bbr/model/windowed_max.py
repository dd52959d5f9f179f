"""Kathleen Nichols' windowed maximum of three samples (lib/win_minmax.c), v1's bandwidth filter."""

from __future__ import annotations

from ....probes.base.jit import jit
from ..ints import u32
from ..records import Bbr


# minmax minmax_reset()
@jit
def minmax_reset(bbr: Bbr, t: int, v: int) -> None:
    """Make sample `v` of round `t` the best, the second and the third."""
    for i in range(3):
        _set(bbr, i, t, v)


@jit
def _set(bbr: Bbr, i: int, t: int, v: int) -> None:
    bbr.bw_t[i] = t
    bbr.bw_v[i] = v


@jit
def _shift(bbr: Bbr, t: int, v: int) -> None:
    _set(bbr, 0, bbr.bw_t[1], bbr.bw_v[1])
    _set(bbr, 1, bbr.bw_t[2], bbr.bw_v[2])
    _set(bbr, 2, t, v)


# minmax minmax_subwin_update()
@jit
def _minmax_subwin_update(bbr: Bbr, win: int, t: int, v: int) -> None:
    dt = u32(t - bbr.bw_t[0])
    if dt > win:
        # The best sample left the window, and perhaps the second with it.
        _shift(bbr, t, v)
        if u32(t - bbr.bw_t[0]) > win:
            _shift(bbr, t, v)
    elif bbr.bw_t[1] == bbr.bw_t[0] and dt > win // 4:
        # A quarter of the window without a second choice: take one from there.
        _set(bbr, 1, t, v)
        _set(bbr, 2, t, v)
    elif bbr.bw_t[2] == bbr.bw_t[1] and dt > win // 2:
        _set(bbr, 2, t, v)


# minmax minmax_running_max()
@jit
def minmax_running_max(bbr: Bbr, win: int, t: int, v: int) -> None:
    """Enter sample `v` of round `t` into the maximum over `win` rounds; `>=` makes ties newest."""
    if v >= bbr.bw_v[0] or u32(t - bbr.bw_t[2]) > win:
        minmax_reset(bbr, t, v)
        return
    if v >= bbr.bw_v[1]:
        _set(bbr, 1, t, v)
        _set(bbr, 2, t, v)
    elif v >= bbr.bw_v[2]:
        _set(bbr, 2, t, v)
    _minmax_subwin_update(bbr, win, t, v)
