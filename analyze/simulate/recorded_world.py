"""The world that a recording came from: its path, its flows, and what they reached.

The path comes from what the recorder wrote down of it (the manifest's set-up, or the lab's), and
where nobody did, from the recording alone: fitted_path.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...collect.store.query import first_row
from ...probes.base.errors import BbrscopeError, ScenarioError
from ..bbr.records import TCP_ECN_LOW
from ..bbr.variants.own_variant import digest_of
from ..replay import run_params
from ..replay.open_loop import busy_flows
from ..replay.run_info import RunInfo
from .described_path import BY_THE_LAB, described_path
from .fitted_path import FittedPath, fitted_path
from .lab_world import flows_of_the_lab
from .path_ends import PathEnd, later
from .random_loss import is_in_whole_skbs, is_lost_in_skbs
from .recorded_acks import recorded_acks
from .recorded_busy import with_busy_hosts
from .recorded_changes import changes_of, with_reordering
from .recorded_marks import echoes_until_cwr
from .recorded_memory import with_memory
from .recorded_openings import openings_of
from .world.world_records import HEADERS, MSS
from .world.world_setup import (
    HOST_US,
    LOSS_BASED,
    FlowSetup,
    PathSetup,
    Setup,
    asks_for_marks,
    check_path,
)

if TYPE_CHECKING:
    import duckdb

FROM_RECORDING = "the recording"
_INITIAL_WINDOW, _NEVER_PACED = 10, 1 << 63  # TCP_INIT_CWND; SO_MAX_PACING_RATE's ~0UL is none
_ALWAYS_BUSY = "its ACKs come as if hosts were always busy, as with jitter, which no fit has"
METRICS = ("goodput_mbps", "lost_packets", "rtt_p50_ms", "rtt_p95_ms")


@dataclass(frozen=True)
class RecordedWorld:
    """A recording's world.

    Attributes:
        rules: v1, v2 or v3, or the variant that a simulation ran.
        setup: path and flows, under these rules.
        recorded: METRICS of all data flows together.
        fitted: what the path was taken for, and from where.
        begins_within: a flow had delivered a window and more before the recording began.
        fit: what was fitted from the recording alone; None: the path was written down.
        scenario: the manifest's set-up without BBR's versions; empty: there is none.
    """

    run: str
    rules: str
    setup: Setup
    recorded: dict[str, float]
    fitted: dict[str, Any]
    begins_within: bool = False
    fit: FittedPath | None = None
    scenario: str = ""

    @property
    def is_described(self) -> bool:
        """Whether the path was written down, and not fitted from the recording alone."""
        return bool(self.fitted["source"] != FROM_RECORDING)

    @property
    def uncovered(self) -> tuple[str, ...]:
        """What the recording shows that its fit does not have, see FittedPath."""
        return self.fit.uncovered if self.fit else ()

    @property
    def ends(self) -> tuple[PathEnd, ...]:
        """Paths that the recording does not tell from the set-up's, see path_ends.py."""
        return self.fit.ends if self.fit else ()


def recorded_world(
    con: duckdb.DuckDBPyConnection, info: RunInfo, *, alone: bool = False
) -> RecordedWorld:
    """The world of a run; `alone`: fitted from the recording, whatever is written down of it.

    Raises:
        BbrscopeError: the path cannot be fitted, or the recording has no inputs.
    """
    try:
        return _recorded_world(con, info, alone)
    except (ValueError, KeyError, TypeError, OverflowError, ScenarioError) as error:
        raise BbrscopeError(
            f"{info.run}: the path cannot be fitted: the manifest's set-up, or what the recording"
            f" shows of it, is not understood ({error!s:.100})",
            "mend rate, delay, limit, loss, starts and changes in its manifest",
        ) from None


