"""What is true of a simulated flow, worked out of raw rows and the lab's plan alone.

Each problem of `problems.toml` that rows can decide has a function here, written from its meaning
there: the note that a truth file has of it, or None where it is not true. The others are of the
set-up, or were read by people.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise

import polars as pl

from tests.truth import readers_alone, worked_out_paths
from tests.truth.facts import PROBE_BW, Flow, Recording, heavy, lost_elsewhere
from tests.truth.judged import threshold
from tests.truth.limits import CRUISE, greeting_us, held_by
from tests.truth.readers_lab import STARTUP, probe_rtt_synchronised, spans_in_probe_rtt
from tests.truth.readers_shares import HI, cuts_in_a_row, fall_of_part, first_bound, thirds
from tests.truth.seconds import SECOND

Note = str | None
# Shares swing with PROBE_RTT, every 5 s in v2 and v3.
LEAST_SHARED_S = 5
# A shorter time together is plainly too short to ask whether shares still move.
LEAST_MOVING_S = 15
# Longer than a STARTUP and its DRAIN, which fill a queue by design.
LEAST_BLOATED_S = 2


def outage(flow: Flow) -> Note:
    found = flow.outages
    fired = [t for t in flow.timeouts if any(a <= t <= a + d + 1e-9 for a, d in found)]
    longest = max((lasted for _, lasted in found), default=0.0)
    text = f"{len(fired)} timeouts in {len(found)} silences, longest {longest:.2f} s"
    return text if found else None


def heavy_loss(flow: Flow) -> Note:
    marked, delivered = flow.without_timeouts()
    lost = marked - min(flow.came_twice, marked)
    sent = lost + delivered
    return f"{lost} of {sent}, {lost / sent:.3f}" if heavy(flow) else None


def random_loss(flow: Flow) -> Note:
    """On a path that is to lose packets, or beside a queue that dropped half as many at most.

    What senders without rows lost is not counted: where the others lost too much alone, it holds.
    """
    of = flow.of
    lost = sum(one.without_timeouts()[0] for one in of.flows)
    dropped = of.dropped()
    if dropped is None:
        return None
    lossy = of.lab["loss"] or of.changed("loss") or of.changed("outage")
    # Of a short flow, three standard deviations of a count are proof.
    least = min(30, 3 * lost**0.5)
    there = lost and lost >= dropped + least if lossy else lost_elsewhere(of)
    return f"{lost} lost, {dropped} dropped" if there else None


def policer_mode(flow: Flow) -> Note:
    return f"{flow.frozen:.2f} s" if flow.frozen > 0 else None


def initial_window_loss(flow: Flow) -> Note:
    return f"{flow.lost_of_initial_window}" if flow.lost_of_initial_window else None


def reordering(flow: Flow) -> Note:
    return f"{flow.reordered} Disorder ended in Open" if flow.reordered >= 10 else None


def bufferbloat(flow: Flow) -> Note:
    seconds = flow.bloated_seconds
    # While nothing came back, nothing waited.
    there = {second: flow.covered(second) - flow.paused.get(second, 0) for second in seconds}
    lasted = sum(max(0, each) for each in there.values())
    if lasted < max(LEAST_BLOATED_S, flow.seconds / 5):
        return None
    high = flow.by_second.filter(pl.col("second").is_in(seconds))
    waits = sorted(flow.waited_in[second] for second in seconds if second in flow.waited_in)
    queue = f", queue then {waits[len(waits) // 2] / 1e3:.1f} ms" if waits else ""
    middle = float(high["us"].median()) / 1e3  # type: ignore[arg-type]
    base = flow.base_us / 1e3
    return f"{lasted:.1f} of {flow.seconds:.1f} s, rtt p50 {middle:.0f} base {base:.0f}{queue}"


def wrong_min_rtt(flow: Flow) -> Note:
    rows = flow.inflated
    lasted = int(rows["d"].sum()) / SECOND
    most = max(rows["bbr.min_rtt_us"], default=0) / 1e3
    return f"{lasted:.1f} s, min_rtt max {most:.0f}" if lasted >= 1 else None


def long_startup(flow: Flow) -> Note:
    """STARTUP for 40 rounds and 2 s, without silences."""
    rows = flow.spans.filter((pl.col("bbr.mode") == STARTUP) & (pl.col("d") > 0))
    if rows.is_empty():
        return None
    begins, ends = flow.at(rows["ns"][0]), flow.at(rows["ns"][-1] + rows["d"][-1])
    quiet = sum(lasted for at, lasted in flow.silences if begins <= at and at + lasted <= ends)
    lasted = int(rows["d"].sum()) / SECOND
    begun = flow.after_init.with_columns(new=pl.col("bbr.round_start").shift(-1))
    begun = begun.filter((pl.col("kind") == "M") & (pl.col("bbr.mode") == STARTUP))
    rounds = int((begun["new"] == 1).sum())
    return f"{lasted:.1f} s, {rounds} rounds" if lasted - quiet >= 2 and rounds >= 40 else None


def early_startup_exit(flow: Flow) -> Note:
    rows = flow.after_init.select("ns", "bbr.full_bw_reached").rows()
    found = (n for n, (a, b) in enumerate(pairwise(rows)) if b[1] and not a[1])
    place = next(found, None)
    if place is None or not flow.of.rates:
        return None
    ns = rows[place][0]
    there = sum(begins <= flow.at(ns) < ends for begins, ends, _ in senders(flow.of))
    window = int(flow.after_init["tp.snd_wnd"][place:].max()) / (flow.base_us / 1e6)  # type: ignore[arg-type]
    part = min(float(flow.carries[place]) / max(there, 1), window)
    believed = float(flow.believed[place + 1])
    text = f"max_bw {8e-6 * believed:.2f} of part {8e-6 * part:.2f} at {flow.at(ns):.2f}"
    return text if believed < 0.8 * part else None


Sender = tuple[float, float, dict[int, int]]


@lru_cache(maxsize=8)
def senders(of: Recording) -> list[Sender]:
    """From when to when [s] each sender was there, and its bytes of each second: those whose events
    were recorded by what was acknowledged, then the others by iperf3's report."""
    found: list[Sender] = []
    for flow in of.flows:
        rows = flow.spans.group_by(second=(pl.col("ns") - flow.zero) // SECOND)
        sums = dict(rows.agg(pl.col("acked").sum()).iter_rows())
        found.append((flow.begins, flow.ends, sums))
    recorded = {flow.spec["flow_no"] for flow in of.flows}
    first = of.flows[0]
    for plan in of.lab["flows"]:
        if plan["flow_no"] in recorded:
            continue
        report = json.loads((of.folder / f"iperf{plan['flow_no']}.json").read_text())
        starts = first.begins + plan["start_s"] - float(first.spec["start_s"])
        parts = [each["sum"] for each in report["server_output_json"]["intervals"]]
        ends = starts + parts[-1]["start"] + parts[-1]["seconds"]
        found.append((starts, ends, _by_second(starts, parts)))
    return found


def _by_second(starts: float, parts: list[dict[str, float]]) -> dict[int, int]:
    """The bytes of a report's intervals, put into the seconds of the run's clock by time."""
    sums: dict[int, float] = {}
    for part in parts:
        begin = starts + part["start"]
        end = begin + part["seconds"]
        for second in range(int(begin), int(end) + 1):
            inside = max(0.0, min(end, second + 1) - max(begin, second))
            sums[second] = sums.get(second, 0) + part["bytes"] * inside / (end - begin)
    return {second: round(size) for second, size in sums.items()}


def shared_seconds(of: Recording) -> range:
    """The whole seconds in which all senders were there."""
    every = senders(of)
    first = max(begins for begins, _, _ in every)
    return range(-int(-(first + 1 - 1e-3)), int(min(ends for _, ends, _ in every) + 1e-3))


def share(flow: Flow, seconds: range) -> float:
    every = [sums for _, _, sums in senders(flow.of)]
    mine = every[flow.of.flows.index(flow)]
    whole = sum(sums.get(second, 0) for sums in every for second in seconds)
    return sum(mine.get(second, 0) for second in seconds) / max(whole, 1)


def halves(seconds: range) -> tuple[range, range]:
    """Of an odd number of seconds the middle one is in the first half."""
    middle = seconds.start + (len(seconds) + 1) // 2
    return range(seconds.start, middle), range(middle, seconds.stop)


def unequal(flow: Flow) -> Note:
    count, seconds = len(senders(flow.of)), shared_seconds(flow.of)
    if count < 2 or len(seconds) < LEAST_SHARED_S:
        return None
    whole, second = share(flow, seconds), share(flow, halves(seconds)[1])
    text = f"share {whole:.3f} of {count}, {whole * count:.2f} of equal, second half {second:.3f}"
    return text if min(whole, second) * count < 0.8 else None


def shares_moving(flow: Flow) -> Note:
    seconds = shared_seconds(flow.of)
    if len(senders(flow.of)) < 2 or len(seconds) < LEAST_MOVING_S:
        return None
    first, second = (share(flow, half) for half in halves(seconds))
    whole = share(flow, seconds)
    text = f"first half {first:.3f} whole {whole:.3f} second {second:.3f}"
    return text if abs(first - whole) > 0.05 else None


def starves(flow: Flow) -> Note:
    """Beside senders whose events were not recorded, in enough seconds."""
    every, seconds = senders(flow.of), shared_seconds(flow.of)
    theirs = [
        sum(sums.get(second, 0) for second in seconds) for _, _, sums in every[len(flow.of.flows) :]
    ]
    if not theirs or len(seconds) < threshold("starves_others", "least_s"):
        return None
    mine = every[flow.of.flows.index(flow)][2]
    ours, average = sum(mine.get(second, 0) for second in seconds), sum(theirs) / len(theirs)
    return f"{ours} bytes, another {average:.0f}" if ours > 4 * average else None


def longer_path_wins(flow: Flow) -> Note:
    """Beside one that nothing else holds back, in enough seconds."""
    seconds = shared_seconds(flow.of)
    if len(seconds) < threshold("rtt_unfairness", "least_s"):
        return None
    mine = share(flow, seconds)
    for other in flow.of.flows:
        held = application(other) or receive_window(other)
        its = share(other, seconds)
        if flow.base_us >= 1.5 * other.base_us and mine >= 1.25 * its and not held:
            return f"{mine:.3f} with {flow.base_us:.0f} us, {its:.3f} with {other.base_us:.0f} us"
    return None


def bounds_ratchet(flow: Flow) -> Note:
    """Three cuts or more in a row, each to less than the one before, from the first third of whose
    time to the last it carried less; then held in CRUISE.

    Others overflow a queue: alone, or where nothing was dropped, none do.
    """
    alone = len(flow.of.lab["flows"]) < 2 or not flow.of.dropped()
    if alone or flow.of.lab["loss"] or "bbr.inflight_hi" not in flow.rows.columns:
        return None
    there = [(begins, ends) for begins, ends, _ in senders(flow.of)]
    seconds = range(int(flow.begins), int(flow.ends) + 1)
    shared = {n for n in seconds if sum(a < n + 1 and n < b for a, b in there) > 1}
    chain = cuts_in_a_row(flow, shared)
    first, last = thirds(flow, chain) if len(chain) >= 3 else ([], [])
    if not first or not last:
        return None
    if statistics.fmean(it.bytes for it in last) >= statistics.fmean(it.bytes for it in first):
        return None
    modes = flow.spans.select("ns", "bbr.mode", "bbr.cycle_idx").unique("ns", keep="last")
    after = held_by(flow).filter(pl.col("ns") >= chain[0][0]).join(modes, on="ns")
    cruise = (pl.col("bbr.mode") == PROBE_BW) & (pl.col("bbr.cycle_idx") == CRUISE)
    bound = int(after.filter(cruise & pl.col("by").is_in(HI))["d"].sum())
    part = bound / max(int(after["d"].sum()), 1)
    left = flow.after_init["bbr.inflight_hi"][-1]
    cuts = f"{len(chain)} cuts in a row ({first_bound(chain)}, {chain[-1][2]}), hi at end {left}"
    told = part > 0.05 and fall_of_part(flow, chain) > 0.05
    return f"{cuts}, held for {part:.2f} of the time" if told else None


def synchronised_probe_rtt(flow: Flow) -> Note:
    """All flows that were there in PROBE_RTT at once, and what the link carried less meanwhile."""
    flows = flow.of.flows
    if len(flows) < 2 or len(flow.of.lab["flows"]) > len(flows):
        return None
    if len(spans_in_probe_rtt(flows)) < 2:
        return None
    found = probe_rtt_synchronised(flows[0])
    if found["idle_s"] <= found["limit_s"]:
        return None
    times, lasted, idle = (found[name] for name in ("times_count", "together_s", "idle_s"))
    return f"{times} times all at once, {lasted:.2f} s, which left the link idle for {idle:.2f} s"


def _more_than_a_twentieth(flow: Flow, limited_ns: int) -> Note:
    part = limited_ns / int(held_by(flow)["d"].sum())
    return f"{part:.2f} of its time" if part > 0.05 else None


def application(flow: Flow) -> Note:
    """Without the greeting, and without the wait for the last ACKs of a flow that ends."""
    rows = held_by(flow).filter(pl.col("d") > 0)
    rows = rows.with_columns(spell=(pl.col("by") != "application").cum_sum())
    spells = (
        rows.filter(by="application")
        .group_by("spell")
        .agg(pl.col("d").sum(), end=(pl.col("ns") + pl.col("d")).max())
    )
    greeting = (pl.col("spell") == 0) & (pl.col("d") <= 2000 * greeting_us(flow))
    last = pl.col("end") == int(flow.rows["ns"][-1])
    return _more_than_a_twentieth(flow, int(spells.filter(~greeting & ~last)["d"].sum()))


def receive_window(flow: Flow) -> Note:
    limited = held_by(flow).filter(by="receive_window")
    return _more_than_a_twentieth(flow, int(limited["d"].sum()))


def held_by_hi(flow: Flow) -> Note:
    found = readers_alone.inflight_hi_alone(flow)
    if found is None:
        return None
    held, cost = found["held_share"], 8 * found["cost_bytes"] / found["rate_bps"] / flow.seconds
    return f"{held:.2f} of its time, {cost:.3f} of the path missing, {found['cuts_count']} cuts"


PROBLEMS: dict[str, Callable[[Flow], Note]] = {
    "application": application,
    "held_by_hi": held_by_hi,
    "outage": outage,
    "heavy_loss": heavy_loss,
    "random_loss": random_loss,
    "policer_mode": policer_mode,
    "initial_window_loss": initial_window_loss,
    "reordering": reordering,
    "bufferbloat": bufferbloat,
    "wrong_min_rtt": wrong_min_rtt,
    "receive_window": receive_window,
    "long_startup": long_startup,
    "early_startup_exit": early_startup_exit,
    "unequal": unequal,
    "shares_moving": shares_moving,
    "bounds_ratchet": bounds_ratchet,
    "synchronised_probe_rtt": synchronised_probe_rtt,
    "starves": starves,
    "longer_path_wins": longer_path_wins,
    **worked_out_paths.PROBLEMS,
}


def of_flow(flow: Flow) -> dict[str, str]:
    """The problems that are true of a flow, with their notes."""
    found = {problem: holds(flow) for problem, holds in PROBLEMS.items()}
    return {problem: note for problem, note in found.items() if note is not None}


def decidable(means: set[str], of: Recording) -> bool:
    """Whether raw rows decide all that a rule can mean.

    What a path loses by itself cuts bounds, too, and which loss cut them is in no row; what the
    queue dropped of senders without rows is not told apart from the rest.
    """
    undecided = {"bounds_ratchet"} if of.lab["loss"] else set()
    if len(of.lab["flows"]) > len(of.flows):
        # Nor is what senders without rows took of a part that the link carries.
        undecided |= {"random_loss", "held_by_bounds"}
    return bool(means) and means <= PROBLEMS.keys() - undecided
