"""What the engine works on: the world, its flows, segments, packets, and what is to come.

Sequence numbers count segments from 0 and never wrap: 0 is the runt that iperf3 sends first, its
cookie; all others are full. Times are nanoseconds since the world began. What BBR reads of struct
tcp_sock stands in the flow's `Event` (analyze/bbr/records.py), which the estimator is handed.
"""

from __future__ import annotations

from typing import Protocol

from ...bbr.records import Four, record_of

# Kinds of congestion control: BBR is whatever callbacks the flow's slot has.
CC_BBR, CC_CUBIC, CC_RENO, CC_VEGAS, CC_DCTCP = range(5)
# Kinds of application.
APP_BULK, APP_RATE, APP_SIZE, APP_ON_OFF = range(4)
# Kinds of events on the heap.
EV_START, EV_APP, EV_PACE, EV_TIMER, EV_ARRIVE, EV_ACK, EV_LINK = range(7)
EV_ENTER, EV_DELACK, EV_CHANGE, EV_STOP, EV_SAMPLE, EV_BUSY, EV_OPEN, EV_LEAVE = range(7, 15)
# What a timer is armed for: icsk_pending.
TIMER_NONE, TIMER_RTO, TIMER_TLP, TIMER_REO = range(4)
# How a receiver echoes CE marks: until the sender says CWR, or each change of it.
ECN_NONE, ECN_CLASSIC, ECN_PRECISE = range(3)
# What of a path changes.
CHANGE_RATE, CHANGE_RTT, CHANGE_LOSS, CHANGE_OUTAGE, CHANGE_DOWN, CHANGE_ACKS = range(6)
# TCPCB_*: flags of a segment on the scoreboard.
SACKED, RETRANS_OUT, LOST, EVER_RETRANS = 1, 2, 4, 8
# FLAG_*: what an ACK brought.
F_ACKED, F_RETRANS_ACKED, F_SACKED, F_ECE, F_ORIG_SACK, F_UNA = 1, 2, 4, 8, 16, 32
F_DSACK, F_DSACK_TLP, F_LOST_RETRANS, F_SET_TIMER, F_DELAYED, F_WIN = 64, 128, 256, 512, 1024, 2048
# What to do after an ACK: tcp_xmit_recovery().
REXMIT_NONE, REXMIT_LOST, REXMIT_NEW = range(3)

MSS = 1448  # payload of a full segment with timestamps, Ethernet's MTU
HEADERS = 66  # Ethernet 14, IPv4 20, TCP 32 with timestamps
SYN_OPTIONS = 8  # bytes of a SYN's options beyond timestamps
SYN_SEQ = -1  # its sequence number as a packet here
COOKIE = 37  # bytes of iperf3's first write
NS = 1_000_000_000
US = 1000


class World(Protocol):
    """The clock, the path and what is counted of them."""

    now: int  # ns
    order: int  # makes events of one instant run in the order they were made
    random: int
    heap_size: int
    end_ns: int
    free: int  # head of the list of free packets, -1: none
    overflow: int  # 1: an array was too small; the run stops
    rate_bps: int
    burst_bytes: int  # token bucket
    burst_ns: int  # and in time at the present rate
    tokens_ns: int
    token_clock: int
    limit_packets: int  # 0: none
    limit_bytes: int  # 0: none
    queue_head: int  # -1: empty
    queue_tail: int
    queue_packets: int
    queue_bytes: int
    link_waits: int  # 1: a departure is scheduled
    rtt_ns: int
    loss_ppb: int  # share of packets, or of skbs, in 1e-9
    in_skbs: int  # 1: packets of an skb are lost, or overtaken, together
    whole_skbs: int  # 1: an skb that the bucket has room for goes in one piece
    outage_until: int  # the sender's skbs are lost
    down_until: int  # the link is down: queue, data and delayed ACKs are lost
    acks_until: int  # ACKs made before are lost
    resolved_at: int  # when ARP has an answer, -1: not asked yet, 0: it had before
    jitter_ns: int
    reorder_ppb: int  # share that overtakes of what follows one that waited, in 1e-9
    reorder_again_ppb: int  # and of what follows one that overtook
    overtook: int  # 1: the last did
    reorder_ns: int
    mss: int  # payload of a full segment, bytes
    headers: int  # of a segment on the wire, bytes
    policer: int  # 1: packets beyond the bucket are dropped, not queued
    ce_ns: int  # mark packets that queued longer; 0: never
    peeks: int  # 1: a packet has queued when it is the first, 0: when it leaves
    aggregate_ns: int  # ACKs leave at multiples of this; 0: at once
    timestamp_phase_ns: int  # how long ago a timestamp changed as the run began
    busy_ns: int  # how long hosts are busy with something else, on average
    busy_every_ns: int  # and after how long they are again, on average; 0: as usual
    busy_until: int
    ack_ns: int  # how long the hosts' one CPU works on an ACK; 0: no time
    arrives_at: int  # when the next segment may
    cpu_until: int  # it works until then on what has come
    late_readers: int
    host_bps: int  # rate of the senders' own link; 0: the path takes an skb at once
    host_burst_bytes: int  # its token bucket
    host_burst_ns: int
    # the recording
    recorded: int
    record: int
    sampled: int
    next_change: int
    n_changes: int
    n_heap: int
    n_out: int
    n_samples: int
    bits: int  # log2 of a ring's size
    n_flows: int
    sent_packets: int
    dropped_packets: int
    # addresses of the arrays (places.Sim)
    flows: int
    events: int
    states: int
    params: int
    segs: int
    got: int
    blocks: int
    packets: int
    heap: int
    changes: int
    out_events: int
    out_states: int
    out_rows: int
    samples: int
    reached: int
    callbacks: Four