def _recorded_world(con: duckdb.DuckDBPyConnection, info: RunInfo, alone: bool) -> RecordedWorld:
    written = _words(con, info.run_id)
    words = {} if alone else written
    own = _own_variant(info)
    flows, origin = _flows(con, info, words, own)
    mss, headers = _segment(con, info)
    described = None if alone else described_path(con, info, words)
    path, source, fit = _path(con, info, described, words, origin, (mss, headers))
    if fit and fit.limited_bps:
        rate = fit.limited_bps
        flows = [replace(flow, kind="rate-limited", rate_bps=rate) for flow in flows]
    if fit and fit.others_us is not None:
        end_us = max(flow.stop_us for flow in flows)
        flows.append(FlowSetup("cubic", fit.others_us, end_us, unseen=True))
    # A flow's first event comes when its SYN is answered; the world begins when it connects.
    flows = [replace(flow, stop_us=flow.stop_us + path.opening_us) for flow in flows]
    duration_us = max(flow.stop_us for flow in flows)
    setup = Setup(path, tuple(flows), duration_us)
    fitted = {
        "source": source,
        "rate_mbps": path.rate_bps / 1e6,
        "base_rtt_ms": path.rtt_us / 1000,
        "buffer_packets": path.limit_packets or path.limit_bytes // (mss + headers),
        "bucket_packets": path.burst_bytes // (mss + headers),
        "policer_packets": path.burst_bytes // (mss + headers) if path.policer else 0,
        "loss_share": path.loss,
        "reordered_share": path.reorder,
        "aggregation_ms": path.aggregation_us / 1000,
        "host_mbps": path.host_bps / 1e6,
        "application_mbps": flows[0].rate_bps / 1e6,
        "others_from_s": [flow.start_us / 1e6 for flow in flows if flow.unseen],
        "changes": [list(each) for each in path.changes],
    }
    recorded = _recorded(con, info, setup, words)
    within = _begins_within(con, info)
    known = own or info.version, setup, recorded, fitted, within, fit, _scenario(written)
    return RecordedWorld(info.run, *known)


def _scenario(words: Mapping[str, str]) -> str:
    """The set-up without BBR's versions, and without when its changes were really made."""
    kept = {name: text for name, text in words.items() if not name.startswith("change ")}
    controls = kept.get("ccs", "").split()
    kept["ccs"] = " ".join(name if name in LOSS_BASED else "bbr" for name in controls)
    return ", ".join(f"{name} {text}" for name, text in sorted(kept.items())) if words else ""


def _begins_within(con: duckdb.DuckDBPyConnection, info: RunInfo) -> bool:
    """Whether the recording lacks the beginning of a flow with data."""
    rows = _of_busy(
        con,
        info,
        "SELECT arg_min(tp_delivered, seq)::BIGINT FROM events WHERE {busy} GROUP BY flow",
    )
    return any(before is not None and before > _INITIAL_WINDOW for (before,) in rows)


def _of_busy(con: duckdb.DuckDBPyConnection, info: RunInfo, query: str) -> list[tuple[Any, ...]]:
    """Rows of a query; its {busy} stands for the condition that rows are of flows with data."""
    flows = ", ".join(map(str, busy_flows(con, info)))
    busy = f"run_id = {info.run_id} AND flow IN ({flows})"
    return con.execute(query.format(busy=busy)).fetchall()


def _words(con: duckdb.DuckDBPyConnection, run_id: int) -> dict[str, str]:
    """The manifest's set-up, and what changed."""
    rows = con.execute(
        "SELECT scope, name, value FROM host_facts WHERE run_id = ? AND scope IN"
        " ('setup', 'changes') AND value IS NOT NULL",
        [run_id],
    ).fetchall()
    return {name if scope == "setup" else f"change {name}": value for scope, name, value in rows}


def _segment(con: duckdb.DuckDBPyConnection, info: RunInfo) -> tuple[int, int]:
    """Payload and headers of the segments that most packets of data came in, in bytes."""
    rows = _of_busy(
        con,
        info,
        "SELECT tp_mss_cache, frame_bytes(tp_mss_cache::BIGINT, remote_address) AS frame"
        " FROM events JOIN flows USING (run_id, flow) WHERE {busy} AND kind = 'main'"
        " AND tp_mss_cache > 0 GROUP BY ALL"
        " ORDER BY sum(rs_acked_sacked) DESC, frame LIMIT 1",
    )
    return (int(rows[0][0]), int(rows[0][1] - rows[0][0])) if rows else (MSS, HEADERS)


