"""Numbers of findings about flows beside others, by raw rows."""

from __future__ import annotations

from itertools import pairwise

import polars as pl

from tests.truth.facts import UNSET, Flow, Numbers
from tests.truth.limits import held_by
from tests.truth.readers_bounds import SHORT_TERM, priced
from tests.truth.seconds import SECOND, Second, everyone, missing_by_second, number, of_flow

HI = ("inflight_hi", "inflight_hi_headroom")


def together(flow: Flow) -> tuple[int, int, int]:
    """How many senders there were, and from which whole second to which all were there."""
    begins, ends = [], []
    for one in flow.of.flows:
        begins.append(int(one.rows["ns"][0]))
        ends.append(one.at(one.rows["ns"][-1]))
    first = [flow.at(ns) for ns in begins]
    for connection in flow.of.unrecorded:
        first.append(flow.at(connection.sent["ns"][0]))
        ends.append(flow.at(connection.sent["ns"][-1]))
    return len(first), -int(-max(first) + 1e-3 - 1), int(min(ends) + 1e-3) - 1


def not_converged(flow: Flow) -> Numbers:
    whole = everyone(flow)
    mine = of_flow(flow)
    senders, a, b = together(flow)
    seconds = [n for n in range(a, b + 1) if n in mine and mine[n].covered > 0.99]

    def share(some: list[int]) -> float:
        return sum(mine[n].bytes for n in some) / sum(whole[n] for n in some)

    parts = len(seconds)
    quarters = [[n for k, n in enumerate(seconds) if k * 4 // parts == q] for q in range(4)]
    return {
        "half_share": share(seconds[: (parts + 1) // 2]),
        "whole_share": share(seconds),
        "senders_count": senders,
        "shared_s": parts,
        "t0_at": seconds[0],
        "t1_at": seconds[-1] + 1,
        "begins_at": max(seconds[0], flow.begins),
        "ends_at": seconds[-1] + 1,
        "quarters": [100 * share(some) for some in quarters],
    }


Cut = tuple[int, int, int]


def with_others(flow: Flow) -> set[int]:
    """The seconds in which another sender was there, by what was recorded."""
    return {n for n, it in of_flow(flow).items() if it.senders > 1}


def cuts_in_a_row(flow: Flow, shared: set[int]) -> list[Cut]:
    """The longest row of cuts of inflight_hi that each left less than the one before, of those in
    the seconds with others: when [ns], from and to how many packets."""
    rows = flow.after_init.select("ns", "bbr.inflight_hi", "bbr.prev_probe_too_high").rows()
    chains: list[list[Cut]] = []
    for (ns, old, _), (_, new, too_high) in pairwise(rows):
        if new < old and too_high and (ns - flow.zero) // SECOND in shared:
            if chains and new < chains[-1][-1][2]:
                chains[-1].append((ns, old, new))
            else:
                chains.append([(ns, old, new)])
    return max(chains, key=len, default=[])


def first_bound(chain: list[Cut]) -> int:
    """Where a row of cuts began [packets]; the first may have set the bound."""
    return chain[0][1] if chain[0][1] != UNSET else chain[0][2]


def while_cut(flow: Flow, chain: list[Cut]) -> dict[int, Second]:
    """The whole seconds from the first of the cuts to the last."""
    a, b = ((ns - flow.zero) // SECOND for ns in (chain[0][0], chain[-1][0]))
    return {n: it for n, it in of_flow(flow).items() if a <= n <= b and it.covered > 0.99}


def thirds(flow: Flow, chain: list[Cut]) -> tuple[list[Second], list[Second]]:
    """The whole seconds in the first third of the time from cut to cut, and those in the last."""
    a, b = ((ns - flow.zero) // SECOND for ns in (chain[0][0], chain[-1][0]))
    mine, third = while_cut(flow, chain), (b - a) / 3
    before = [it for n, it in mine.items() if n <= a + third]
    return before, [it for n, it in mine.items() if n >= b - third]


def fall_of_part(flow: Flow, chain: list[Cut]) -> float:
    """By how much less of its part it carried in the last third of cuts in a row than in the first:
    what others take that join is no loss of its own."""
    before, after = ([it.bytes / it.full for it in part] for part in thirds(flow, chain))
    return sum(before) / len(before) - sum(after) / len(after)


def inflight_hi_ratchet(flow: Flow) -> Numbers:
    chain = cuts_in_a_row(flow, with_others(flow))
    raised = sum(b[1] - a[2] for a, b in pairwise(chain))
    mine, first = while_cut(flow, chain), (chain[0][0] - flow.zero) // SECOND
    before, after = ([it.bytes for it in part] for part in thirds(flow, chain))
    short = sum(size for n, size in missing_by_second(flow, *HI).items() if n >= first)
    fell = fall_of_part(flow, chain) * sum(it.full for it in mine.values()) / 2
    return {
        "cuts_count": len(chain),
        "cuts_at": [flow.at(ns) for ns, _, _ in chain],
        "from_packets": first_bound(chain),
        "to_packets": chain[-1][2],
        "raised_packets": raised,
        "before_bps": 8 * sum(before) / len(before),
        "after_bps": 8 * sum(after) / len(after),
        "begins_at": flow.at(chain[0][0]),
        "ends_at": flow.at(chain[-1][0]),
        "others": [max(it.senders for it in mine.values()) - 1],
        **priced(flow, max(short, fell)),
    }


def startup_hi_starves(flow: Flow) -> Numbers:
    rows = flow.after_init.select("ns", "bbr.inflight_hi").rows()
    (ns, first) = next((a[0], b[1]) for a, b in pairwise(rows) if a[1] == UNSET != b[1])
    whole, mine = everyone(flow), of_flow(flow)
    shared = [
        n for n, it in mine.items() if it.senders > 1 and it.covered > 0.99 and n > flow.at(ns)
    ]
    got = sum(mine[n].bytes for n in shared)
    part = sum(mine[n].full / mine[n].covered for n in shared) / len(shared)
    link = sum(mine[n].full / mine[n].covered * mine[n].senders for n in shared)
    held = held_by(flow).with_columns(second=number(flow.of)).filter(pl.col("second").is_in(shared))
    bound = int(held.filter(pl.col("by").is_in(HI))["d"].sum())
    until = flow.spans.filter(
        (number(flow.of) <= shared[-1]) & (pl.col("bbr.inflight_hi") != UNSET)
    )
    outside = missing_by_second(flow, "application", "receive_window", "max_pacing_rate")
    _, a, b = together(flow)
    halves = [[n for n in range(a, b + 1) if (n > (a + b) / 2) == late] for late in (False, True)]
    parts = [
        100 * sum(mine[n].bytes for n in half) / sum(whole[n] for n in half) for half in halves
    ]
    return {
        "first_packets": first,
        "share_share": got / link,
        "part_share": got / sum(mine[n].full for n in shared),
        "t0_at": flow.at(ns),
        "begins_at": flow.at(ns),
        "ends_at": min(shared[-1] + 1, flow.ends),
        "bdp_packets": part * flow.path_then(ns) / 1e6 / max(flow.segment_sizes),
        "most_packets": until["bbr.inflight_hi"].max(),
        "bound_s": bound / SECOND,
        "bound_share": bound / int(held["d"].sum()),
        "others": [sum(one is not flow and one.begins < flow.at(ns) for one in flow.of.flows)],
        "halves": parts,
        "trend": parts,
        **priced(flow, sum(mine[n].short - outside.get(n, 0.0) for n in shared)),
    }


def startup_too_early(flow: Flow) -> Numbers:
    rows = flow.after_init.select("ns", "bbr.full_bw_reached").rows()
    place = next(n for n, (a, b) in enumerate(pairwise(rows)) if b[1] and not a[1])
    ns, believed = rows[place][0], float(flow.believed[place + 1])
    at, mine = flow.at(ns), of_flow(flow)
    part = float(flow.carries[place]) / mine[int(at)].senders
    caught = [n for n, it in mine.items() if n > at and it.bytes >= 0.8 * it.full]
    ends = min(caught) + 1 if caught else flow.ends
    limits = (*SHORT_TERM, "application", "receive_window", "max_pacing_rate")
    of_others = missing_by_second(flow, *limits)
    own = sum(it.short - of_others[n] for n, it in mine.items() if at < n < ends)
    return {
        "exit_bps": 8 * believed,
        "exit_share": believed / part,
        "t0_at": at,
        "caught": [*([min(caught) + 1] if caught else []), 80],
        "begins_at": at,
        "ends_at": ends,
        "others": [mine[int(at)].senders - 1],
        **priced(flow, own),
    }


READERS = {
    "not_converged": not_converged,
    "inflight_hi_ratchet": inflight_hi_ratchet,
    "startup_hi_starves": startup_hi_starves,
    "startup_too_early": startup_too_early,
}
