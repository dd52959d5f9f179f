"""Events of qlog keep to the drafts' definitions, and say what was recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.reports.cli import cli, main
from click.testing import CliRunner

from tests.truth import raw, wire

RUN = "v2_single_1bdp"
# What the drafts require of what is written; every key is known, and none is another. The current
# ones are draft-ietf-quic-qlog-main-schema-14 and -quic-events-13; qlog_version "0.3" is that of
# -main-schema-05 and -quic-events-04, whose main schema lets a trigger be any text.
HEADS = {
    "current": """
log = {file_schema: "urn:ietf:params:qlog:file:contained",
  serialization_format: "application/qlog+json", title: text, description: text,
  traces: [+ trace]}
trace = {title: text, description: text, vantage_point: {name: text, type: "server"},
  common_fields: {"time_format": "relative_to_epoch",
    reference_time: {clock_type: "monotonic", epoch: "unknown", ? wall_clock_time: text}},
  event_schemas: [+ text], events: [* any]}
stream = {frame_type: "stream", stream_id: uint, offset: uint, raw: raw}
""",
    "0.3": """
log = {qlog_version: "0.3", qlog_format: "JSON", title: text, description: text, traces: [+ trace]}
trace = {title: text, description: text, vantage_point: {name: text, type: "server"},
  common_fields: {protocol_type: [+ text], "time_format": "relative", reference_time: amount},
  events: [* any]}
stream = {frame_type: "stream", stream_id: uint, offset: uint, length: uint}
""",
}
DATA = """
amount = uint / float
metrics = {
  ? min_rtt: amount, ? smoothed_rtt: amount, ? latest_rtt: amount, ? congestion_window: uint,
  ? bytes_in_flight: uint, ? packets_in_flight: uint, ? pacing_rate: uint, ? ssthresh: uint}
state = {? old: text, new: text, ? trigger: text}
header = {packet_type: "1RTT", packet_number: uint}
raw = {? length: uint, ? payload_length: uint}
sent = {header: header, raw: raw, frames: [+ stream]}
received = {header: header, raw: raw,
  frames: [+ {frame_type: "ack", acked_ranges: [+ [uint, uint]]}]}
lost = {header: header}
decision = {about: text, what: text, trigger: text, ? decision: text, ? function: text,
  ? evidence: {* text => int}}