class SimFlow(Protocol):
    """One flow: its application, its sender beyond what BBR reads, and its receiver."""

    cc: int
    slot: int
    version: int
    hz: int
    state: int  # 0: BBR has not begun, 1: cookie sent, 2: the application runs, 3: over
    app: int
    app_bytes_ns: int  # ns per block of a rate-limited application
    app_segments: int  # of a transfer of fixed size
    on_ns: int
    off_ns: int
    start_ns: int
    stop_ns: int
    extra_ns: int
    cookie: int  # 1: iperf3's goes before BBR begins
    begins_ns: int  # when the application does, after BBR; 0: as iperf3
    grows: int  # 1: the kernel fills up an skb from the next before it sends it, as 6.11 and later
    is_on: int
    syns: int  # sent so far
    syn_stamp: int  # when the one that was answered was sent, ns
    written: int  # segments that the application has handed over
    app_credit: int  # bytes of a segment not full yet
    done_ns: int  # when a transfer of fixed size was acked
    # sender
    una: int
    nxt: int
    high_seq: int
    wnd_end: int
    mstamp_ns: int
    first_tx: int  # us
    min_rtt: int  # us, -1: none
    rto_us: int
    mdev: int
    mdev_max: int
    rttvar: int
    rtt_seq: int
    retransmits: int
    reordering: int
    reord_seen: int
    fack: int
    frto: int
    undo_marker: int  # -1: none
    undo_retrans: int
    retrans_stamp: int  # ns, 0: none
    prior_ssthresh: int
    tlp_high_seq: int  # -1: none
    tlp_retrans: int
    cwnd_usage_seq: int
    retrans_hint: int
    data_segs: int
    last_sent_ns: int  # lsndtime
    skb: int  # number of the last skb sent
    max_window: int  # the largest that the receiver has advertised, bytes
    sndbuf: int  # bytes
    filled: int  # segments in skbs: sent, or in the send buffer
    goal: int  # segments of an skb; 0: nothing was written yet
    next_goal: int  # of those from goal_until on; 0: the same
    goal_until: int
    skb_end: int  # of the skb at the head of the write queue
    push_at: int  # where the application found its send buffer full
    pushed_seq: int
    rack_mstamp: int  # ns
    rack_end: int
    rack_rtt: int  # us
    rack_advanced: int
    rack_steps: int
    rack_persist: int
    rack_dsack: int
    rack_delivered: int
    sent_head: int  # list of segments in the order of their last transmission
    sent_tail: int
    timer: int
    timer_ns: int
    timer_event_ns: int  # when the heap's event for it fires; -1: none
    pace_ns: int  # when the pacing timer fires; -1: not armed
    acked_stamp: int  # when the receiver made the ACK last processed, ns
    # the host's own link (where the path has host_bps)
    host: int  # the first flow of this one's host, whose record has the link's bucket
    link_tokens_ns: int
    link_clock: int  # when the last in its queue leaves
    wmem: int  # sk_wmem_alloc_get(): memory of skbs in the host, bytes
    throttled: int  # 1: TSQ_THROTTLED
    left_skb: int  # number of the skb that left the host last
    # this ACK
    flag: int
    first_ackt: int
    last_ackt: int
    first_sackt: int
    last_sackt: int
    reord: int
    rs_last_end: int
    rs_prior_mstamp: int
    rs_prior_lost: int
    rs_prior_ce: int
    rs_is_retrans: int
    rs_snd_us: int
    rs_rcv_us: int
    rexmit: int
    ack_tsecr: int
    # SACK blocks seen last, so that what is tagged is not walked again
    cache_s0: int
    cache_e0: int
    cache_s1: int
    cache_e1: int
    cache_s2: int
    cache_e2: int
    # loss-based
    prr_delivered: int
    prr_out: int
    ca_cnt: int
    ca_w_max: int
    ca_k: int
    ca_origin: int
    ca_epoch: int
    ca_tcp_cwnd: int
    ca_ack_cnt: int
    ca_last_cwnd: int
    ca_last_time: int
    ca_delay_min: int
    ca_round_start: int
    ca_end_seq: int
    ca_curr_rtt: int
    ca_samples: int
    ca_last_ack: int
    ca_found: int
    snd_cwnd_cnt: int
    # receiver
    rcv_nxt: int
    rcv_high: int
    rcv_wup: int
    rcv_ssthresh: int  # bytes
    rcv_clamp: int
    rcv_held: int  # segments that wait for a hole to be filled
    rcv_space: int
    rcv_space_time: int
    rcv_copied: int
    rcv_rtt: int  # us << 3
    rcv_rtt_seq: int  # where a window that is timed ends
    rcv_rtt_time: int  # ns, 0: none is
    rcv_right: int  # right edge advertised, in segments
    quick: int
    pushed: int  # 1: ICSK_ACK_PUSHED
    ack_now: int  # 1: ICSK_ACK_NOW
    ato_ns: int
    delack_ns: int  # -1: not armed
    last_data_ns: int
    dup_acks: int
    comp_acks: int
    comp_ns: int  # -1: not armed
    comp_nxt: int
    ooo: int  # SACK blocks
    ack_stamp: int  # what an ACK echoes: when the first segment that it acks was sent
    d_s: int  # D-SACK, -1: none
    d_e: int
    ts_recent: int
    ecn: int  # ECN_NONE, ECN_CLASSIC or ECN_PRECISE
    ect_again: int  # 1: retransmissions are ECT, too
    ce_state: int  # of what arrived last, where the echo is precise
    demand_cwr: int  # 1: ACKs echo a CE mark
    last_ack_out: int  # the ACK path keeps the order
    # counted
    sent_segs: int
    retrans_segs: int
    dropped: int
    rmem_max: int


