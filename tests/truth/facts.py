"""What recordings show, worked out of their raw rows by polars: see `raw`, on which it rests.

Times are seconds of the run's clock: since the first event of the first flow with data.
"""

from __future__ import annotations

import json
import re
import statistics
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from tests.truth import raw, wire

CWR, RECOVERY, LOSS = 2, 3, 4
PROBE_BW, PROBE_RTT = 2, 3
TLP_RECOVERY = 6
UNSET = raw.WRAP - 1
# Ethernet, IPv4, TCP and timestamps, around a segment's payload.
HEADERS = 66
Numbers = dict[str, Any]
# Queue disciplines that keep each flow's packets in a queue of its own.
FAIR = ("fq", "fq_codel", "fq_pie", "cake", "sfq", "drr")
# Queue disciplines that a filter's policer counts its drops in: they hold no packets.
POLICERS = ("clsact", "ingress")
# A silence is longer than the least retransmission timeout, and than four usual round trips.
LEAST_SILENCE_S = 0.2


@dataclass(eq=False)
class Recording:
    """A bundle's set-up and flows."""

    folder: Path

    @cached_property
    def setup(self) -> dict[str, Any]:
        return raw.manifest(self.folder).get("setup") or {}

    @cached_property
    def flows(self) -> list[Flow]:
        rows = raw.events(self.folder)
        zero = min(int(each["ns"][0]) for each in rows.values())
        return [Flow(self, each, zero) for each in rows.values()]

    @cached_property
    def lab(self) -> dict[str, Any]:
        """What the lab says of its run; nothing of other recordings."""
        return raw.manifest(self.folder).get("lab") or {}

    @property
    def base_us(self) -> float | None:
        """The path's round trip, as the set-up says it."""
        if self.lab:
            return float(self.lab["rtt_us"])
        overtaken = float(self.setup.get("reorder", "0").split(":")[0])
        delay = self.setup.get("delay")
        return (float(delay) + overtaken) * 1e3 if delay is not None else None

    @cached_property
    def link(self) -> float | None:
        """The link's first rate [bit/s]."""
        if self.lab:
            return float(self.lab["rate_bps"])
        found = re.fullmatch(r"(\d+)mbit", self.setup.get("rate", ""))
        return int(found[1]) * 1e6 if found else None

    @cached_property
    def own_link(self) -> float | None:
        """The rate of a lab's senders' own links [bit/s], where it has one."""
        found = re.fullmatch(r"([0-9.]+)mbit", self.lab.get("params", {}).get("host", ""))
        return float(found[1]) * 1e6 if found else None

    def changed(self, what: str) -> list[tuple[int, float]]:
        """When [ns of the events' clock] something of a lab's path became what."""
        if "changes" not in self.lab:
            return []
        start = raw.manifest(self.folder).get("traffic_start_uptime_s", 0) * 1e9 - self.ahead_ns
        return [
            (int(start + each["at_s"] * 1e9), float(each["value"]))
            for each in self.lab["changes"]
            if each["what"] == what
        ]

    @cached_property
    def ahead_ns(self) -> int:
        """By how much uptime is ahead of the events' clock."""
        clock = raw.manifest(self.folder)["clocks"]["start"]
        return int(clock["boottime_ns"] - clock["monotonic_ns"])

    @cached_property
    def rates(self) -> list[tuple[int, float]]:
        """The link's rate [bit/s], and since when [ns]; nothing beside a policer, which holds
        another."""
        if self.policed:
            return []
        found = [(0, self.link)] if self.link else []
        found += self.changed("rate")
        for change in () if self.lab else raw.manifest(self.folder).get("changes", []):
            at = round(change["uptime_s"] * 1e9) - self.ahead_ns
            found.append((at, float(change["rate"].removesuffix("mbit")) * 1e6))
        return found

    @cached_property
    def drains(self) -> list[tuple[int, float]]:
        """When the queue was sampled [ns], and how long all that it held took to be sent [us].

        A qdisc that holds another counts what is in that one, too: of those sampled at one time the
        outer one, with the most, tells.
        """
        found = dict[int, float]()
        for uptime_s, row in raw.queue(self.folder) if self.rates else ():
            at = round(uptime_s * 1e9) - self.ahead_ns
            rate = [rate for begin, rate in self.rates if begin <= at][-1]
            found[at] = max(found.get(at, 0.0), int(row["backlog_bytes"]) * 8e6 / rate)
        return list(found.items())

    @cached_property
    def waits(self) -> list[tuple[int, float]]:
        """When the queue was sampled [ns], and how long a packet that came then waited [us].

        A queue that keeps flows apart does not tell where others may have packets in theirs, in the
        second of the sample or beside it.
        """
        if not any(row.get("kind") in FAIR for _, row in raw.queue(self.folder)):
            return self.drains
        there = [(one.begins // 1, one.ends // 1) for one in self.flows]

        def others(at: int) -> bool:
            second = (at - self.flows[0].zero) // 1_000_000_000
            return sum(a <= second + 1 and second - 1 <= b for a, b in there) > 1

        return [(at, us) for at, us in self.drains if not others(at)]

    @property
    def waits_of_run(self) -> list[tuple[int, float]]:
        """Those from the first event of a flow to the last."""
        ends = self.flows[0].zero, max(int(flow.rows["ns"][-1]) for flow in self.flows)
        return [(at, us) for at, us in self.waits if ends[0] <= at <= ends[1]]

    @cached_property
    def connections(self) -> list[wire.Connection]:
        """Senders of the capture, of a recording that has more than one."""
        several = int(self.setup.get("n", 1)) > 1 or len(self.lab.get("flows", [])) > 1
        captured = (self.folder / "packets.pcap.zst").is_file()
        return wire.senders(self.folder) if several and captured else []

    @property
    def unrecorded(self) -> list[wire.Connection]:
        """Those of them whose events were not recorded."""
        ports = [flow.ports for flow in self.flows]
        return [
            one
            for one in self.connections
            if (one.sent["sport"][0], one.sent["dport"][0]) not in ports
        ]

    def dropped(self) -> int | None:
        """What the bottleneck's queue dropped, by its last sample; a policer there is no queue."""
        rows = [row for _, row in raw.queue(self.folder)]
        queues = [int(row["dropped"]) for row in rows if row.get("kind") not in POLICERS]
        return max(queues) if queues else None

    @cached_property
    def policed(self) -> int:
        """What a policer where the queue was sampled dropped, where that is more than the queue
        did: then it is what holds the rate. 0: there is none."""
        counted: dict[str, list[int]] = {}
        for _, row in raw.queue(self.folder):
            counted.setdefault(row.get("kind", ""), []).append(int(row["dropped"]))
        grown = {kind: max(those) - min(those) for kind, those in counted.items()}
        most = max((n for kind, n in grown.items() if kind in POLICERS), default=0)
        others = (n for kind, n in grown.items() if kind not in POLICERS)
        return most if most > max(others, default=0) else 0


@dataclass(eq=False)
class Flow:
    """One flow's rows, in the order of time."""

    of: Recording
    rows: pl.DataFrame
    zero: int

    @cached_property
    def after_init(self) -> pl.DataFrame:
        """The rows from init on, which is one at the time of its entry: before, state is zeroed."""
        kinds = self.rows["kind"].to_list()
        entered = int(self.rows["ns"][kinds.index("I")])
        begun = self.rows[kinds.index("IX") :]
        ns = pl.when(pl.col("kind") == "IX").then(entered).otherwise("ns")
        return begun.with_columns(ns=ns)

    @cached_property
    def ports(self) -> tuple[int, int]:
        """Its sender's port and its receiver's."""
        begun = self.rows.filter(kind="I")
        return _port(begun["sport"][0]), _port(begun["dport"][0])

    @cached_property
    def acks(self) -> pl.DataFrame:
        return self.after_init.filter(kind="M")

    def at(self, ns: Any) -> float:
        return (int(ns) - self.zero) / 1e9

    @property
    def begins(self) -> float:
        return self.at(self.rows["ns"][0])

    @property
    def ends(self) -> float:
        return self.at(self.rows["ns"][-1])

    @cached_property
    def spans(self) -> pl.DataFrame:
        """The time from each row to the next, d [ns]: what the row brought, its TCP state, and
        BBR's after it, which the next row found."""
        rows = self.after_init
        after = [pl.col(name).shift(-1) for name in rows.columns if name.startswith("bbr.")]
        return rows.with_columns(
            *after,
            d=pl.col("ns").shift(-1) - pl.col("ns"),
            srtt=pl.col("tp.srtt_us") / 8,
            cwnd=pl.coalesce("out.tp.snd_cwnd", pl.col("tp.snd_cwnd").shift(-1)),
            pacing=pl.coalesce("out.sk.sk_pacing_rate", "sk.sk_pacing_rate").cast(pl.Float64),
            acked=raw.grown(rows, "tp.snd_una"),
            lost=raw.grown(rows, "tp.lost"),
            delivered=raw.grown(rows, "tp.delivered"),
        ).with_columns(d=pl.col("d").fill_null(0))

    def waited(self, spans: pl.DataFrame, base_us: float | None = None) -> float:
        """Seconds that packets waited: what of the smoothed RTT is beyond the path's."""
        base = self.base_us if base_us is None else base_us
        return float(((1 - base / spans["srtt"]).clip(0) * spans["d"]).sum()) / 1e9

    def between(self, begin: Any, end: Any) -> pl.DataFrame:
        """Those of `spans` that begin at a time [ns] or later, and before another."""
        return self.spans.filter((pl.col("ns") >= int(begin)) & (pl.col("ns") < int(end)))

    @cached_property
    def seconds(self) -> float:
        return self.at(self.after_init["ns"][-1]) - self.at(self.after_init["ns"][0])

    def total(self, name: str) -> int:
        return int(raw.grown(self.after_init, name).sum())

    @cached_property
    def believed(self) -> pl.Series:
        """The maximum of bandwidth [bytes/s] that each row found."""
        fields = ("bbr.bw.s[0].v", "bbr.bw_hi[0]", "bbr.bw_hi[1]")
        most = pl.max_horizontal(*(name for name in fields if name in self.rows.columns))
        return self.after_init.select(most * pl.col("tp.mss_cache") * 1e6 / (1 << 24)).to_series()

    @cached_property
    def carries(self) -> pl.Series:
        """What the link, and the sender's own, carry of payload [bytes/s] at each row; null: the
        link's rate is not known."""
        rows, size = self.after_init, pl.col("tp.mss_cache")
        rate = pl.lit(None, dtype=pl.Float64)
        for ns, bits in self.of.rates:
            most = min(bits, self.of.own_link or bits)
            rate = pl.when(pl.col("ns") >= ns).then(pl.lit(most)).otherwise(rate)
        return rows.select(rate / 8 * size / (size + HEADERS)).to_series()

    @cached_property
    def believed_after(self) -> pl.Series:
        """The same after each row, which the next one found."""
        return self.believed.shift(-1, fill_value=float(self.believed[-1]))

    @property
    def rate(self) -> float:
        """The most that the link carries of payload [bytes/s], or that it believed in."""
        return float(self.carries.max() or self.believed.max())  # type: ignore[arg-type]

    @property
    def bdp(self) -> float:
        """The path's product of rate and round trip [packets]."""
        return self.rate * self.base_us / 1e6 / max(self.segment_sizes)

    @property
    def goodput(self) -> float:
        """Acknowledged in order [bit/s]."""
        return self.total("tp.snd_una") * 8 / self.seconds

    @cached_property
    def rtts(self) -> pl.Series:
        return self.acks.filter(pl.col("rs.rtt_us") > 0)["rs.rtt_us"]

    @cached_property
    def spec(self) -> dict[str, Any]:
        """What the lab planned of this flow: its receiver's port says which it is, in a simulation
        its own."""
        row = self.rows.filter(kind="I")
        number = _port(row["dport"][0]) - 5201
        if self.of.lab.get("place") == "simulation":
            number = _port(row["sport"][0]) - 40_000 + 1
        return next((one for one in self.of.lab["flows"] if one["flow_no"] == number), {})

    @property
    def extra_us(self) -> float:
        """What its path takes beyond the others'."""
        return float(self.spec.get("extra_rtt_us", 0)) if self.of.lab else 0.0

    @property
    def base_us(self) -> float:
        known = self.of.base_us
        return known + self.extra_us if known else self.least_us

    @property
    def least_us(self) -> float:
        """The least round trip that TCP measured, the handshake's included, which init takes.

        One of whole milliseconds is by a timestamp, and up to a millisecond short: the least of the
        others is the path's, unless it is further above than that. On a path that reorders, packets
        that overtook others are no measure: a SACK tells of them, but not of a flight's first.
        """
        if self.reordered >= 10:
            whole = (pl.col("tp.sacked_out") == 0) & (pl.col("rs.is_retrans") == 0)
            told = self.acks.filter(whole & (pl.col("rs.rtt_us") > 0))
            lows = told.group_by(pl.col("ns") // 10**9).agg(pl.col("rs.rtt_us").min())
            least = sorted(lows["rs.rtt_us"])
            # A packet that nothing was sent before cannot overtake: one second may have such.
            return float(least[1 if len(least) > 2 else 0])
        believed = self.after_init["bbr.min_rtt_us"].drop_nulls()
        believed = believed.filter((believed > 0) & (believed < UNSET))
        measured = {*self.rtts, *believed}
        least = min(measured)
        finer = min((us for us in measured if us % 1000), default=least)
        return float(finer if finer <= least + 1000 else least)

    @cached_property
    def base_then(self) -> pl.Expr:
        """The path's round trip [us] at an event's time; a lab may change it."""
        base = pl.lit(self.base_us)
        for ns, us in self.of.changed("rtt"):
            base = pl.when(pl.col("ns") >= ns).then(us + self.extra_us).otherwise(base)
        return base

    @property
    def loss_share(self) -> float:
        lost = self.total("tp.lost")
        return lost / (lost + self.total("tp.delivered"))

    @property
    def timeouts(self) -> list[float]:
        """When the retransmission timer fired: tcp_enter_loss() sets the state each time."""
        rows = self.after_init.filter((pl.col("kind") == "S") & (pl.col("new_state") == LOSS))
        return [self.at(ns) for ns in rows["ns"]]

    @cached_property
    def undone(self) -> list[tuple[int, int]]:
        """From the last TCP_CA_Open before an undo to it [ns]: what was lost there was late."""
        kind, rows = pl.col("kind"), self.after_init
        opened = rows.filter((kind == "S") & (pl.col("new_state") == 0))["ns"].to_list()
        taken_back = rows.filter(kind == "U")["ns"].to_list()
        return [(max([ns for ns in opened if ns < end], default=0), end) for end in taken_back]

    def not_undone(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Those rows whose losses were none that an undo took back."""
        for begin, end in self.undone:
            rows = rows.filter((pl.col("ns") <= begin) | (pl.col("ns") >= end))
        return rows

    def not_repaired(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Those rows that are neither in a recovery that was undone nor from a timeout until a
        round trip after all that was sent by then is acknowledged."""
        spans = self.spans.select("ns", "kind", "new_state", "srtt", done=pl.col("acked").cum_sum())
        ahead = (self.after_init["tp.snd_nxt"] - self.after_init["tp.snd_una"]) % raw.WRAP
        repairs = [*self.undone]
        for place, (ns, kind, state, _, done) in enumerate(spans.iter_rows()):
            if kind == "S" and state == LOSS:
                over = spans[place:].filter(pl.col("done") >= done + ahead[place])
                last = (over if over.height else spans.tail(1)).row(0, named=True)
                repairs.append((ns, last["ns"] + round(1000 * last["srtt"])))
        for begin, end in repairs:
            rows = rows.filter(~pl.col("ns").is_between(begin, end))
        return rows

    @cached_property
    def came_twice(self) -> int:
        """Packets that D-SACKs told to have come twice, in no repair of an undo or a timer.

        An ACK counts them as delivered beside what it acknowledges for the first time.
        """
        size, rows = min(self.segment_sizes), self.acks
        grew = {name: raw.grown(rows, f"tp.{name}") for name in ("delivered", "snd_una")}
        held = rows["tp.sacked_out"].cast(pl.Int64).diff().fill_null(0)
        told = rows.select("ns").with_columns(**grew, held=held)
        whole = told.filter((pl.col("snd_una") % size == 0) & (pl.col("delivered") > 0))
        more = pl.col("delivered") - pl.col("held") - pl.col("snd_una") // size
        twice = whole.with_columns(more=pl.min_horizontal(more, "delivered")).filter(more > 0)
        return int(self.not_repaired(twice)["more"].sum())

    @cached_property
    def marked_lost(self) -> pl.DataFrame:
        """Those of `spans` that marked packets lost, but by a timeout, in its repair or if an undo
        took it back.

        tcp_enter_loss() marks what is in flight and then sets the state, with no ACK in between:
        what is marked after the last of main's calls or changes of state is the timer's. Its repair
        lasts until all is acknowledged that was sent by then.
        """
        rows = self.spans
        for begin, end in self.undone:
            late = (pl.col("ns") > begin) & (pl.col("ns") < end)
            rows = rows.with_columns(lost=pl.when(late).then(0).otherwise("lost"))
        acked = rows["acked"].cum_sum()
        ahead = (self.after_init["tp.snd_nxt"] - self.after_init["tp.snd_una"]) % raw.WRAP
        kept: list[int] = []
        waiting: list[int] = []
        repaired = 0
        named = rows.select("kind", "new_state", "lost", acked=acked, ahead=ahead)
        for place, (kind, state, count, done, out) in enumerate(named.iter_rows()):
            waiting += [place] if count and done >= repaired else []
            if kind == "S" and state == LOSS:
                repaired = max(repaired, done + out)
                waiting = []
            elif kind in ("M", "S"):
                kept, waiting = kept + waiting, []
        return rows[kept + waiting]

    def without_timeouts(self) -> tuple[int, int]:
        """Packets of `marked_lost`; and delivered."""
        return int(self.marked_lost["lost"].sum()), self.total("tp.delivered")

    @cached_property
    def silences(self) -> list[tuple[float, float]]:
        """When ACKs stopped for long, and how long; the flow's end counts as one.

        Where nothing was outstanding the time counts from the next packet that was sent.
        """
        heard = self.acks.filter(pl.col("rs.acked_sacked") > 0)
        started = (pl.col("kind") == "E") & (pl.col("event") == 0) & (pl.col("tp.packets_out") == 0)
        sent = self.after_init.filter(started)
        usual = float(self.acks["tp.srtt_us"].median()) / 8e6  # type: ignore[arg-type]
        times = [(self.at(ns), True) for ns in heard["ns"]] + [(self.ends, True)]
        times += [(self.at(ns), False) for ns in sent["ns"]]
        limit = max(LEAST_SILENCE_S, 4 * usual)
        return [
            (a, b - a)
            for (a, _), (b, is_ack) in pairwise(sorted(times))
            if is_ack and b - a > limit
        ]

    @property
    def outages(self) -> list[tuple[float, float]]:
        """Silences in which the retransmission timer fired."""
        return [
            (at, lasted)
            for at, lasted in self.silences
            if any(at <= timeout <= at + lasted + 1e-9 for timeout in self.timeouts)
        ]

    @property
    def unused(self) -> float | None:
        """Share of the link that it left to others or to nobody, by payload."""
        if self.of.link is None:
            return None
        size = max(self.segment_sizes)
        return 1 - self.goodput / (self.of.link * size / (size + 66))

    @property
    def reordered(self) -> int:
        """How often TCP_CA_Disorder ended in TCP_CA_Open: a hole closed by itself."""
        ended = (pl.col("kind") == "S") & (pl.col("new_state") == 0)
        return self.after_init.filter(ended & (pl.col("icsk_ca_state") == 1)).height

    @property
    def by_second(self) -> pl.DataFrame:
        """Each second's median and least RTT [us]."""
        rows = self.acks.filter(pl.col("rs.rtt_us") > 0).with_columns(
            second=((pl.col("ns") - self.zero) // 1_000_000_000), base=self.base_then
        )
        return (
            rows.group_by("second")
            .agg(
                us=pl.col("rs.rtt_us").median(),
                least=pl.col("rs.rtt_us").min(),
                base=pl.col("base").max(),
            )
            .sort("second")
        )

    def covered(self, second: int) -> float:
        """How much of a second the flow was there."""
        first = self.at(self.after_init["ns"][0])
        return max(0.0, min(self.ends, second + 1) - max(first, second))

    @cached_property
    def bloated_seconds(self) -> list[int]:
        """Those in which the median RTT was half as long again as the path took, and 5 ms; and
        most of that the queue's, where it was sampled."""
        seconds = self.by_second.select("second", "us", "base").iter_rows()
        paths = {second: self.other_in(second, base) for second, _, base in seconds}
        return [
            int(second)
            for second, us in self.by_second.select("second", "us").iter_rows()
            if us > 1.5 * (path := paths[second])
            and us > path + 5000
            and self.waited_in.get(second, us) + self.sending_in[second] >= 0.75 * (us - path)
        ]

    def other_in(self, second: int, base: float) -> float:
        """A second's round trip without the queue [us], where a quarter longer than base or
        shorter, by whichever of two waits."""
        if second not in self.unqueued:
            return base
        near = [self.unqueued[n] for n in range(second - 1, second + 2) if n in self.unqueued]
        sent = self.sending_in[second]
        path, least, most = (statistics.median(us) - sent for us in zip(*near, strict=True))
        # A sample is of whole packets: one of them may not have been there.
        packet = 1e6 * max(self.segment_sizes) / self.carries_in[second]
        return path if least > 1.25 * base or 1.25 * (most + packet) < base else base

    def path_then(self, ns: int) -> float:
        """The same of the second of a time [ns], beside the path's round trip."""
        return self.other_in((int(ns) - self.zero) // 1_000_000_000, self.base_us)

    @cached_property
    def unqueued(self) -> dict[int, list[float]]:
        """Each second's median of round trips less the wait that a sample of the queue shows, their
        lower tenth less the most of those around that round trip and itself, and their median less
        the least: of the first ACK after a packet that came with the sample left, within a round
        trip [us]."""
        acks = self.acks.filter(pl.col("rs.rtt_us") > 0).select("ns", "rs.rtt_us").rows()
        times, found = [ns for ns, _ in acks], dict[int, list[tuple[float, float, float]]]()
        samples = self.of.waits_of_run
        sampled, waits = [at for at, _ in samples], [us for _, us in samples]
        for at, wait in samples:
            left = at + 1000 * wait
            place = bisect_left(times, left)
            if place < len(acks) and times[place] - left <= 1000 * acks[place][1]:
                ns, rtt = acks[place]
                first = max(0, bisect_right(sampled, min(ns - 1000 * rtt, at)) - 1)
                seen = waits[first : bisect_right(sampled, ns) + 1]
                trips = found.setdefault((ns - self.zero) // 1_000_000_000, [])
                trips.append((rtt - wait, rtt - max(seen), rtt - min(seen)))
        medians = {}
        for second, trips in found.items():
            path, least, most = zip(*trips, strict=True)
            lower = pl.Series(least).quantile(0.1, "linear")
            medians[second] = [statistics.median(path), float(lower), statistics.median(most)]  # type: ignore[arg-type]
        return medians

    @cached_property
    def sending_in(self) -> dict[int, float]:
        """In each second, what the bottleneck took for one packet [us], as `sending_us`."""
        part = self.sending_us * self.rate
        return {second: part / carries for second, carries in self.carries_in.items()}

    @cached_property
    def carries_in(self) -> dict[int, float]:
        """In each second, what the link carried on average [bytes/s]."""
        rows = self.after_init.select(
            second=(pl.col("ns") - self.zero) // 1_000_000_000,
            carries=self.carries.fill_null(self.rate),
        )
        seconds = rows.group_by("second").agg(pl.col("carries").mean())
        return dict(seconds.iter_rows())

    @cached_property
    def paused(self) -> dict[int, float]:
        """In each second, for how long [s] nothing was heard beyond a smoothed round trip."""
        silent = pl.col("ns").diff().fill_null(0) - 125 * pl.col("tp.srtt_us")
        rows = self.after_init.select(
            second=(pl.col("ns") - self.zero) // 1_000_000_000, silent=silent.clip(0) / 1e9
        )
        return dict(rows.group_by("second").agg(pl.col("silent").sum()).iter_rows())

    @cached_property
    def waited_in(self) -> dict[int, float]:
        """Each second's mean wait in the queue [us], as packets found it that were then told of."""
        samples = [each for each in self.of.waits if self.zero <= each[0]]
        if not samples:
            return {}
        found = (
            self.acks.filter(pl.col("rs.rtt_us") > 0)
            .select("ns", then=pl.col("ns") - round(1e3 * self.base_us))
            .sort("then")
            .join_asof(
                pl.DataFrame(samples, schema=["at", "us"], orient="row"),
                left_on="then",
                right_on="at",
            )
            .group_by((pl.col("ns") - self.zero) // 1_000_000_000)
            .agg(pl.col("us").mean())
        )
        return {second: us for second, us in found.iter_rows() if us is not None}

    def held_while(self, where: pl.Expr) -> float:
        """Seconds in which a condition held, by the rows that ended each stretch of it."""
        rows = self.after_init.with_columns(
            d=(pl.col("ns") - pl.col("ns").shift(1)).fill_null(0)
        ).filter(where)
        return int(rows["d"].sum()) / 1e9

    @cached_property
    def sending_us(self) -> float:
        """What the bottleneck takes for one packet; a stated path takes no time for it."""
        return 1e6 * max(self.segment_sizes) / self.rate if self.of.base_us else 0.0

    @cached_property
    def path_in(self) -> dict[int, float]:
        """Most packets' RTT without the queue that each met, and without its own sending: of each
        second, the one before and the one after it [us]."""
        if not self.of.waits:
            return {}
        acks = self.acks.filter(pl.col("rs.rtt_us") > 0)
        sent = acks.select("ns", "rs.rtt_us", sent=pl.col("ns") - 1000 * pl.col("rs.rtt_us"))
        met = sent.sort("sent").join_asof(
            pl.DataFrame(self.of.waits, schema=["at", "us"], orient="row"),
            left_on="sent",
            right_on="at",
        )
        second = (pl.col("ns") - self.zero) // 1_000_000_000
        usual = met.group_by(second=second).agg((pl.col("rs.rtt_us") - pl.col("us")).median())
        by = {n: us for n, us in usual.iter_rows() if us is not None}
        found = {}
        for n in usual["second"]:
            three = [by[k] - self.sending_in[k] for k in range(n - 1, n + 2) if k in by]
            if three:
                found[n] = statistics.median(three)
        return found

    def path_at(self, ns: int) -> float:
        """The same at a time [ns], or as it was seen last; not less than the path's."""
        second = (ns - self.zero) // 1_000_000_000
        last = max((n for n in self.path_in if n <= second), default=None)
        return max(self.base_us, self.path_in[last]) if last is not None else self.base_us

    @cached_property
    def inflated(self) -> pl.DataFrame:
        """Those of `spans` with min_rtt over 1.1 of the path's, set by a packet that had to wait.

        Also `set` [ns], when it became min_rtt, `wait` [us] of the packet in the queue, and `path`
        [us], what the path was seen to take then.

        The queue explains it where three quarters of the excess were there before and after the
        packet was sent whose ACK set min_rtt.
        """
        times, waits = [at for at, _ in self.of.waits], [us for _, us in self.of.waits]
        came = dict[int, list[int]]()
        for ns, us in self.acks.filter(pl.col("rs.rtt_us") > 0).select("ns", "rs.rtt_us").rows():
            came.setdefault(us, []).append(ns)
        waited: list[float | None] = []
        sets, bases, found, before, set_ns, base_set = [], [], [], None, 0, 0.0
        changed = bool(self.of.changed("rtt"))
        then = self.spans.select("ns", "bbr.min_rtt_us", base=self.base_then)
        known, path, then_us = None, self.base_us, self.base_us
        for ns, rtt, base in then.iter_rows():
            if rtt != before or not bases:
                set_ns = ns if rtt != before else set_ns
                base_set = self.other_in((set_ns - self.zero) // 1_000_000_000, self.base_us)
            before = rtt
            sets.append(set_ns)
            bases.append(base_set)
            waited.append(None)
            if rtt != known:  # it is compared with the path of the time when it was measured
                known, then_us = rtt, base
                path = base if changed else self.path_at(set_ns)
            least = max(1.1 * path, then_us + self.sending_us)
            if rtt is None or not least < rtt < UNSET:
                found.append(False)
                continue
            # v3 adopts a sample of the PROBE_RTT before.
            seen = max((ns for ns in came.get(rtt, ()) if ns <= set_ns), default=set_ns)
            after = bisect_left(times, seen - 1000 * rtt)
            near = waits[max(after - 1, 0) : after + 1]
            waited[-1] = min(near, default=None)
            found.append(not near or min(near) >= 0.75 * (rtt - then_us))
        named = self.spans.with_columns(
            set=pl.Series(sets),
            wait=pl.Series(waited, dtype=pl.Float64),
            path=pl.Series(bases, dtype=pl.Float64),
        )
        return named.filter(pl.Series(found))

    @property
    def of_marks(self) -> pl.Series:
        """By how much tp.delivered_ce grew."""
        return raw.grown(self.after_init, "tp.delivered_ce")

    @property
    def marked(self) -> float:
        """Share of delivered packets with CE."""
        if "tp.delivered_ce" not in self.rows.columns:
            return 0.0
        return self.total("tp.delivered_ce") / self.total("tp.delivered")

    @property
    def answers_marks(self) -> bool:
        """Whether BBR ever held itself to be allowed to (bbr.ecn_eligible)."""
        name = "bbr.ecn_eligible"
        return name in self.rows.columns and bool((self.rows[name] == 1).any())

    @property
    def tail_probes(self) -> list[float]:
        """Repairs by tail loss probes: v3 tells BBR; earlier, one ACK enters CWR and leaves it."""
        rows = self.after_init.filter((pl.col("kind") == "E") & (pl.col("event") == TLP_RECOVERY))
        if rows.is_empty():
            entered = (pl.col("kind") == "S") & (pl.col("new_state") == CWR)
            left = pl.col("kind").shift(-1) == "S"
            rows = self.after_init.filter(entered & left)
        return [self.at(ns) for ns in rows["ns"]]

    @property
    def window_reductions(self) -> list[tuple[int, int]]:
        """From when to when [ns] TCP was in CWR, but for what the same ACK ends: the repair by a
        tail loss probe (`tail_probes`)."""
        ends = [*self.after_init.filter(kind="S")["ns"], int(self.rows["ns"][-1])]
        rows = self.after_init.with_columns(next=pl.col("kind").shift(-1))
        begun = rows.filter((pl.col("kind") == "S") & (pl.col("new_state") == CWR))
        begun = begun.filter(pl.col("next") != "S")
        return [(ns, min(end for end in ends if end > ns)) for ns in begun["ns"]]

    @property
    def tail_timeouts(self) -> list[float]:
        """Timeouts of a window with room, while some packet was neither sacked nor marked lost."""
        found, out, cwnd, window = [], 0, 0, 0
        names = ["kind", "new_state", "icsk_ca_state", "tp.packets_out", "tp.sacked_out"]
        names += ["tp.lost_out", "tp.snd_cwnd", "tp.snd_wnd", "tp.mss_cache", "ns"]
        for row in self.after_init.select(names).iter_rows(named=True):
            packets, fired = row["tp.packets_out"], row["new_state"] == LOSS
            if row["kind"] == "S" and fired and row["icsk_ca_state"] < LOSS and out > 0:
                room = packets < cwnd and (packets + 1) * row["tp.mss_cache"] < window
                found += [self.at(row["ns"])] if room else []
            if row["kind"] in ("M", "S"):
                out = packets - row["tp.sacked_out"] - row["tp.lost_out"]
            if row["kind"] == "M":
                cwnd, window = row["tp.snd_cwnd"], row["tp.snd_wnd"]
        return found

    @property
    def undo_count(self) -> int:
        """Calls of undo_cwnd: losses that proved to be none."""
        return self.after_init.filter(kind="U").height

    @property
    def undone_timeouts(self) -> int:
        """How many of them took back a timeout: TCP was still in TCP_CA_Loss."""
        return self.after_init.filter(kind="U", icsk_ca_state=LOSS).height

    @property
    def usual_us(self) -> float:
        """The smoothed RTT at the median of main's calls."""
        return float(self.acks["tp.srtt_us"].median()) / 8  # type: ignore[arg-type]

    @property
    def frozen_from(self) -> list[float]:
        """When v1 began to pace at its long-term rate, in PROBE_BW: STARTUP's gain is on top of it.
        The next row shows what an event did; a PROBE_RTT in between is no new beginning, but one in
        which the rate was found is."""
        rows = self.after_init.select("ns", "bbr.lt_use_bw", "bbr.mode").rows()
        found, held = [], False
        for (ns, _, _), (_, uses, mode) in pairwise(rows):
            if mode == PROBE_RTT:
                continue
            if (frozen := uses and mode == PROBE_BW) and not held:
                found.append(self.at(ns))
            held = frozen
        return found

    @cached_property
    def probe_rtt_spans(self) -> list[tuple[int, int]]:
        """Each time in PROBE_RTT, from the event that began it to the one that ended it [ns]."""
        rows = self.after_init.select("ns", "bbr.mode").rows()
        found: list[tuple[int, int]] = []
        since = None
        for (ns, _), (_, mode) in pairwise(rows):
            if mode == PROBE_RTT and since is None:
                since = ns
            elif mode != PROBE_RTT and since is not None:
                found, since = [*found, (since, ns)], None
        return found if since is None else [*found, (since, rows[-1][0])]

    @property
    def probe_rtts(self) -> list[float]:
        """How long each time in PROBE_RTT lasted [s]."""
        return [(end - begin) / 1e9 for begin, end in self.probe_rtt_spans]

    @property
    def in_initial_window(self) -> pl.DataFrame:
        """Rows that marked packets lost (`lost`) while the first unacknowledged byte was in the
        initial window; not what was undone."""
        rows = self.after_init.with_columns(lost=raw.grown(self.after_init, "tp.lost"))
        start = int(rows["tp.snd_una"][0])
        window = int(rows["tp.snd_cwnd"][0]) * int(rows["tp.mss_cache"][0])
        done = (rows["tp.snd_una"] - start) % raw.WRAP
        return self.not_undone(rows.filter((done < window) & (pl.col("lost") > 0)))

    @property
    def lost_of_initial_window(self) -> int:
        return int(self.in_initial_window["lost"].sum())

    @property
    def frozen(self) -> float:
        """Seconds in which v1 paced at its long-term rate: in PROBE_BW."""
        if "bbr.lt_use_bw" not in self.rows.columns:
            return 0.0
        return self.held_while((pl.col("bbr.lt_use_bw") == 1) & (pl.col("bbr.mode") == PROBE_BW))

    @property
    def most_extra(self) -> int:
        """Largest extra_acked [packets]."""
        return max(
            int(self.rows[name].drop_nulls().max() or 0)  # type: ignore[arg-type]
            for name in self.rows.columns
            if name.startswith("bbr.extra_acked[")
        )

    @cached_property
    def segment_sizes(self) -> list[int]:
        return sorted(set(self.after_init["tp.mss_cache"].to_list()))

    @property
    def capped(self) -> bool:
        """Whether SO_MAX_PACING_RATE was set."""
        return bool((self.after_init["sk.sk_max_pacing_rate"] < (1 << 64) - 1).any())


def _port(stored: int) -> int:
    """A port out of its two bytes in network order, read as a number of a little-endian host."""
    return (stored & 255) << 8 | stored >> 8


def shares(of: Recording) -> list[float]:
    """Each sender's part of what all carried while all were active; BBR's by ACKs, others' by
    iperf3, flows in the order of their beginning, then the others."""
    starts = [float(each) for each in of.setup["starts"].split()]
    flows = of.flows
    others = len(starts) - len(flows)
    offset = flows[0].begins - starts[0]
    a = max([flow.begins for flow in flows] + [start + offset for start in starts]) + 1
    b = min([flow.ends for flow in flows]) - 1
    carried = [_between(flow, a, b) for flow in flows]
    for number in range(len(flows) + 1, len(flows) + others + 1):
        report = json.loads((of.folder / f"iperf{number}.json").read_text())
        begins = starts[number - 1] + offset
        ends = begins + report["intervals"][-1]["sum"]["end"]
        b = min(b, ends)
        carried = [_between(flow, a, b) for flow in flows]
        carried.append(
            sum(
                each["sum"]["bytes"]
                for each in report["intervals"]
                if a <= begins + each["sum"]["start"] and begins + each["sum"]["end"] <= b
            )
        )
    return [each / sum(carried) for each in carried]


def _between(flow: Flow, a: float, b: float) -> float:
    rows = flow.after_init
    inside = (rows["ns"] >= flow.zero + a * 1e9) & (rows["ns"] < flow.zero + b * 1e9)
    return float(raw.grown(rows, "tp.snd_una").filter(inside).sum())


def heavy(flow: Flow) -> bool:
    """2 % or more, and of few packets two standard deviations of a count more; without what D-SACKs
    tell to have come."""
    marked, delivered = flow.without_timeouts()
    lost = marked - min(flow.came_twice, marked)
    share = 0.02 * (lost + delivered)
    return lost >= share and (lost >= 30 or lost >= share + 2 * share**0.5)


def lost_elsewhere(of: Recording) -> bool:
    """Twice as many were lost as the queue dropped, and 30 more; without what timeouts marked."""
    dropped = of.dropped()
    lost = sum(flow.without_timeouts()[0] - flow.came_twice for flow in of.flows)
    return dropped is not None and lost >= max(2 * dropped, dropped + 30)
