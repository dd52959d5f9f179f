"""What the kernel's events show beside BBR's decisions: timeouts, segment sizes, pacing caps, TLP.

TCP and the application act around BBR; none of this is a decision of the replay, and all of it is
read off the recorded events. Each kind is a `Code` like a decision's, so that it is reported alike.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...collect.store.query import Row, rows
from ..bbr.codes import BY_NAME, Code, Unit
from ..bbr.records import CA_EVENT_LOSS, CA_EVENT_TLP_RECOVERY, TCP_CA_LOSS
from .changes import Change, Reason
from .event_flows import EventFlow
from .sentences import evidence_of, fill

if TYPE_CHECKING:
    import duckdb

# No cap: ~0UL, also as a signed number.
UNLIMITED = (-1, (1 << 64) - 1, (1 << 32) - 1)


def _observation(name: str, about: str, function: str, sentence: str, **units: Unit) -> Code:
    model = BY_NAME["CORE_OTHER"]
    return replace(
        model,
        number=0,
        name=name,
        about=about,
        function=function,
        sentence=sentence,
        units=units,
    )


# tcp_timer.c tcp_retransmit_timer() calls tcp_enter_loss() each time that the timer expires.
TIMEOUT = _observation(
    "TIMEOUT",
    "timeout",
    "tcp_retransmit_timer",
    "The retransmission timer expired with {inflight:packet|packets} in flight.",
    inflight=Unit.PACKETS,
)
TIMEOUT_AGAIN = _observation(
    "TIMEOUT_AGAIN",
    "timeout",
    "tcp_retransmit_timer",
    "The retransmission timer expired again, number {timeouts} in a row: backed off, {since_us}"
    " after the one before.",
    timeouts=Unit.COUNT,
    since_us=Unit.TIME,
)
# tcp_output.c tcp_sync_mss(); tcp_input.c tcp_simple_retransmit() then marks lost what no longer
# fits and enters the state Loss without a timeout.
MTU_DROP = _observation(
    "MTU_DROP",
    "loss_state",
    "tcp_simple_retransmit",
    "The path MTU fell, so that segments have {to_bytes:byte|bytes} and no longer {from_bytes}: TCP"
    " marked what was in flight lost and entered the state Loss. No timer expired.",
    from_bytes=Unit.COUNT,
    to_bytes=Unit.COUNT,
)
MSS_CHANGED = _observation(
    "MSS_CHANGED",
    "mss",
    "tcp_sync_mss",
    "Segments have {new:byte|bytes} and no longer {old}: max_bw, BDP and the bounds count"
    " segments, so"
    " the same numbers now mean other amounts of data.",
    old=Unit.COUNT,
    new=Unit.COUNT,
)
PACING_CAPPED = _observation(
    "PACING_CAPPED",
    "max_pacing_rate",
    "sock_setsockopt",
    "The application set SO_MAX_PACING_RATE from {old_rate} to {new_rate}: BBR paces no faster.",
    old_rate=Unit.RATE,
    new_rate=Unit.RATE,
)
TLP_REPAIRED = _observation(
    "TLP_REPAIRED",
    "tlp",
    "tcp_process_tlp_ack",
    "A tail loss probe repaired the loss of a flight's last packet.",
)
OBSERVATIONS = {
    code.name: code
    for code in (TIMEOUT, TIMEOUT_AGAIN, MTU_DROP, MSS_CHANGED, PACING_CAPPED, TLP_REPAIRED)
}

# Events that may be one of these, with what was before. The segment size is compared with that at
# the last callback that was not part of marking packets lost.
_CANDIDATES = f"""
WITH e AS (
  SELECT seq, ns, kind, event, new_state, icsk_ca_state AS state, tp_mss_cache AS mss,
    tp_snd_cwnd AS cwnd, sk_max_pacing_rate AS cap, jiffies32,
    packets_in_flight(tp_packets_out, tp_sacked_out, tp_lost_out, tp_retrans_out) AS inflight,
    tp_packets_out AS packets_out,
    lag(tp_mss_cache) OVER w AS mss_before, lag(sk_max_pacing_rate) OVER w AS cap_before,
    last_value(CASE WHEN kind NOT IN ('skb_marked_lost', 'set_state') THEN tp_mss_cache END
      IGNORE NULLS) OVER before AS mss_sent,
    last_value(CASE WHEN kind <> 'skb_marked_lost' THEN coalesce(event, 255) END IGNORE NULLS)
      OVER before AS event_before
  FROM events WHERE run_id = ? AND flow = ? AND seq >= ?
  WINDOW w AS (ORDER BY seq),
    before AS (ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
)
SELECT * FROM e WHERE (kind = 'set_state' AND new_state = {TCP_CA_LOSS}) OR mss <> mss_before
  OR cap <> cap_before OR (kind = 'cwnd_event' AND event = {CA_EVENT_TLP_RECOVERY})
ORDER BY seq
"""


def observed(con: duckdb.DuckDBPyConnection, flow: EventFlow) -> list[Change]:
    """Return timeouts, changes of segment size and of SO_MAX_PACING_RATE, and TLP repairs."""
    records = rows(con, _CANDIDATES, flow.run_id, flow.flow, flow.summary["pre_init"])
    changes: list[Change] = []
    in_a_row, previous_ns = 0, 0
    for row in records:
        changes += _sizes_and_caps(row, flow)
        if row["kind"] == "cwnd_event" and row["event"] == CA_EVENT_TLP_RECOVERY:
            changes.append(_change(row, flow, TLP_REPAIRED))
        if row["kind"] != "set_state" or row["new_state"] != TCP_CA_LOSS:
            continue
        if not is_timeout(row):
            if row["mss"] and row["mss"] < (row["mss_sent"] or 0):
                changes.append(_change(row, flow, MTU_DROP, row["mss_sent"], row["mss"]))
            continue
        in_a_row = in_a_row + 1 if row["state"] == TCP_CA_LOSS else 1
        if in_a_row > 1:
            since = (row["ns"] - previous_ns) // 1000
            changes.append(_change(row, flow, TIMEOUT_AGAIN, in_a_row, since))
        else:
            changes.append(_change(row, flow, TIMEOUT, row["packets_out"]))
        previous_ns = row["ns"]
    return changes


def is_timeout(row: Row) -> bool:
    """Tell whether a change to the state Loss is by the retransmission timer.

    tcp_enter_loss() leaves cwnd at one more than is in flight, and announces CA_EVENT_LOSS where a
    new episode begins; tcp_simple_retransmit(), after a fall of the path MTU, does neither.
    """
    return bool(row["cwnd"] == row["inflight"] + 1 or row["event_before"] == CA_EVENT_LOSS)


def _sizes_and_caps(row: Row, flow: EventFlow) -> list[Change]:
    changes = []
    if row["mss_before"] is not None and row["mss"] != row["mss_before"]:
        changes.append(_change(row, flow, MSS_CHANGED, row["mss_before"], row["mss"]))
    if row["cap_before"] is not None and row["cap"] != row["cap_before"]:
        changes.append(_change(row, flow, PACING_CAPPED, row["cap_before"], row["cap"]))
    return changes


def _change(row: Row, flow: EventFlow, code: Code, *numbers: int) -> Change:
    sentence = fill(code, numbers, row["mss"], flow.hz, row["jiffies32"])
    evidence = evidence_of(code, numbers)
    old = evidence.get("old", evidence.get("old_rate"))
    new = evidence.get("new", evidence.get("new_rate"))
    reason = Reason(code, evidence, sentence)
    ns = int(row["ns"])
    return Change(
        row["seq"], ns, code.about, old, new, code.name, (reason,), row["mss"], until_ns=ns
    )