class Seg(Protocol):
    """One segment in flight: the tx fields of struct tcp_skb_cb, and its place in lists."""

    flags: int
    skb: int
    sent_ns: int
    tx_first: int  # us
    tx_delivered: int
    tx_mstamp: int  # us
    tx_in_flight: int
    tx_lost: int
    tx_ce: int
    tx_app: int
    previous: int
    following: int
    has: int  # 1: in the list of sent segments
    push: int  # 1: the last segment of an skb of several; its packet has the PSH flag


class Packet(Protocol):
    """A packet on the path: a data segment, or an ACK; or what waits for the host's own link."""

    flow: int
    seq: int  # of the first segment
    segments: int  # more than 1: an skb in one piece
    size: int  # bytes on the wire
    entered: int  # when the queue was entered; -1: it is no longer measured
    stamp: int  # timestamp option: when it was sent, ns
    echo: int  # timestamp option: what it echoes, ns
    ect: int  # 1: it may be marked
    ce: int
    cwr: int
    push: int
    skb: int  # number of the skb that waits for the host's link
    next: int
    ack: int
    right: int
    ece: int
    blocks: int
    s0: int
    e0: int
    s1: int
    e1: int
    s2: int
    e2: int
    dsack: int


class Got(Protocol):
    """Whether a receiver has a segment above rcv_nxt."""

    here: int


class SackBlock(Protocol):
    """A SACK block."""

    start: int
    end: int


class Coming(Protocol):
    """An event to come."""

    at: int  # ns
    order: int
    kind: int
    argument: int


class PathStep(Protocol):
    """A change of the path."""

    at: int  # ns
    what: int
    value: int


_ALL = (World, SimFlow, Seg, Packet, Got, SackBlock, Coming, PathStep)
WORLD, FLOW, SEG, PACKET, GOT, BLOCK, COMING, CHANGE = map(record_of, _ALL)
