"""The tables that a dissected packet capture fills, and how it joins the events."""

from __future__ import annotations

from dataclasses import replace

from .recorded_tables import FLOW, RUN_ID, SEQ
from .table import Column, Table

DIRECTIONS = ("data", "ack")
DIRECTION_TYPE = "ENUM(" + ", ".join(f"'{name}'" for name in DIRECTIONS) + ")"

_PACKET_NS = (
    "CLOCK_MONOTONIC, the events' clock; in a run without events CLOCK_REALTIME; NULL: no clock"
)
_STREAM = Column("stream", "UINTEGER", "", "the TCP connection, as tshark numbers them, from 0")
_SENT_BY = Column("flow", "INTEGER", "", "flow that sent it, see flows; NULL: none recorded")
_ACKS = Column("ack_flow", "INTEGER", "", "flow that it acknowledges; NULL: none recorded")
_DIRECTION = Column(
    "direction", DIRECTION_TYPE, "", "data: sent by the end that sent more payload; else ack"
)
_ENDS = (
    Column("src", "VARCHAR", "", "source address, IPv4 or IPv6, innermost header"),
    Column("sport", "USMALLINT", "", "source port"),
    Column("dst", "VARCHAR", "", "destination address"),
    Column("dport", "USMALLINT", "", "destination port"),
)

CAPTURES = Table(
    "captures",
    "One row per dissected packet capture: what it holds, how its clock was brought onto the "
    "events' clock, and how well the two agree.",
    (
        RUN_ID,
        Column("name", "VARCHAR", "", "the file"),
        Column("tshark", "VARCHAR", "", "version of tshark that dissected it"),
        Column("frames", "BIGINT", "packets", "packets in the capture, of any protocol"),
        Column("packets", "BIGINT", "packets", "of these, TCP segments: rows of packets"),
        Column("streams", "BIGINT", "", "TCP connections"),
        Column("first_realtime_ns", "UBIGINT", "ns", "CLOCK_REALTIME of the first packet"),
        Column("last_realtime_ns", "UBIGINT", "ns", "CLOCK_REALTIME of the last packet"),
        Column("damage", "VARCHAR", "", "why the capture ends early; NULL: it does not"),
        Column("clock", "VARCHAR", "", "manifest, acks (no clocks recorded), realtime or none"),
        Column("offset_ns", "BIGINT", "ns", "CLOCK_REALTIME - CLOCK_MONOTONIC by the manifest"),
        Column("drift_ns", "BIGINT", "ns", "change of that offset from start to end"),
        Column("shift_ns", "BIGINT", "ns", "added to packets.ns so that no event precedes its ACK"),
        Column("pairs", "BIGINT", "", "ACK numbers seen in exactly one packet and one main event"),
        Column("lag_min_ns", "BIGINT", "ns", "least time from packet to event over these pairs"),
        Column("lag_p50_ns", "BIGINT", "ns", "its median"),
        Column("lag_p99_ns", "BIGINT", "ns", "its 99th percentile"),
        Column("lag_max_ns", "BIGINT", "ns", "its maximum"),
        Column("mains", "BIGINT", "events", "main events while the capture ran"),
        Column("mains_matched", "BIGINT", "events", "of these, joined to the ACK that caused them"),
        Column("losses", "BIGINT", "events", "skb_marked_lost events while the capture ran"),
        Column("losses_seen", "BIGINT", "events", "of these, with the lost packet in the capture"),
        Column("losses_resent", "BIGINT", "events", "of these, with its retransmission there"),
    ),
)

STREAMS = Table(
    "streams",
    "One row per direction of a captured TCP connection; flow tells whose it is, see flows.",
    (
        RUN_ID,
        _STREAM,
        _DIRECTION,
        *_ENDS,
        _SENT_BY,
        _ACKS,
        Column("first_ns", "UBIGINT", "ns", "its first packet, as packets.ns"),
        Column("last_ns", "UBIGINT", "ns", "its last packet"),
        Column("packets", "BIGINT", "packets", "packets"),
        Column("segments", "BIGINT", "packets", "of these, with payload"),
        Column("payload_bytes", "BIGINT", "bytes", "TCP payload, retransmissions included"),
        Column("wire_bytes", "BIGINT", "bytes", "frames as sent, link-layer header included"),
        Column("syn", "BOOLEAN", "", "its SYN was captured: window scale and start are known"),
    ),
)

# For DuckDB, which would otherwise try every method on every column.
_COMPRESSION = {"BOOLEAN": "rle", "VARCHAR": "", DIRECTION_TYPE: "", "UINTEGER[]": ""}


