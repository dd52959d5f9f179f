"""Which fields tshark is asked for, and what becomes of each: data for `tshark_text.decode`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# What a field is: a number (of several values the last: an option given twice, two IP headers),
# seconds as ns (the last), numbers (all of them), text (the last), whether it is there at all, and
# a mark of frames that hold no segment of their own, but quote one.
NUMBER, SECONDS, NUMBERS, TEXT, FLAG, QUOTE = range(6)

U8, U16, U32 = 0xFF, 0xFFFF, 0xFFFFFFFF


@dataclass(frozen=True)
class TsharkField:
    """A field by tshark's name, and the column it fills; numbers beyond `most` become NULL.

    Of several fields of one column the last one that is there counts.
    """

    name: str
    column: str
    kind: int
    most: int = 0


FIELDS = (
    TsharkField("frame.time_epoch", "realtime_ns", SECONDS),
    TsharkField("frame.len", "frame_len", NUMBER, U32),
    TsharkField("frame.cap_len", "captured_len", NUMBER, U32),
    TsharkField("ip.src", "src", TEXT),
    TsharkField("ip.dst", "dst", TEXT),
    TsharkField("ip.id", "ip_id", NUMBER, U16),
    TsharkField("ip.dsfield", "dsfield", NUMBER, U8),
    TsharkField("ipv6.src", "src", TEXT),
    TsharkField("ipv6.dst", "dst", TEXT),
    TsharkField("ipv6.tclass", "dsfield", NUMBER, U8),
    TsharkField("icmp.type", "", QUOTE),
    TsharkField("icmpv6.type", "", QUOTE),
    TsharkField("tcp.stream", "stream", NUMBER, U32),
    TsharkField("tcp.srcport", "sport", NUMBER, U16),
    TsharkField("tcp.dstport", "dport", NUMBER, U16),
    TsharkField("tcp.seq", "seq", NUMBER, U32),
    TsharkField("tcp.seq_raw", "seq_raw", NUMBER, U32),
    TsharkField("tcp.ack", "ack", NUMBER, U32),
    TsharkField("tcp.ack_raw", "ack_raw", NUMBER, U32),
    TsharkField("tcp.len", "len", NUMBER, U32),
    TsharkField("tcp.flags", "flags", NUMBER, U16),
    TsharkField("tcp.window_size_value", "window_raw", NUMBER, U16),
    TsharkField("tcp.window_size", "window", NUMBER, U32),
    TsharkField("tcp.options.sack_le", "sack_left", NUMBERS),
    TsharkField("tcp.options.sack_re", "sack_right", NUMBERS),
    TsharkField("tcp.options.sack.dsack_le", "dsack_left", NUMBER, U32),
    TsharkField("tcp.options.sack.dsack_re", "dsack_right", NUMBER, U32),
    TsharkField("tcp.options.sack_perm", "sack_permitted", FLAG),
    TsharkField("tcp.options.acc_ecn.ee0b", "acc_ecn_e0b", NUMBER, U32),
    TsharkField("tcp.options.acc_ecn.eceb", "acc_ecn_ceb", NUMBER, U32),
    TsharkField("tcp.options.acc_ecn.ee1b", "acc_ecn_e1b", NUMBER, U32),
    TsharkField("tcp.options.timestamp.tsval", "tsval", NUMBER, U32),
    TsharkField("tcp.options.timestamp.tsecr", "tsecr", NUMBER, U32),
    TsharkField("tcp.options.mss_val", "mss_option", NUMBER, U16),
    TsharkField("tcp.options.wscale.shift", "wscale_option", NUMBER, U8),
    TsharkField("tcp.analysis.retransmission", "retransmission", FLAG),
    TsharkField("tcp.analysis.fast_retransmission", "fast_retransmission", FLAG),
    TsharkField("tcp.analysis.spurious_retransmission", "spurious_retransmission", FLAG),
    TsharkField("tcp.analysis.out_of_order", "out_of_order", FLAG),
    TsharkField("tcp.analysis.lost_segment", "previous_missing", FLAG),
    TsharkField("tcp.analysis.duplicate_ack_num", "dup_ack", NUMBER, U32),
    TsharkField("tcp.analysis.acks_frame", "acks_packet", NUMBER, U32),
    TsharkField("tcp.analysis.ack_rtt", "ack_rtt_ns", SECONDS),
    TsharkField("tcp.analysis.bytes_in_flight", "bytes_in_flight", NUMBER, U32),
    TsharkField("tcp.analysis.window_full", "window_full", FLAG),
    TsharkField("tcp.analysis.zero_window", "zero_window", FLAG),
    TsharkField("tcp.analysis.window_update", "window_update", FLAG),
    TsharkField("tcp.analysis.keep_alive", "keep_alive", FLAG),
    TsharkField("tcp.analysis.ack_lost_segment", "acks_unseen", FLAG),
    TsharkField("tcp.analysis.rto", "rto_ns", SECONDS),
)


def columns(kind: int) -> tuple[str, ...]:
    """Return the columns that fields of a kind fill; their places are the rows of its array."""
    return tuple(dict.fromkeys(field.column for field in FIELDS if field.kind == kind))


# Per field: kind, place among the columns of that kind, largest number.
PLAN = np.array([[f.kind, columns(f.kind).index(f.column), f.most] for f in FIELDS], dtype=np.int64)
