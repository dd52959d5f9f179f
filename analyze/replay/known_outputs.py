"""What the recording shows of each event's outputs, and what TCP itself changed between events.

Outputs are what BBR leaves outside of struct bbr: cwnd, pacing rate, ssthresh, app_limited. main
and init have an exit row that shows all of them; what other callbacks left shows in the entry of
the event that follows, as far as nobody else wrote there in between.
"""

from __future__ import annotations

import numpy as np

from ...probes.fields import with_role
from ..bbr.records import (
    CHECK_APP_LIMITED,
    CHECK_CWND,
    CHECK_PACING,
    CHECK_SSTHRESH,
    CWND_EVENT,
    INIT,
    MAIN,
    SET_STATE,
    TCP_CA_LOSS,
    UNDO_CWND,
    Array,
)

# Callbacks without an exit row that may change the window.
_WRITE_CWND = (SET_STATE, CWND_EVENT, UNDO_CWND)
_CHECK_ALL = CHECK_CWND | CHECK_PACING | CHECK_SSTHRESH | CHECK_APP_LIMITED


def fill_controls(events: Array, columns: dict[str, Array], has_exit: Array) -> None:
    """Fill the control record of every event.

    Args:
        events: EVENT [n].
        columns: the recorded columns of these events; NULL is 0.
        has_exit: bool [n], the event's exit row was recorded.
    """
    ctl = events["ctl"]
    _identify(ctl, columns)
    if len(events):
        _take_exits(ctl, columns, has_exit)
        _take_next_entries(ctl, columns, has_exit)
        _mark_core_writes(ctl, columns, (ctl["kind"] == MAIN) & ~has_exit)


def _identify(ctl: Array, columns: dict[str, Array]) -> None:
    """What was called, with what argument, and whether the state after it is recorded."""
    kind = columns["kind"].astype(np.int64)
    ctl["kind"] = kind
    ctl["arg"] = np.where(kind == SET_STATE, columns["new_state"], columns["event"])
    ctl["entry_snd_cwnd"] = columns["tp_snd_cwnd"]
    ctl["entry_sk_pacing_rate"] = columns["sk_pacing_rate"]
    ctl["resync"][:1] = 1
    ctl["has_next"][:-1] = 1
    ctl["has_next"][kind == INIT] = 1  # its own row records the state after it


def _take_exits(ctl: Array, columns: dict[str, Array], has_exit: Array) -> None:
    for field in with_role("output"):
        ctl[field.exit_column] = columns[field.exit_column]
    ctl["check"] = np.where(has_exit, _CHECK_ALL, 0)


def _take_next_entries(ctl: Array, columns: dict[str, Array], has_exit: Array) -> None:
    """Without an exit row, the next event's entry shows cwnd and pacing rate.

    Not the window if TCP collapsed it on a timeout in between, nor the rate if the application set
    another limit.
    """
    n = len(ctl)
    following = np.append(np.arange(1, n), n - 1)
    by_next = ~has_exit & (np.arange(n) < n - 1)
    collapse = (ctl["kind"][following] == SET_STATE) & (ctl["arg"][following] == TCP_CA_LOSS)
    writes_cwnd = np.isin(ctl["kind"], _WRITE_CWND)
    limit = columns["sk_max_pacing_rate"]
    known_cwnd = by_next & writes_cwnd & ~collapse
    known_rate = by_next & (limit[following] == limit)
    for known, exit_name, column, bit in (
        (known_cwnd, "exit_snd_cwnd", "tp_snd_cwnd", CHECK_CWND),
        (known_rate, "exit_sk_pacing_rate", "sk_pacing_rate", CHECK_PACING),
    ):
        ctl[exit_name][known] = columns[column][following][known]
        ctl["check"] |= np.where(known, bit, 0)


def _mark_core_writes(ctl: Array, columns: dict[str, Array], unknown_main: Array) -> None:
    """Where cwnd or pacing rate is not what BBR left there: TCP or the application wrote it.

    What BBR left is the known output, else (a callback that does not write it) the entry itself.
    The recorded value is taken, too, after a callback that may have written it but whose output is
    not known: a main() without its exit row, or a window that a timeout collapsed at once.
    """
    for taken, exit_name, column, bit, writers in (
        ("take_cwnd", "exit_snd_cwnd", "tp_snd_cwnd", CHECK_CWND, _WRITE_CWND),
        ("take_pacing", "exit_sk_pacing_rate", "sk_pacing_rate", CHECK_PACING, (CWND_EVENT,)),
    ):
        known = (ctl["check"] & bit) != 0
        unknown = unknown_main | (np.isin(ctl["kind"], writers) & ~known)
        left = np.where(known, ctl[exit_name], columns[column])
        ctl[taken][1:] = (left[:-1] != columns[column][1:]) | unknown[:-1]