def _path(
    con: duckdb.DuckDBPyConnection,
    info: RunInfo,
    described: tuple[PathSetup, str] | None,
    words: Mapping[str, str],
    first_ns: int,
    segment: tuple[int, int],
) -> tuple[PathSetup, str, FittedPath | None]:
    """The path with its changes since a round trip before `first_ns`, where from, and the fit."""
    (mss, headers), busy = segment, busy_flows(con, info)
    fit = None
    if described:
        path, source = described
        path = replace(path, mss=mss, headers=headers)
        check_path(path)
        acks = recorded_acks(con, info.run_id, busy, first_ns)
        path = replace(path, whole_skbs=is_in_whole_skbs(acks))
        if path.loss:
            path = replace(path, in_skbs=is_lost_in_skbs(acks, path.rtt_us + HOST_US))
        if words.get("reorder") and source != BY_THE_LAB:
            path = with_reordering(con, info, path, words["reorder"], busy[0])
        origin = first_ns - path.rtt_us * 1000
        changes = changes_of(con, info, words, origin, busy[0])
    else:
        fit, source = fitted_path(con, info, busy, first_ns, mss, headers), FROM_RECORDING
        path = replace(fit.path, mss=mss, headers=headers)
        origin = first_ns - path.opening_us * 1000
        changes = later(path.changes, path.opening_us)
        ends = (replace(e, changes=later(e.changes, path.opening_us)) for e in fit.ends)
        fit = replace(fit, ends=tuple(ends))
    path = with_memory(con, info.run_id, busy, replace(path, changes=changes))
    check_path(path)
    # ACKs that come together, or at the path's random, do not tell how busy hosts are.
    told_by = () if path.aggregation_us or path.jitter_us else busy
    path = with_busy_hosts(con, info.run_id, path, origin, told_by)
    if fit and not fit.uncovered and path.busy_us >= path.busy_every_us:
        fit = replace(fit, uncovered=(_ALWAYS_BUSY,))
    return path, source, fit


def _own_variant(info: RunInfo) -> str:
    """The variant that a simulation ran, or empty. Raises BbrscopeError: its file is not there."""
    if not info.own_file:
        return info.rules if info.rules != info.version else ""
    name, digest = info.own_file
    file = Path(name)
    if file.is_file() and digest_of(file) == digest:
        return name
    lack = "is not the one that ran" if file.is_file() else "is not in this folder"
    raise BbrscopeError(
        f"{info.run} was simulated by the rules of {name}, which {lack}: it cannot be simulated"
        " again under its own rules",
        f"go to the folder that has this {name}, or simulate with yours anew: bbrscope simulate",
    )


