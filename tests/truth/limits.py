"""What limited a flow's sending between its rows, asked anew of its raw rows."""

from __future__ import annotations

from functools import lru_cache

import polars as pl

from tests.truth import raw
from tests.truth.facts import LOSS, PROBE_BW, PROBE_RTT, RECOVERY, UNSET, Flow

TX_START = 0
CRUISE = 2
# bbr_inflight_headroom of v2 and v3, in 1/256; bbr_cwnd_min_target.
HEADROOM, LEAST_CWND = 38, 4


def in_flight() -> pl.Expr:
    """tcp_packets_in_flight()."""
    left = pl.col("tp.sacked_out") + pl.col("tp.lost_out")
    return pl.col("tp.packets_out") - left + pl.col("tp.retrans_out")


@lru_cache(maxsize=8)
def held_by(flow: Flow) -> pl.DataFrame:
    """Return a row for each time between two rows of a flow: ns, d [ns] and what held it back.

    Asked where a row ends the time since the one before, in the order in which the kernel would
    stop: cwnd, the receiver's window, no data, pacing (see analyze/views/events/binding_views.py
    for what says so; this is written from its text).
    """
    rows = flow.after_init
    mss = pl.col("tp.mss_cache")
    grown = (pl.col("tp.snd_nxt").shift(-1) - pl.col("tp.snd_nxt")) % raw.WRAP
    resent = (pl.col("tp.retrans_out").shift(-1) - pl.col("tp.retrans_out")).clip(lower_bound=0)
    begins = ((pl.col("kind") == "E") & (pl.col("event") == TX_START)).fill_null(value=False)
    estimated = in_flight() + resent + (grown + mss - 1) // mss
    left = pl.col("tp.snd_una") + pl.col("tp.snd_wnd") - pl.col("tp.snd_nxt").shift(-1)
    left = (left + raw.WRAP // 2) % raw.WRAP - raw.WRAP // 2
    pacing = pl.col("sk.sk_pacing_rate").shift(-1)
    ahead = pl.col("tp.tcp_wstamp_ns") - pl.col("tp.tcp_clock_cache")
    since = pl.col("ns").shift(-1) - pl.col("ns")
    # Where nothing is in flight, the event comes with the packet that pacing lets go.
    resumes = begins.shift(-1) & (grown == 0) & (resent == 0)
    asked = rows.select(
        ns="ns",
        d=since,
        flight=pl.when(pl.col("kind").shift(-1) == "M")
        .then(pl.col("rs.prior_in_flight").shift(-1))
        .otherwise(pl.max_horizontal(begins.cast(pl.Int64), estimated)),
        cwnd=pl.coalesce("out.tp.snd_cwnd", pl.col("tp.snd_cwnd").shift(-1)),
        left=left,
        mss=mss,
        burst=bursts(flow),
        third=pl.col("tp.snd_wnd") // 3,
        quiet=(grown == 0) & (resent == 0),
        resend=(pl.col("tp.lost_out") > pl.col("tp.retrans_out")).shift(-1),
        mark=pl.col("tp.app_limited").shift(-1),
        old=pl.coalesce("out.tp.app_limited", "tp.app_limited"),
        sent=(pl.col("tp.delivered") + in_flight()).shift(-1) % raw.WRAP,
        probing=(pl.col("bbr.mode") == PROBE_RTT).shift(-1),
        limited=cwnd_limited(flow),
        paced=(ahead > 0).shift(-1) | (resumes & (2 * ahead >= since)),
        pacing=pl.when(pacing == pl.col("sk.sk_max_pacing_rate").shift(-1))
        .then(pl.lit("max_pacing_rate"))
        .when(_of_v1(flow, "bbr.lt_use_bw") == 1)
        .then(pl.lit("policer"))
        .when(_lowered(flow))
        .then(pl.lit("pacing_bw_lo"))
        .otherwise(pl.lit("pacing_max_bw")),
        **_windows(flow),
    ).drop_nulls("d")
    full, new = asked["flight"] >= asked["cwnd"], asked["mark"] != asked["old"]
    free = (asked["cwnd"] - asked["flight"]) * asked["mss"]
    short = asked.select(
        pl.min_horizontal("burst", "third", pl.col("cwnd") * pl.col("mss") // 3)
    ).to_series()
    closed = (asked["left"] < asked["mss"]) | ((asked["left"] <= free) & (asked["left"] < short))
    marked = ~asked["resend"] & (asked["mark"] != 0) & (new | (asked["mark"] == asked["sent"]))
    marked &= new | ~asked["probing"]
    empty = ~asked["paced"] & (asked["flight"] <= 0) & ~asked["resend"]
    rwnd, app = ~full & closed, ~full & ~closed & (marked | empty)
    within = asked["limited"] & (free < asked["burst"])
    app |= pauses(
        asked, held=full | closed | app | asked["paced"] | within, ends=app & marked & new
    )
    named = asked.with_columns(full=full, rwnd=rwnd, app=app, within=within, window=_window())
    by = (
        pl.when("full")
        .then("window")
        .when("rwnd")
        .then(pl.lit("receive_window"))
        .when("app")
        .then(pl.lit("application"))
        .when("paced")
        .then("pacing")
        .when("within")
        .then("window")
        .otherwise(pl.lit("unknown"))
    )
    return named.select("ns", "d", by=by)


def greeting_us(flow: Flow) -> float:
    """What a round trip took when the flow began: its first smoothed RTT, or the path's."""
    first = flow.spans.filter(pl.col("srtt") > 0)["srtt"]
    return max(flow.base_us, float(first[0]) if len(first) else 0.0)


def _of_v1(flow: Flow, name: str) -> pl.Expr:
    """A field of v1's struct bbr as the next row has it; 0 of others."""
    if "bbr.lt_use_bw" not in flow.rows.columns:
        return pl.lit(0)
    return pl.col(name).shift(-1)


def _lowered(flow: Flow) -> pl.Expr:
    """Whether bw_lo is below the maximum of bandwidth."""
    if "bbr.bw_lo" not in flow.rows.columns:
        return pl.lit(value=False)
    most = pl.max_horizontal("bbr.bw_hi[0]", "bbr.bw_hi[1]")
    return pl.col("bbr.bw_lo").shift(-1) < most.shift(-1)


def _windows(flow: Flow) -> dict[str, pl.Expr]:
    """Bounds of the window as the next row has them, where BBR applies them."""
    v1 = "bbr.lt_use_bw" in flow.rows.columns
    cut = (pl.col("icsk_ca_state") == LOSS) | (pl.lit(v1) & (pl.col("icsk_ca_state") == RECOVERY))
    known = {
        "conserves": _of_v1(flow, "bbr.packet_conservation") == 1,
        "state": cut.shift(-1),
        "saved": pl.col("bbr.prior_cwnd").shift(-1),
    }
    if v1:
        unset = pl.lit(UNSET)
        return {**known, "lo": unset, "hi": unset, "cruises": pl.lit(value=False)}
    in_cycle = pl.col("bbr.mode") == PROBE_BW
    cruises = in_cycle & (pl.col("bbr.cycle_idx") == CRUISE)
    hi = pl.col("bbr.inflight_hi")
    below = hi - pl.max_horizontal(hi * HEADROOM // 256, pl.lit(1))
    cap = pl.when(~in_cycle | (hi == UNSET)).then(UNSET).when(cruises).then(below).otherwise(hi)
    lo = pl.col("bbr.inflight_lo")
    return {**known, "lo": lo.shift(-1), "hi": cap.shift(-1), "cruises": cruises.shift(-1)}


def _window() -> pl.Expr:
    """Which bound made a window that is full."""
    lo, hi = (pl.max_horizontal(name, pl.lit(LEAST_CWND)) for name in ("lo", "hi"))
    of_hi = pl.when("cruises").then(pl.lit("inflight_hi_headroom")).otherwise(pl.lit("inflight_hi"))
    return (
        pl.when("probing")
        .then(pl.lit("probe_rtt"))
        .when("conserves")
        .then(pl.lit("recovery"))
        .when((pl.col("lo") != UNSET) & (pl.col("lo") < pl.col("hi")) & (pl.col("cwnd") == lo))
        .then(pl.lit("inflight_lo"))
        .when((pl.col("hi") != UNSET) & (pl.col("cwnd") == hi))
        .then(of_hi)
        .when(pl.col("state") & (pl.col("cwnd") < pl.col("saved")))
        .then(pl.lit("recovery"))
        .otherwise(pl.lit("cwnd_target"))
    )


def bursts(flow: Flow) -> pl.Expr:
    """Bytes of the TSO burst that the kernel would send next: tcp_tso_autosize()."""
    by_rate = (
        pl.col("sk.sk_pacing_rate").shift(-1).cast(pl.Int64, strict=False)
        // 2 ** pl.col("sk.sk_pacing_shift").shift(-1)
    ).cast(pl.Int64)
    if "bbr.lt_use_bw" not in flow.rows.columns:
        times = pl.col("bbr.min_rtt_us").shift(-1) // 512
        whole = pl.min_horizontal(pl.col("sk.sk_gso_max_size").shift(-1), 65536)
        by_rate += pl.when(times < 32).then(whole // 2 ** times.clip(upper_bound=32)).otherwise(0)
    return pl.max_horizontal((by_rate // pl.col("tp.mss_cache")).cast(pl.Int64), 2) * pl.col(
        "tp.mss_cache"
    )


def cwnd_limited(flow: Flow) -> pl.Expr:
    """What v2 and v3 say of snd_cwnd: it held a burst back that the kernel would not split.

    Rows of v1 do not say it: where this is asked, nothing else is left that could hold it.
    """
    if "tp.is_cwnd_limited" not in flow.rows.columns:
        return pl.lit(value=True)
    return (pl.col("tp.is_cwnd_limited").shift(-1) == 1).fill_null(value=False)


def pauses(asked: pl.DataFrame, held: pl.Series, ends: pl.Series) -> pl.Series:
    """Rows without any sending and nothing else that held, up to a mark that all was sent."""
    loose = asked["quiet"] & ~held & ~asked["resend"]
    found, idle = [], False
    for is_loose, is_end in zip(reversed(loose.to_list()), reversed(ends.to_list()), strict=True):
        idle = idle if is_loose else bool(is_end)
        found.append(bool(is_loose) and idle)
    return pl.Series(reversed(found), dtype=pl.Boolean)
