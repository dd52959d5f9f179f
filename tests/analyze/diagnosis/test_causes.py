"""A finding tells the causes that the recording leaves open, and none that it rules out."""

from __future__ import annotations

import re

from bbrscope.analyze.bbr.codes import BY_NAME, PRTT_SKIP_IDLE
from bbrscope.analyze.diagnosis.engine import diagnose, diagnose_together
from bbrscope.analyze.diagnosis.rule import RuleLine, rules
from bbrscope.collect.store.store import Store

from tests.analyze.diagnosis.test_diagnosis_fires import (
    HEALTHY,
    PUT,
    RULES,
    Alter,
    alter,
    ask,
    clone,
    stranger,
)

__all__ = ["alter"]
# What is about one version's code or parameters, by the other versions' digits.
OTHERS = {"1": r"\bv2|\bv3|inflight_(hi|lo)|loss_thresh", "2": r"\bv1|\bv3", "3": r"\bv1|\bv2"}


def test_a_line_fits_by_version_and_by_what_was_found() -> None:
    found = {"there": True, "absent": False, "unknown": None}
    assert RuleLine("a").fits("v1", found)
    assert not RuleLine("a", versions="23").fits("v1", found)
    assert RuleLine("a", when="there", unless="absent").fits("v1", found)
    assert RuleLine("a", unless="unknown").fits("v2", found)
    for line in (
        RuleLine("a", when="absent"),
        RuleLine("a", when="unknown"),
        RuleLine("a", unless="there"),
    ):
        assert not line.fits("v3", found)


def test_causes_speak_of_the_version_that_was_found() -> None:
    for rule in rules():
        for version in rule.versions:
            lines = [line for line in rule.causes if version in line.versions]
            assert lines, f"{rule.name} has no cause for v{version}"
            for line in lines:
                assert line.text.endswith("."), rule.name
                assert not re.search(OTHERS[version], line.text), (rule.name, line.text)


def test_evidence_names_decisions_of_the_version_that_was_found() -> None:
    for rule in rules():
        for version in rule.versions:
            lines = [line for line in rule.evidence if version in line.versions]
            assert any(not line.when and not line.unless for line in lines), rule.name
            for code in re.findall(r"\b[A-Z]+_[A-Z_]+\b", " ".join(line.text for line in lines)):
                if code in BY_NAME:
                    assert version in BY_NAME[code].versions, (rule.name, code)


def test_some_cause_is_told_of_what_happened(shipped: Store) -> None:
    made = diagnose_together(shipped.con, [shipped.run_id(run) for run in shipped.runs()])
    told = [finding for diagnosis in made for finding in diagnosis.findings]
    assert len(told) > 3
    assert all(finding.causes for finding in told)


def test_a_flow_alone_has_no_others_in_its_queue(alter: Alter) -> None:
    run, statements = PUT["bufferbloat"]
    alone = " ".join(ask(alter(run, statements), run, "bufferbloat").causes)
    assert "Of a flow alone" in alone
    assert "Several senders" not in alone
    beside = " ".join(ask(alter(run, clone(9)), run, "bufferbloat").causes)
    assert "Several senders" in beside
    assert "Of a flow alone" not in beside


def test_losses_at_one_time_after_a_silence_are_a_path_that_was_down(alter: Alter) -> None:
    """Nothing comes back for 0.5 s, and then a thirtieth of all packets is marked lost."""
    after = "ns > {zero} + 10000000000"
    down = (
        "UPDATE events SET ns = ns + 500000000, exit_ns = exit_ns + 500000000"
        f" WHERE {{run}} AND {after}",
        "UPDATE flows SET last_ns = last_ns + 500000000 WHERE {run}",
        "UPDATE events SET tp_lost = tp_lost + 1000 WHERE {run} AND ns > {zero} + 10500000000",
    )
    told = ask(alter(HEALTHY, down), HEALTHY, "heavy_loss")
    assert told.values["was_down"]
    assert told.causes == tuple(line.text for line in told.rule.causes if line.when == "was_down")


def test_losses_at_all_times_are_not(alter: Alter) -> None:
    spread = ask(alter(HEALTHY, PUT["heavy_loss"][1]), HEALTHY, "heavy_loss")
    assert not any("was down" in text for text in spread.causes)


def test_a_probe_rtt_that_was_skipped_is_not_called_switched_off(alter: Alter) -> None:
    run, statements = PUT["probe_rtt_missing"]
    assert "switched off" in ask(alter(run, statements), run, "probe_rtt_missing").causes[0]
    skipped = (
        "INSERT INTO decisions BY NAME SELECT run_id, flow, seq, 98 AS ord, ns, {code} AS code"
        " FROM events WHERE {{run}} AND flow = 1 AND seq = 900"
    )
    store = alter(run, [skipped.format(code=PRTT_SKIP_IDLE)])
    assert "restarts from idle" in ask(store, run, "probe_rtt_missing").causes[0]


def test_losses_elsewhere_are_why_a_loss_based_flow_gets_little(alter: Alter) -> None:
    """A hundredth of all packets is marked lost that the queue did not drop; it is two BDP deep."""
    run, statements = PUT["starves_others"]
    shallow = ask(alter(run, statements), run, "starves_others")
    assert any("A buffer of" in text or "a buffer of" in text for text in shallow.remedies)
    assert not any("elsewhere" in text for text in shallow.causes)
    lossy = (
        "UPDATE events SET tp_lost = tp_lost + tp_delivered // 100 WHERE {run}",
        "UPDATE queue_samples SET backlog_bytes = 120000 WHERE {run} AND ns > {zero} + 20000000000",
    )
    told = ask(alter(run, lossy), run, "starves_others")
    assert any("elsewhere" in text for text in told.causes)
    assert not any("buffer" in text for text in (*told.causes, *told.remedies))


def test_a_timeout_that_was_undone_lost_nothing(shipped: Store, alter: Alter) -> None:
    """All silences of v2_x_spur end in an undo; without these, its packets may have been lost."""
    run = "v2_x_spur"
    (made,) = diagnose(shipped.con, shipped.run_id(run), [RULES["outage"]]).findings
    (held,) = made.causes
    assert held.startswith("Each of these timeouts was undone")
    kept = "UPDATE events SET kind = 'ssthresh' WHERE {run} AND kind = 'undo_cwnd'"
    causes = ask(alter(run, [kept]), run, "outage").causes
    assert len(causes) == 2
    assert not any("undone" in text for text in causes)


def test_who_dropped_is_told_where_the_queue_knows(alter: Alter) -> None:
    """A thirtieth of all packets was marked lost: elsewhere, or in the queue that was sampled."""
    (other,) = ask(alter(HEALTHY, PUT["heavy_loss"][1]), HEALTHY, "heavy_loss").causes
    assert "a radio, a cable or a policer" in other
    counted = (
        "UPDATE queue_samples q SET dropped = (SELECT coalesce(max(tp_lost), 0) FROM events e"
        " WHERE e.{run} AND e.ns <= q.ns) WHERE {run}"
    )
    (own,) = ask(alter(HEALTHY, [counted]), HEALTHY, "heavy_loss").causes
    assert own.startswith("The bottleneck's queue dropped most of them")
    # Beside a sender of which no events are, nothing tells whose packets it dropped.
    (open_again,) = ask(alter(HEALTHY, stranger("1448")), HEALTHY, "heavy_loss").causes
    assert open_again == other