def _flows(
    con: duckdb.DuckDBPyConnection, info: RunInfo, words: Mapping[str, str], variant: str
) -> tuple[list[FlowSetup], int]:
    """The run's flows of data and competitors of the set-up; when the first began [ns]."""
    values = run_params.of_run(con, info.run_id, info.flavour)
    limited = _limit_bps(words)
    flows = []
    rows = con.execute(
        "SELECT flow, min(ns), max(ns), bool_or(tp_ecn_flags & ? > 0), max(sk_max_pacing_rate)"
        " FILTER (sk_max_pacing_rate < ?)::UBIGINT FROM events WHERE run_id = ? GROUP BY flow",
        [TCP_ECN_LOW, _NEVER_PACED, info.run_id],
    ).fetchall()
    spans = {flow: (first, last) for flow, first, last, _, _ in rows}
    low = {flow for flow, _, _, heeds, _ in rows if heeds}
    paced = {flow: int(most) for flow, _, _, _, most in rows if most}
    openings = openings_of(con, info.run_id)
    busy = busy_flows(con, info)
    if not busy:
        raise BbrscopeError(f"{info.run} has no flow of data", "record a run with traffic")
    if not spans.keys() >= set(busy):
        raise BbrscopeError(
            f"{info.run}: nothing was recorded of what BBR did in a flow with data",
            f"see what it lacks: bbrscope explain {info.run}",
        )
    origin = min(spans[flow][0] for flow in busy)
    for flow in busy:
        first, last = spans[flow]
        parameters = run_params.of_flow(con, info.run_id, flow, values)
        flows.append(
            FlowSetup(
                cc=info.version,
                start_us=(first - origin) // 1000,
                stop_us=max((last - origin) // 1000, (first - origin) // 1000 + 1000),
                kind="rate-limited" if limited else "bulk",
                rate_bps=limited,
                most_paced=paced.get(flow, 0),
                ecn_low=info.version == "v3" and flow in low,
                parameters=parameters,
                variant=variant,
                **openings.get(flow, {}),
            )
        )
    lab = flows_of_the_lab(con, info, busy)
    flows = [
        replace(
            flow,
            extra_rtt_us=lab.extra_rtt_us.get(number, 0),
            other_receiver=asks_for_marks(flow) and echoes_until_cwr(con, info.run_id, number),
        )
        for number, flow in zip(busy, flows, strict=True)
    ]
    flows += lab.beside or _beside(con, info, words, max(flow.stop_us for flow in flows))
    return flows, origin


def _beside(
    con: duckdb.DuckDBPyConnection, info: RunInfo, words: Mapping[str, str], end_us: int
) -> Iterator[FlowSetup]:
    """The set-up's flows with a loss-based control."""
    starts = words.get("starts", "").split()
    for number, name in enumerate(words.get("ccs", "").split()):
        if name in LOSS_BASED:
            start = round(float(starts[number]) * 1e6) if number < len(starts) else 0
            report = _report(con, info.run_id, number + 1)
            seconds = report["end"]["sum_received"]["seconds"] if report else 0
            yield FlowSetup(name, start, start + round(seconds * 1e6) or end_us)


def _report(con: duckdb.DuckDBPyConnection, run_id: int, number: int) -> dict[str, Any] | None:
    """iperf3's report of the flow with this number, if it is there and whole."""
    row = first_row(
        con,
        "SELECT text FROM attachments WHERE run_id = ? AND name = ?",
        run_id,
        f"iperf{number}.json",
    )
    try:
        report: dict[str, Any] = json.loads(row[0]) if row else {}
        return report if report["end"]["sum_received"]["seconds"] > 0 else None
    except (ValueError, KeyError, TypeError):
        return None


def _limit_bps(words: Mapping[str, str]) -> int:
    """iperf3's -b, 0: none."""
    parts = words.get("extra", "").split()
    if "-b" not in parts[:-1]:
        return 0
    text = parts[parts.index("-b") + 1]
    scale = {"K": 10**3, "M": 10**6, "G": 10**9}.get(text[-1:].upper(), 1)
    return round(float(text.rstrip("KMGkmg")) * scale)


def _losses(con: duckdb.DuckDBPyConnection, info: RunInfo) -> tuple[int, int]:
    """Packets lost and delivered in the recording, which may be a part of the flows with data."""
    rows = _of_busy(
        con,
        info,
        "SELECT max(tp_lost)::BIGINT - arg_min(tp_lost, seq), max(tp_delivered)::BIGINT"
        " - arg_min(tp_delivered, seq) FROM events WHERE {busy} GROUP BY flow",
    )
    return sum(int(row[0] or 0) for row in rows), sum(int(row[1] or 0) for row in rows)


def _payload(con: duckdb.DuckDBPyConnection, info: RunInfo) -> int:
    """Bytes delivered, of the run's flows with data; the MSS may change within one."""
    rows = _of_busy(
        con,
        info,
        "SELECT sum(packets * mss) FROM (SELECT tp_mss_cache::BIGINT AS mss, tp_delivered::BIGINT"
        " - lag(tp_delivered) OVER (PARTITION BY flow ORDER BY ns, seq) AS packets"
        " FROM events WHERE {busy} AND tp_delivered IS NOT NULL)",
    )
    return int(rows[0][0] or 0)


def _recorded(
    con: duckdb.DuckDBPyConnection, info: RunInfo, setup: Setup, words: Mapping[str, str]
) -> dict[str, float]:
    """METRICS of the recording: payload at the receivers, losses and RTTs of BBR's flows."""
    lost, _ = _losses(con, info)
    payload = _payload(con, info)
    named = list(enumerate(words.get("ccs", "").split(), 1))
    by_lab = "SELECT flow_no, cc FROM lab_flows WHERE run_id = ?"
    named = named or con.execute(by_lab, [info.run_id]).fetchall()
    # Those that a fit has found on the path are none of the world's own: nothing of them counts.
    are_own = any(flow.cc in LOSS_BASED and not flow.unseen for flow in setup.flows)
    for number, name in named if are_own else ():
        report = _report(con, info.run_id, number) if name in LOSS_BASED else None
        if report:
            payload += report["end"]["sum_received"]["bytes"]
            lost += report["end"]["sum_sent"].get("retransmits", 0)
    ((median, high),) = _of_busy(
        con,
        info,
        "SELECT quantile_cont(rs_rtt_us, 0.5), quantile_cont(rs_rtt_us, 0.95) FROM events"
        " WHERE {busy} AND kind = 'main' AND rs_rtt_us > 0",
    )
    goodput = payload * 8 / setup.duration_us
    values = (goodput, float(lost), float(median or 0) / 1000, float(high or 0) / 1000)
    return dict(zip(METRICS, values, strict=True))
