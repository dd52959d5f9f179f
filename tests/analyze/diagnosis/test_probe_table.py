"""What rules know of each PROBE_RTT, beside the same counted event by event in Python."""

from __future__ import annotations

from statistics import median

from bbrscope.analyze.diagnosis.tables import prepare
from bbrscope.collect.store.store import Store

_AROUND_NS = 5_000_000_000


def test_every_event_around_a_probe_counts_and_no_other(shipped: Store) -> None:
    seen = 0
    for run in shipped.runs():
        prepare(shipped.con, [shipped.run_id(run)], [])
        ask = shipped.con.execute
        events = ask("SELECT flow, ns, rtt_us, mode FROM this_events WHERE rtt_us > 0").fetchall()
        phases = ask(
            "SELECT flow, seq, start_ns, end_ns FROM this_phases WHERE phase = 'PROBE_RTT'"
        ).fetchall()
        carried = dict(ask("SELECT flow, acked_bytes FROM this_flows").fetchall())
        all_carried = sum(carried.values())
        expected = []
        for flow, seq, start, end in phases:
            own = [(ns, rtt, mode) for of, ns, rtt, mode in events if of == flow]
            least = min((rtt for ns, rtt, _ in own if start <= ns <= end), default=None)
            around = min(
                (
                    rtt
                    for ns, rtt, mode in own
                    if start - _AROUND_NS <= ns <= end + _AROUND_NS and mode != "PROBE_RTT"
                ),
                default=None,
            )
            later = [
                rtt for ns, rtt, mode in own if end < ns <= end + _AROUND_NS and mode != "PROBE_RTT"
            ]
            after = median(later) if later and 10 * carried[flow] >= all_carried else None
            expected.append((flow, seq, start, end, least, around, after))
        assert sorted(ask("FROM this_probes").fetchall()) == sorted(expected)
        seen += len(expected)
    assert seen > 3
