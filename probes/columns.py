"""What each row of a recording carries, per BBR version: the data the probes are made from.

Names are those of ``events.csv``: `tp.*` struct tcp_sock, `sk.*` struct sock, `rs.*` struct
rate_sample, `skb.*` struct tcp_skb_cb, `bbr.*` struct bbr. The fields of struct bbr are not listed
here: they are read from the host's own BTF (all of them but padding named unused*).
"""

from __future__ import annotations

from dataclasses import dataclass

RATE_SAMPLE = (
    "prior_mstamp prior_delivered delivered interval_us snd_interval_us rcv_interval_us rtt_us "
    "losses acked_sacked prior_in_flight is_app_limited is_retrans is_ack_delayed"
).split()
RATE_SAMPLE_V2 = "prior_lost prior_delivered_ce tx_in_flight lost delivered_ce is_ece".split()
RATE_SAMPLE_V3 = [*RATE_SAMPLE_V2, "is_acking_tlp_retrans_seq"]

TCP_SOCK = (
    "delivered lost snd_cwnd snd_cwnd_clamp app_limited packets_out sacked_out lost_out "
    "retrans_out srtt_us mss_cache snd_ssthresh delivered_mstamp tcp_mstamp tcp_clock_cache "
    "tcp_wstamp_ns prior_cwnd snd_una snd_nxt high_seq rcv_nxt snd_wnd"
).split()
TCP_SOCK_V2 = "delivered_ce is_cwnd_limited max_packets_out ecn_flags fast_ack_mode".split()
TCP_SOCK_V3 = ["tlp_orig_data_app_limited", *TCP_SOCK_V2]

SOCK = "sk_pacing_rate sk_max_pacing_rate sk_pacing_shift sk_gso_max_size".split()

# 64-bit and signed fields; everything else is unsigned and at most 32 bits wide.
WIDE = {
    *("rs.prior_mstamp", "tp.delivered_mstamp", "tp.tcp_mstamp", "tp.tcp_clock_cache"),
    *("tp.tcp_wstamp_ns", "sk.sk_pacing_rate", "sk.sk_max_pacing_rate"),
    *("bbr.cycle_mstamp", "bbr.ack_epoch_mstamp", "sk.cookie"),
}
SIGNED = {"rs.delivered", "rs.losses", "rs.lost", "rs.delivered_ce"}
SIGNED_WIDE = {"rs.interval_us", "rs.rtt_us"}

# Members of struct tcp_skb_cb behind the names of the recording.
SKB = {
    "skb.in_flight": "tx.in_flight",
    "skb.lost": "tx.lost",
    "skb.is_app_limited": "tx.is_app_limited",
    "skb.delivered_mstamp": "tx.delivered_mstamp",
    "skb.gso_segs": "tcp_gso_segs",
    "skb.seq": "seq",
    "skb.end_seq": "end_seq",
}

# What mainline's struct tcp_skb_cb does not have.
SKB_V2 = ("skb.in_flight", "skb.lost")

EXIT = ["tp.snd_cwnd", "sk.sk_pacing_rate", "tp.snd_ssthresh", "tp.app_limited", "jiffies32"]


@dataclass(frozen=True)
class Version:
    """One BBR: its function names and the columns that its replay needs."""

    name: str
    main: str
    init: str
    set_state: str
    ssthresh: str
    undo_cwnd: str
    cwnd_event: str
    skb_marked_lost: str | None
    module: str
    rate_sample: tuple[str, ...]
    tcp_sock: tuple[str, ...]

    @property
    def socket(self) -> list[str]:
        """Columns of the socket, in the recordings' order."""
        names = [f"tp.{name}" for name in self.tcp_sock] + [f"sk.{name}" for name in SOCK]
        return [*names, "icsk_ca_state", "jiffies32"]

    @property
    def skb(self) -> list[str]:
        """Columns of a packet that is marked lost or sent again."""
        absent = () if self.skb_marked_lost else SKB_V2
        return [name for name in SKB if name not in absent]

    @property
    def functions(self) -> list[str]:
        """The callbacks' symbols."""
        names = [self.main, self.init, self.set_state, self.ssthresh, self.undo_cwnd]
        names.append(self.cwnd_event)
        return names + ([self.skb_marked_lost] if self.skb_marked_lost else [])


def _version(
    name: str,
    prefix: str,
    marked_lost: str | None,
    module: str,
    rate_sample: list[str],
    tcp_sock: list[str],
) -> Version:
    return Version(
        name=name,
        main=f"{prefix}_main",
        init=f"{prefix}_init",
        set_state=f"{prefix}_set_state",
        ssthresh=f"{prefix}_ssthresh",
        undo_cwnd=f"{prefix}_undo_cwnd",
        cwnd_event="bbr_cwnd_event",  # v2 kept v1's name for this one
        skb_marked_lost=marked_lost,
        module=module,
        rate_sample=(*RATE_SAMPLE, *rate_sample),
        tcp_sock=(*TCP_SOCK, *tcp_sock),
    )


_ALL = (
    _version("v1", "bbr", None, "tcp_bbr", [], []),
    _version("v2", "bbr2", "bbr2_skb_marked_lost", "tcp_bbr2", RATE_SAMPLE_V2, TCP_SOCK_V2),
    _version("v3", "bbr", "bbr_skb_marked_lost", "tcp_bbr", RATE_SAMPLE_V3, TCP_SOCK_V3),
)
VERSIONS = {version.name: version for version in _ALL}

# cwnd_event was split and renamed upstream; the new function means event 0 (TX_START) only.
TX_START = "bbr_cwnd_event_tx_start"

# struct bbr's size tells the versions apart; their names do not (v3 registers as "bbr").
SIZES = {104: "v1", 216: "v2", 144: "v3"}