def _compressed(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    return tuple(
        replace(column, compression=_COMPRESSION.get(column.type, "bitpacking"))
        for column in columns
    )


PACKETS = Table(
    "packets",
    "One row per captured TCP segment, as tshark dissects it. What tshark infers depends on what "
    "the capture point saw: after a bottleneck's queue, dropped packets are missing (previous "
    "segment lost) and their retransmissions look out of order or new.",
    _compressed(
        (
            RUN_ID,
            Column("packet", "UINTEGER", "", "number of the frame in the capture, from 1"),
            Column("ns", "UBIGINT", "ns", _PACKET_NS),
            Column("realtime_ns", "UBIGINT", "ns", "CLOCK_REALTIME as captured, to the last digit"),
            _STREAM,
            _DIRECTION,
            _SENT_BY,
            _ACKS,
            *_ENDS,
            Column("ip_id", "USMALLINT", "", "IPv4 identification; NULL: IPv6"),
            Column("dsfield", "UTINYINT", "", "IPv4 DS field or IPv6 traffic class"),
            Column("ecn", "UTINYINT", "", "ECN codepoint: 0 not-ECT, 1 ECT(1), 2 ECT(0), 3 CE"),
            Column("frame_len", "UINTEGER", "bytes", "the frame as sent"),
            Column("captured_len", "UINTEGER", "bytes", "of these captured"),
            Column("seq_raw", "UINTEGER", "", "sequence number as sent"),
            Column("ack_raw", "UINTEGER", "", "acknowledgement number as sent; NULL: no ACK flag"),
            Column(
                "seq", "UINTEGER", "bytes", "sequence number from the connection's first, mod 2^32"
            ),
            Column(
                "ack", "UINTEGER", "bytes", "the same of the acknowledgement; NULL: no ACK flag"
            ),
            Column("len", "UINTEGER", "bytes", "TCP payload"),
            Column(
                "flags",
                "USMALLINT",
                "bits",
                "1 FIN 2 SYN 4 RST 8 PSH 16 ACK 32 URG 64 ECE 128 CWR 256 AE",
            ),
            Column("ece", "BOOLEAN", "", "ECE flag"),
            Column("cwr", "BOOLEAN", "", "CWR flag"),
            Column(
                "ace",
                "UTINYINT",
                "packets",
                "AE, CWR and ECE as one number: under AccECN the receiver's count of CE, mod 8",
            ),
            Column("window_raw", "USMALLINT", "", "window field"),
            Column("window", "UINTEGER", "bytes", "window, scaled if the SYNs were captured"),
            Column(
                "sack_left", "UINTEGER[]", "bytes", "left edges of SACK blocks, as ack; NULL: none"
            ),
            Column("sack_right", "UINTEGER[]", "bytes", "their right edges"),
            Column("dsack_left", "UINTEGER", "bytes", "left edge of a D-SACK block; NULL: none"),
            Column("dsack_right", "UINTEGER", "bytes", "its right edge"),
            Column("acc_ecn_e0b", "UINTEGER", "bytes", "AccECN option: ECT(0) bytes, mod 2^24"),
            Column("acc_ecn_ceb", "UINTEGER", "bytes", "AccECN option: CE bytes, mod 2^24"),
            Column("acc_ecn_e1b", "UINTEGER", "bytes", "AccECN option: ECT(1) bytes, mod 2^24"),
            Column("tsval", "UINTEGER", "", "timestamps option; NULL: none or not captured"),
            Column("tsecr", "UINTEGER", "", "its echo"),
            Column("mss_option", "USMALLINT", "bytes", "MSS option of a SYN"),
            Column("wscale_option", "UTINYINT", "bits", "window scale option of a SYN"),
            Column("sack_permitted", "BOOLEAN", "", "SACK-permitted option of a SYN"),
            Column("retransmission", "BOOLEAN", "", "tshark: retransmission of any sort"),
            Column("fast_retransmission", "BOOLEAN", "", "tshark: after duplicate ACKs"),
            Column("spurious_retransmission", "BOOLEAN", "", "tshark: the data was acked already"),
            Column("out_of_order", "BOOLEAN", "", "tshark: out of order"),
            Column(
                "previous_missing", "BOOLEAN", "", "tshark: a segment before it was not captured"
            ),
            Column("dup_ack", "UINTEGER", "", "tshark: how many-eth duplicate ACK; NULL: none"),
            Column("acks_packet", "UINTEGER", "", "tshark: the packet that it acknowledges"),
            Column("ack_rtt_ns", "BIGINT", "ns", "tshark: since that packet, at the capture point"),
            Column("bytes_in_flight", "UINTEGER", "bytes", "tshark: sent and not acknowledged"),
            Column("window_full", "BOOLEAN", "", "tshark: fills the peer's window"),
            Column("zero_window", "BOOLEAN", "", "tshark: the window is closed"),
            Column("window_update", "BOOLEAN", "", "tshark: nothing but a new window"),
            Column("keep_alive", "BOOLEAN", "", "tshark: keep-alive probe"),
            Column("acks_unseen", "BOOLEAN", "", "tshark: acknowledges what was not captured"),
            Column("rto_ns", "BIGINT", "ns", "tshark: since the segment that is sent again"),
        )
    ),
)

ACK_MATCHES = Table(
    "ack_matches",
    "The captured ACK that each main event processed.",
    (
        RUN_ID,
        FLOW,
        SEQ,
        Column("packet", "UINTEGER", "", "the ACK, see packets"),
        Column("lag_ns", "BIGINT", "ns", "from the packet to the event"),
    ),
)

LOSS_MATCHES = Table(
    "loss_matches",
    "What the capture shows of each packet that the kernel marked lost.",
    (
        RUN_ID,
        FLOW,
        SEQ,
        Column("lost_packet", "UINTEGER", "", "the lost packet; NULL: it never got to the capture"),
        Column("resent_packet", "UINTEGER", "", "its retransmission; NULL: not captured"),
        Column("overtaking_packet", "UINTEGER", "", "the first with data from beyond it"),
    ),
)

TABLES = (CAPTURES, STREAMS, PACKETS, ACK_MATCHES, LOSS_MATCHES)
