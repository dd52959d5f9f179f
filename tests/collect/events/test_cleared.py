"""A connection that its program aborts ends with its last ACK, not with a cleared state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import zstandard
from bbrscope.analyze.replay import keep_results, replay_runs
from bbrscope.analyze.story.completeness import completeness_of
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.events.read_events import EventReader
from bbrscope.collect.ingest.ingest import ingest

ABORTED = Path(__file__).with_name("aborted")
HEAD = [
    "#M,ns,sk,seqno,tp.delivered,rs.acked_sacked,bbr.mode,bbr.lt_bw",
    "#X,ns,sk,tp.snd_cwnd",
    "#I,ns,sk,sport,dport,daddr,seqno",
    "#IX,ns,sk,bbr.mode",
    "#S,ns,sk,seqno,new_state,tp.delivered,bbr.mode,bbr.lt_bw",
]


def kinds(folder: Path) -> list[str]:
    reader = EventReader(folder / "events.csv.zst", "events.csv")
    return [row["kind"] for batch in reader.batches() for row in batch.to_pylist()]


def test_an_aborted_connection_has_delivered_what_it_did(tmp_path: Path) -> None:
    """91 events of a kernel 6.1, then set_state() as tcp_disconnect() calls it."""
    with open_store(tmp_path / "aborted.duckdb") as store:
        ingest(store, ABORTED, packets=False)
        run_id = store.run_id("aborted")
        for replayed in replay_runs.replay_runs(store.con, [run_id]):
            keep_results.keep(store, replayed)
        (flow,) = store.con.execute(
            "SELECT events, delivered, min_rtt_us, final_phase FROM flow_summary WHERE run_id = ?",
            [run_id],
        ).fetchall()
        last = store.con.execute("SELECT arg_max(tp_delivered, seq) FROM events").fetchall()[0][0]
        assert flow == (91, last - 1, 100_000, "STARTUP")
        assert completeness_of(store.con, run_id).lacks is False
        told = store.con.execute("SELECT flow, line, kind FROM capture_quality").fetchall()
    with (ABORTED / "events.csv.zst").open("rb") as packed:
        raw = zstandard.ZstdDecompressor().stream_reader(packed).read().decode().splitlines()
    last = max(number for number, line in enumerate(raw, 1) if line.startswith("S,"))
    assert told == [(1, last, "cleared")]


def test_only_calls_on_a_flow_that_was_there_are_left_out(
    make_bundle: Callable[..., Path],
) -> None:
    """A SYN that is sent again has set_state() called on a struct that init has not filled yet."""
    before = ["S,90,a,0,4,0,0,0", "S,95,a,1,0,0,0,0"]
    opened = ["I,100,a,256,20756,33556746,2", "IX,101,a,1"]
    acked = ["M,110,a,3,5,1,1,7", "X,111,a,10"]
    state = "S,120,a,4,0,5,1,7"
    cleared = "S,130,a,5,0,0,0,0"
    whole = make_bundle([*HEAD, *before, *opened, *acked, state, cleared])
    assert kinds(whole) == ["set_state", "set_state", "init", "main", "set_state"]
