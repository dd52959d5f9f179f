"""Logs of ss and of v2alpha's kernel become runs that say what the recording itself says."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from bbrscope.analyze.compare import run_metrics as metrics
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.bundle.recognise import recognise
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.samples import (
    kernel_log as samples_kernel_log,
)
from bbrscope.collect.samples import (
    log_times as samples_time,
)
from bbrscope.collect.samples import (
    ss_log as samples_ss,
)
from bbrscope.collect.store.store import Store
from bbrscope.probes.base.errors import BbrscopeError, BundleError

RUN = "v2_single_1bdp"
UNSET = 2**32 - 1

# printf formats as the programs have them: google/bbr v2alpha tcp_bbr2.c bbr_debug() ...
KERNEL = (
    "BBR %s:%-5u %5u,%03u:%-7u %s "
    "%s %2u br %2u cr %2d rtt %5d d %2d i %5d mrtt %d %sbw %u "
    "bw %u lb %u ib %u qb %u "
    "a %u if %2u %s %s dl %u l %u al %u # %u t %u %s %s "
    "lr %d er %d ea %d bwl %d il %d ih %d c %d "
    "v %d %s %u %s %s"
)
# ... and iproute2's misc/ss.c tcp_stats_print(), with google/bbr's patch for v3.
SS = (
    "\t ts sack bbr wscale:7,7 rto:%d rtt:%g/%g mss:%d pmtu:1500 rcvmss:536 advmss:1448 cwnd:%u "
    "bytes_sent:%d bytes_acked:%d segs_out:9 data_segs_out:%d bbr:(%s) send 9.1Mbps "
    "lastsnd:4 lastrcv:9 lastack:4 pacing_rate %dbps delivery_rate %dbps delivered:%u busy:%dms "
    "rwnd_limited:96ms(2.4%%) unacked:%u retrans:%u/%u rcv_space:14480 minrtt:%g"
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store.duckdb") as opened:
        yield opened


@pytest.fixture(scope="module")
def mains(shipped_path: Path) -> list[dict[str, Any]]:
    """The recording's calls of main(), with the state after them where they found it."""
    with open_store(shipped_path, read_only=True) as opened:
        result = opened.con.execute(
            "SELECT e.*, e.tp_snd_una::BIGINT - min(tp_snd_una) OVER () AS una"
            " FROM events e JOIN runs USING (run_id) JOIN flows f USING (run_id, flow)"
            " WHERE run = ? AND kind = 'main' AND f.main > 5000 AND seq >= pre_init ORDER BY seq",
            [RUN],
        )
        names = [part[0] for part in result.description]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def _kbps(bw: int, mss: int) -> int:
    """tcp_bbr2.c bbr_rate_kbps()."""
    return (bw * mss * (10**6 // 100 * 100) >> 24) * 8 // 1000


def _max_bw(row: dict[str, Any]) -> int:
    return int(max(row["bbr_bw_hi_0"], row["bbr_bw_hi_1"]))


def _signed(value: int) -> int:
    return -1 if value == UNSET else value


def _kernel_line(row: dict[str, Any]) -> str:
    mss = row["tp_mss_cache"]
    in_flight = row["tp_packets_out"] - row["tp_sacked_out"] - row["tp_lost_out"]
    return KERNEL % (
        *("10.9.0.2", 5201, row["una"] // 1000, row["una"] % 1000, 1448),
        *("OOORL"[row["icsk_ca_state"]], "GDWM"[row["bbr_mode"]], row["tp_snd_cwnd"], 0, 7),
        *(row["rs_rtt_us"], row["rs_delivered"], row["rs_interval_us"], row["bbr_min_rtt_us"]),
        *("_" if row["rs_is_app_limited"] else "l", 0, _kbps(_max_bw(row), mss), 0, 0),
        *(row["sk_pacing_rate"] * 8 // 1000, row["rs_acked_sacked"]),
        *(in_flight + row["tp_retrans_out"], ".", "*"),
        *(row["tp_delivered"], row["tp_lost"], row["tp_app_limited"], 0, 99, ".", "O", 0, 0, 0),
        -1 if row["bbr_bw_lo"] == UNSET else _kbps(row["bbr_bw_lo"], mss),
        *(_signed(row["bbr_inflight_lo"]), _signed(row["bbr_inflight_hi"]), -1, 2),
        *(".", row["bbr_cycle_idx"], "IRBFA"[row["bbr_ack_phase"]], "Y"),
    )


def test_a_kernel_log_tells_what_the_events_of_the_same_flow_tell(
    store: Store, shipped: Store, mains: list[dict[str, Any]], tmp_path: Path
) -> None:
    """No tolerance where the format has every digit; its rates are in kbit/s."""
    path = tmp_path / "dmesg.txt"
    path.write_text(
        "".join(
            f"[{row['ns'] // 10**9:5d}.{row['ns'] // 1000 % 10**6:06d}] {_kernel_line(row)}\n"
            "[    1.000000] eth0: link up\n"
            for row in mains
        )
    )
    outcome = ingest(store, path)
    assert (outcome.run, outcome.version, outcome.flows) == ("dmesg", "v2", 1)
    assert outcome.samples == len(mains) > 9000
    rows = store.con.execute(
        "SELECT ns, phase, inflight_hi, inflight_lo, bw_lo, min_rtt_us, snd_cwnd, delivered, lost"
        " FROM samples ORDER BY poll"
    ).fetchall()
    cycle = ("UP", "DOWN", "CRUISE", "REFILL")
    for row, had in zip(rows, mains, strict=True):
        mode = ("STARTUP", "DRAIN", f"PROBE_BW_{cycle[had['bbr_cycle_idx']]}", "PROBE_RTT")
        bounds = [had[f"bbr_inflight_{side}"] for side in ("hi", "lo")]
        assert row == (
            had["ns"] // 1000 * 1000,
            mode[had["bbr_mode"]],
            *(None if bound == UNSET else bound for bound in bounds),
            None if had["bbr_bw_lo"] == UNSET else _kbps(had["bbr_bw_lo"], 1448) * 1000,
            *(had[name] for name in ("bbr_min_rtt_us", "tp_snd_cwnd", "tp_delivered", "tp_lost")),
        )
    ours = metrics.table(store.con, [outcome.run_id], "flow").to_pylist()[0]
    theirs = max(
        metrics.table(shipped.con, [shipped.run_id(RUN)], "flow").to_pylist(),
        key=lambda flow: flow["acked_bytes"] or 0,
    )
    assert ours["lost_packets"] == theirs["lost_packets"] > 50
    # Events begin with init, some 40 ms before the first ACK of 25 s.
    for name in ("acked_bytes", "delivered_packets", "goodput_mbps", "rtt_p95_us"):
        assert ours[name] == pytest.approx(theirs[name], rel=0.002), name
    assert ours["rwnd_limited_share"] is None


def _ss_block(row: dict[str, Any], v3: bool) -> str:
    mss, bw = row["tp_mss_cache"], _max_bw(row) * row["tp_mss_cache"] * 10**6 >> 24
    bbr = f"bw:{bw * 8}bps,mrtt:{row['bbr_min_rtt_us'] / 1000:g},pacing_gain:1.25,cwnd_gain:2"
    if v3:
        bbr += f",version:3,bw_hi:{bw * 8}bps"
        if row["bbr_inflight_hi"] != UNSET:
            bbr += f",inflight_hi:{row['bbr_inflight_hi']}"
        bbr += ",extra_acked:3,mode:2,phase:PROBE_BW_UP"
    return "ESTAB 0 2500 [::ffff:10.1.0.1]:41000 10.9.0.2%eth0:5201 timer:(on,2ms,0) sk:1f\n" + (
        SS
        % (
            *(231, row["tp_srtt_us"] / 8000, 0.5, mss, row["tp_snd_cwnd"], row["una"], row["una"]),
            *(row["tp_delivered"], bbr, row["sk_pacing_rate"] * 8, bw * 8, row["tp_delivered"]),
            *(row["ns"] // 10**6 % 10**5, row["tp_packets_out"], row["tp_retrans_out"]),
            *(row["tp_lost"], row["bbr_min_rtt_us"] / 1000),
        )
    )


@pytest.mark.parametrize("v3", [False, True])
@pytest.mark.parametrize("packing", ["plain", "gz", "zst"])
def test_a_log_of_ss_tells_what_the_events_tell_as_often_as_it_looks(
    store: Store, mains: list[dict[str, Any]], tmp_path: Path, v3: bool, packing: str
) -> None:
    """Goodput between first and last look is exact; RTTs are smoothed ones, as ss prints them."""
    looks = mains[::50]
    head = "State Recv-Q Send-Q Local Address:Port Peer Address:Port Process\n"
    text = "".join(
        f"{1_700_000_000 + row['ns'] / 1e9:.6f}\n{head}"
        f"ESTAB 0 0 10.1.0.1:22 10.9.0.9:999\n\t cubic cwnd:10 rtt:1/1\n{_ss_block(row, v3)}\n"
        for row in looks
    )
    pack = {"plain": bytes, "gz": gzip.compress, "zst": zstandard.compress}[packing]
    path = tmp_path / f"ss.log.{packing}"
    path.write_bytes(pack(text.encode()))  # type: ignore[operator]
    outcome = ingest(store, path)
    assert (outcome.flows, outcome.samples) == (1, len(looks))
    assert outcome.version == ("v3" if v3 else None)
    assert outcome.notes == ({} if v3 else {"samples_v1_form": 1})
    rows = store.con.execute(
        "SELECT poll, min_rtt_us, inflight_hi, phase, snd_cwnd, srtt_us FROM samples ORDER BY poll"
    ).fetchall()
    for number, (row, had) in enumerate(zip(rows, looks, strict=True), 1):
        high = None if had["bbr_inflight_hi"] == UNSET or not v3 else had["bbr_inflight_hi"]
        assert row[:5] == (
            *(number, had["bbr_min_rtt_us"], high),
            *("PROBE_BW_UP" if v3 else "PROBE_BW_1.25", had["tp_snd_cwnd"]),
        )
        assert row[5] == pytest.approx(had["tp_srtt_us"] / 8, rel=2e-5)
    flow = metrics.table(store.con, [outcome.run_id], "flow").to_pylist()[0]
    grown, passed = looks[-1]["una"] - looks[0]["una"], looks[-1]["ns"] - looks[0]["ns"]
    assert flow["acked_bytes"] == grown
    # 1 us: the log's times have six digits.
    assert flow["goodput_mbps"] == pytest.approx(grown * 8e3 / passed, rel=1e-6)
    assert (flow["local"], flow["remote"]) == ("10.1.0.1:41000", "10.9.0.2:5201")


def _read(text: str) -> list[Any]:
    return list(samples_ss.samples(text.splitlines()))


INFO = "bbr cwnd:10 bytes_acked:%d bbr:(bw:1.5Mbps,mrtt:30,pacing_gain:1,cwnd_gain:2)"


def test_every_layout_of_ss_logs_is_read() -> None:
    """One line or two, states or not, times before lines, on lines, in comments, or none."""
    ends = "10.0.0.1:41000 [fd00::2]:5201"
    one = f"ESTAB 0 0 {ends} ino:1 sk:f <-> ts {INFO % 5}"
    bare = f"0 0 {ends}\n\t {INFO % 5}"
    layouts = {
        f"1700000000.25\n{one}\n": (1_700_000_000_250_000_000, "realtime"),
        f"# 1700000000\n{bare}\n": (1_700_000_000_000_000_000, "realtime"),
        f"# monotonic_ns 77\n{one}\n": (77, "monotonic"),
        f"1700000000.25 {one}\n": (1_700_000_000_250_000_000, "realtime"),
        f"2023-11-14T23:13:20.5+01:00 {one}": (1_700_000_000_500_000_000, "realtime"),
        f"Tue Nov 14 22:13:20 UTC 2023\n{bare}\n": (1_700_000_000_000_000_000, "realtime"),
        f"{bare}\n": None,
        f"{one}\r\n": None,
    }
    for text, when in layouts.items():
        (found,) = _read(text)
        assert found.time == when, text
        assert vars(found.ends) == {
            "local_address": "10.0.0.1",
            "local_port": 41000,
            "remote_address": "fd00::2",
            "remote_port": 5201,
        }
        assert (found.values["bw"], found.values["bytes_acked"]) == (1_500_000, 5)


def test_numbers_of_any_length_are_read_or_left_out(store: Store, tmp_path: Path) -> None:
    words = "rtt rto mss cwnd bytes_acked bytes_sent unacked minrtt".split()
    for digits in ("9" * 400, "-1", "1e999", "nan", ""):
        given = " ".join([*(f"{word}:{digits}" for word in words), f"pacing_rate {digits}bps"])
        bbr = f"bbr:(bw:{digits}bps,mrtt:{digits},pacing_gain:{digits},cwnd_gain:{digits})"
        path = tmp_path / f"x{digits[:3]}"
        path.write_text(f"1700000000\nESTAB 0 0 10.0.0.1:1 10.0.0.2:2\n\t bbr {given} {bbr}\n" * 2)
        assert ingest(store, path).samples == 2
    store.con.execute("SELECT * FROM metrics_by_flow").fetchall()


def test_without_times_looks_are_counted_and_what_is_missing_is_said(
    store: Store, tmp_path: Path
) -> None:
    flows = ("10.0.0.1:1 10.0.0.2:2", "10.0.0.1:3 10.0.0.2:2")
    text = "".join(f"ESTAB 0 0 {ends}\n\t {INFO % k}\n" for k in range(4) for ends in flows)
    path = tmp_path / "x"
    path.write_text(text)
    outcome = ingest(store, path)
    assert (outcome.flows, outcome.samples) == (2, 8)
    assert outcome.notes == {"samples_untimed": 1, "samples_v1_form": 1}
    assert store.con.execute("SELECT max(poll), count(ns) FROM samples").fetchall() == [(4, 0)]
    assert metrics.table(store.con, [outcome.run_id], "flow").num_rows == 0


def test_a_port_used_again_is_another_flow(store: Store, tmp_path: Path) -> None:
    blocks = [("a", 10), ("a", 20), ("b", 30), (None, 40), (None, 5)]
    path = tmp_path / "x"
    path.write_text(
        "".join(
            f"{1_700_000_000 + at}\nESTAB 0 0 10.0.0.1:1 10.0.0.2:2{f' sk:{sk}' if sk else ''}\n"
            f"\t {INFO % done}\n"
            for at, (sk, done) in enumerate(blocks)
        )
    )
    ingest(store, path)
    assert store.con.execute("SELECT flow FROM samples ORDER BY poll").fetchall() == [
        (1,),
        (1,),
        (2,),
        (2,),
        (3,),
    ]
    assert store.con.execute("SELECT generation FROM flows ORDER BY flow").fetchall() == [
        (0,),
        (1,),
        (2,),
    ]


def test_a_clock_that_jumps_back_is_named(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(
        "".join(
            f"{1_700_000_000 + at}\nESTAB 0 0 10.0.0.1:1 10.0.0.2:2\n\t {INFO % 9}\n"
            for at in (5, 6, 2, 3)
        )
    )
    assert ingest(store, path).notes["samples_backwards"] == 1


def test_a_clock_that_jumps_ahead_is_named_and_looks_at_a_slower_pace_are_not(
    store: Store, tmp_path: Path
) -> None:
    jump = [*range(5), *range(3605, 3610)]
    for name, looks in (("jump", jump), ("slow", range(0, 600, 60))):
        path = tmp_path / name
        path.write_text(
            "".join(
                f"{1_700_000_000 + at}\nESTAB 0 0 10.0.0.1:1 10.0.0.2:2\n\t {INFO % 9}\n"
                for at in looks
            )
        )
        assert ("samples_gap" in ingest(store, path).notes) == (name == "jump")
    (said,) = store.con.execute(
        "SELECT detail FROM capture_quality WHERE kind = 'samples_gap'"
    ).fetchall()[0]
    assert said.startswith("3601.000 s are between two samples of a flow, 1.000 s between most")


def test_two_flows_to_one_server_are_told_apart_in_a_kernel_log(
    mains: list[dict[str, Any]], store: Store, tmp_path: Path
) -> None:
    lines = []
    for row in mains[500:900]:
        ahead = row | {"tp_delivered": row["tp_delivered"] + 10**6}
        lines += [f"[ 1.5] {_kernel_line(row)}\n", f"[ 1.5] {_kernel_line(ahead)}\n"]
    path = tmp_path / "x"
    path.write_text("".join(lines))
    assert ingest(store, path).flows == 2
    counts = store.con.execute("SELECT count(*) FROM samples GROUP BY flow").fetchall()
    # The other's first line could still be the first one's.
    assert sorted(counts) == [(399,), (401,)]


@pytest.mark.parametrize(
    ("before", "when"),
    [
        ("[  12.000001] ", (12_000_001_000, "monotonic")),
        ("<7>[12.5] ", (12_500_000_000, "monotonic")),
        ("Nov 21 11:04:55 host kernel: [   12.5] ", (12_500_000_000, "monotonic")),
        ("[   12.500000] host kernel: ", (12_500_000_000, "monotonic")),
        ("2023-11-14T22:13:20.5+00:00 host kernel: ", (1_700_000_000_500_000_000, "realtime")),
        ("[Tue Nov 14 22:13:20 2023] ", (1_700_000_000_000_000_000, "realtime")),
        ("", None),
    ],
)
def test_every_kind_of_kernel_log_has_its_time_found(
    mains: list[dict[str, Any]], before: str, when: tuple[int, str] | None
) -> None:
    (found,) = samples_kernel_log.samples([before + _kernel_line(mains[700])])
    assert found.time == when


def test_content_tells_what_a_file_is(mains: list[dict[str, Any]], tmp_path: Path) -> None:
    contents = {
        "ss": f"noise\nESTAB 0 0 10.0.0.1:1 10.0.0.2:2\n\t {INFO % 9}\n".encode(),
        "kernel_log": f"[ 1.0] usb 1\n[ 2.0] {_kernel_line(mains[700])}\n".encode(),
        "pcap": bytes.fromhex("d4c3b2a1") + bytes(20),
        "bundle": b"hello\n",
    }
    for kind, content in contents.items():
        for packed in (content, gzip.compress(content), zstandard.compress(content)):
            path = tmp_path / "any.bin"
            path.write_bytes(packed)
            assert recognise(path) == kind
    assert recognise(tmp_path) == recognise(tmp_path / "none") == "bundle"


@pytest.mark.parametrize(
    "text",
    [
        "ESTAB 0 0 1.2.3.4:99999999 2.3.4.5:1\n\t bbr cwnd:1",
        "ESTAB 0 0 999.2.3.4:1 2.3.4.5:1\n\t bbr cwnd:1",
        "\t bbr cwnd:1",
        "99999999999999999999 ESTAB 0 0 *:* *:*\n bbr cwnd:7",
        "2023-99-99T99:99:99 ESTAB 0 0 :::1 :::2 bbr cwnd:" + "9" * 40,
        "ESTAB 0 0 10.0.0.1:1 10.0.0.2:2 cubic cwnd:10 bbr_like",
    ],
)
def test_nonsense_yields_nothing_and_breaks_nothing(text: str) -> None:
    assert [s for s in _read(text) if s.values.get("snd_cwnd", 0) > 2**63] == []
    assert len(_read(text)) <= 1


def test_values_beyond_reason_do_not_break_the_store(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(
        "1700000000\nESTAB 0 0 10.0.0.1:1 10.0.0.2:2\n\t bbr cwnd:99999999999999999999 rtt:nan/inf"
        " bbr:(bw:9e+99Gbps,mrtt:1e300,pacing_gain:nan,cwnd_gain:-1,version:77777)"
        " pacing_rate 99999999999999999999Tbps busy:\n"
    )
    assert ingest(store, path).samples == 1


def test_a_log_without_bbr_is_refused_and_says_how_to_make_one(
    store: Store, tmp_path: Path
) -> None:
    path = tmp_path / "x"
    path.write_text("ESTAB 0 0 10.0.0.1:1 10.0.0.2:2\n\t cubic cwnd:10\n")
    with pytest.raises(BundleError, match="no sample of a BBR flow") as refused:
        ingest(store, path, kind="ss")
    assert "ss -tin" in str(refused.value.way_out)
    with pytest.raises(BundleError, match="debug lines"):
        ingest(store, path, kind="kernel_log")
    with pytest.raises(BbrscopeError, match="there is no file"):
        ingest(store, tmp_path / "none", kind="ss")
    assert store.runs() == []
    assert store.con.execute("SELECT count(*) FROM samples").fetchall() == [(0,)]


def test_times_are_exact_to_the_nanosecond() -> None:
    found = samples_time.at_start("1700000000.123456789")
    assert found is not None
    assert found[0] == 1_700_000_000_123_456_789