"""
RULES = {
    "current": {
        "quic:recovery_metrics_updated": "metrics",
        "quic:congestion_state_updated": "state",
        "quic:packet_sent": "sent",
        "quic:packet_received": "received",
        "quic:packet_lost": "lost",
        "bbr:decision": "decision",
    },
    "0.3": {
        "recovery:metrics_updated": "metrics",
        "recovery:congestion_state_updated": "state",
        "transport:packet_sent": "sent",
        "transport:packet_received": "received",
        "recovery:packet_lost": "lost",
        "bbr:decision": "decision",
    },
}


def export(store: Path, output: Path, *options: str) -> None:
    args = ["export", "--store", str(store), "--format", "qlog", "-o", str(output)]
    said = CliRunner().invoke(cli, [*args, *options], catch_exceptions=False)
    assert said.exit_code == 0, said.output


@pytest.fixture(scope="module")
def log(shipped_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("qlog") / "two.qlog"
    export(shipped_path, path, RUN, "v3_x_tlp5")
    return json.loads(path.read_text())


def data_of(log: Any, name: str, trace: int = 0) -> Iterator[tuple[float, Any]]:
    for event in log["traces"][trace]["events"]:
        if event["name"].endswith(name):
            yield event["time"], event["data"]


def require_known_to_drafts(log: Any, dialect: str) -> dict[str, list[Any]]:
    """Check a document and some events of each kind; return all events by their names."""
    pycddl = pytest.importorskip("pycddl", reason="pip install pycddl cbor2")
    cbor2 = pytest.importorskip("cbor2", reason="pip install pycddl cbor2")
    cddl = HEADS[dialect] + DATA
    pycddl.Schema(cddl).validate_cbor(cbor2.dumps(log))
    by_name: dict[str, list[Any]] = {}
    for trace in log["traces"]:
        for event in trace["events"]:
            by_name.setdefault(event["name"], []).append(event)
    for name, events in by_name.items():
        rule = RULES[dialect][name]
        schema = pycddl.Schema(f'root = {{"time": amount, name: "{name}", data: {rule}}}\n{cddl}')
        for event in events[:: max(1, len(events) // 200)]:
            schema.validate_cbor(cbor2.dumps(event))
        wrong = events[0] | {"data": events[0]["data"] | {"speed": 1}}
        with pytest.raises(pycddl.ValidationError):
            schema.validate_cbor(cbor2.dumps(wrong))
    return by_name


def test_the_drafts_know_every_event(log: Any) -> None:
    few = require_known_to_drafts(log, "current")
    assert set(few) == set(RULES["current"]) - {"quic:packet_lost"}
    # The checker lets a wrong type pass where a key may be missing.
    for event in few["quic:recovery_metrics_updated"]:
        times = {key for key in event["data"] if key.endswith("rtt")}
        assert all(event["data"][key] > 0 for key in times)
        assert all(type(event["data"][key]) is int for key in set(event["data"]) - times)


def test_metrics_states_and_packets_are_those_of_the_recording(
    log: Any, shipped_path: Path
) -> None:
    times = [event["time"] for event in log["traces"][0]["events"]]
    assert times == sorted(times)
    with open_store(shipped_path, read_only=True) as store:
        con = store.con
        run_id = store.run_id(RUN)
        rtts, paces = con.execute(
            "SELECT list(rs_rtt_us / 1e3 ORDER BY seq) FILTER (rs_rtt_us > 0),"
            " list(exit_sk_pacing_rate * 8 ORDER BY seq) FILTER (kind IN ('main', 'init'))"
            " FROM events WHERE run_id = ? AND flow = 1",
            [run_id],
        ).fetchall()[0]
        phases = con.execute(
            "SELECT from_phase, to_phase FROM transitions WHERE run_id = ? AND flow = 1"
            " ORDER BY seq",
            [run_id],
        ).fetchall()
        segments, payload = con.execute(
            "SELECT count(*), sum(len) FROM packets WHERE run_id = ? AND flow = 1 AND len > 0"
            " AND ns BETWEEN (SELECT first_ns FROM flows WHERE run_id = $1 AND flow = 1)"
            " AND (SELECT last_ns FROM flows WHERE run_id = $1 AND flow = 1)".replace("?", "$1"),
            [run_id],
        ).fetchall()[0]
    changes = [rtt for n, rtt in enumerate(rtts) if n == 0 or rtt != rtts[n - 1]]
    metrics = [data for _, data in data_of(log, "metrics_updated")]
    assert [data["latest_rtt"] for data in metrics if "latest_rtt" in data] == changes
    paced = [data["pacing_rate"] for data in metrics if "pacing_rate" in data]
    assert paced == [pace for n, pace in enumerate(paces) if n == 0 or pace != paces[n - 1]]
    states = [(data.get("old"), data["new"]) for _, data in data_of(log, "state_updated")]
    assert states == phases
    sent = [data for _, data in data_of(log, "packet_sent")]
    assert len(sent) == segments
    assert sum(data["raw"]["payload_length"] for data in sent) == payload
    numbers = [data["header"]["packet_number"] for data in sent]
    assert numbers == list(range(segments))
    acked = [
        number
        for _, data in data_of(log, "packet_received")
        for first, last in data["frames"][0]["acked_ranges"]
        for number in range(first, last + 1)
    ]
    assert len(acked) == len(set(acked))
    assert set(acked) <= set(numbers)
    assert segments - len(acked) < 60  # what was in flight at the end


def test_the_older_drafts_know_every_event(shipped_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "old.qlog"
    export(shipped_path, path, RUN, "--dialect", "0.3", "--between", "0s", "2s")
    log = json.loads(path.read_text())
    few = require_known_to_drafts(log, "0.3")
    assert set(few) == set(RULES["0.3"]) - {"recovery:packet_lost"}
    assert log["traces"][0]["common_fields"]["protocol_type"] == ["TCP"]
    for event in few["transport:packet_sent"]:
        assert event["data"]["frames"][0]["length"] == event["data"]["raw"]["payload_length"]


def test_older_names_a_sequence_and_names_of_the_draft(
    shipped_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "one.sqlog"
    window = ("--between", "1s", "2s", "--names", "draft")
    export(shipped_path, path, RUN, "--flow", "1", "--dialect", "0.3", *window)
    first, *rest = path.read_text().split("\x1e")
    assert first == ""
    assert all(text.endswith("\n") for text in rest)
    head, *events = map(json.loads, rest)
    assert (head["qlog_version"], head["qlog_format"]) == ("0.3", "JSON-SEQ")
    names = {event["name"] for event in events}
    assert {"recovery:metrics_updated", "recovery:congestion_state_updated"} < names
    assert all(1000 <= event["time"] <= 2000 for event in events)
    states = [e["data"] for e in events if e["name"] == "recovery:congestion_state_updated"]
    assert (states[0]["old"], states[0]["new"]) == ("ProbeBW_CRUISE", "ProbeBW_REFILL")
    assert "Reno-fair limit" in states[0]["trigger"]
    args = ["export", RUN, "v1_x_lt", "--store", str(shipped_path), "--format", "qlog", "-o"]
    with pytest.raises(SystemExit):
        main([*args, str(tmp_path / "two.sqlog")])
    assert "is of one flow, and this would be 2" in capsys.readouterr().err


def marked_lost(bundle: Path) -> list[tuple[int, int]]:
    """When each segment that the capture has was marked lost [ns], and its number there."""
    (rows,) = raw.events(bundle).values()
    most = max(wire.senders(bundle), key=lambda it: it.sent["payload"].sum())
    sent = most.sent.filter((wire.pl.col("payload") > 0) & (wire.pl.col("ns") >= rows["ns"][0]))
    passed: dict[int, list[tuple[int, int]]] = {}
    for number, (begin, size, ns) in enumerate(sent.select("seq", "payload", "ns").iter_rows()):
        passed.setdefault((begin + size) % wire.WRAP, []).append((number, ns))
    lost = []
    for ns, end in rows.filter(kind="L").select("ns", "skb.end_seq").iter_rows():
        before = [number for number, then in passed.get(end, []) if then <= ns]
        lost += [(ns, before[-1])] if before else []
    return lost


def test_packets_lost_are_those_that_the_kernel_marked_and_the_capture_has(
    traces: Path, tmp_path: Path
) -> None:
    """An outage behind the capture: by the raw rows, and by the packets as they were captured."""
    bundle = traces / "v3_outage_rto"
    store = tmp_path / "s.duckdb"
    with open_store(store) as opened:
        ingest(opened, bundle)
    expected = marked_lost(bundle)
    assert len(expected) == 19
    for dialect, name in (("current", "quic:packet_lost"), ("0.3", "recovery:packet_lost")):
        path = tmp_path / f"{dialect}.qlog"
        export(store, path, bundle.name, "--dialect", dialect)
        log = json.loads(path.read_text())
        (trace,) = log["traces"]
        trace["events"] = [event for event in trace["events"] if event["name"] == name]
        require_known_to_drafts(log, dialect)
        said = [(data["header"]["packet_number"], time) for time, data in data_of(log, name)]
        assert [number for number, _ in said] == [number for _, number in expected]
        # All by one zero, the run's.
        zeros = {ns - round(at * 1e6) for (ns, _), (_, at) in zip(expected, said, strict=True)}
        assert len(zeros) == 1
