"""Which fields tshark is asked for, and what becomes of each: data for `packets_text.decode`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# What a field is: a number (of several values the last: an option given twice, two IP headers),
# seconds as ns (the last), numbers (all of them), text (the last), whether it is there at all, and
# a mark of frames that hold no segment of their own, but quote one.
NUMBER, SECONDS, NUMBERS, TEXT, FLAG, QUOTE = range(6)

U8, U16, U32 = 0xFF, 0xFFFF, 0xFFFFFFFF


@dataclass(frozen=True)
class Field:
    """A field by tshark's name, and the column it fills; numbers beyond `most` become NULL.

    Of several fields of one column the last one that is there counts.
    """

    name: str
    column: str
    kind: int
    most: int = 0


FIELDS = (
    Field("frame.time_epoch", "realtime_ns", SECONDS),
    Field("frame.len", "frame_len", NUMBER, U32),
    Field("frame.cap_len", "captured_len", NUMBER, U32),
    Field("ip.src", "src", TEXT),
    Field("ip.dst", "dst", TEXT),
    Field("ip.id", "ip_id", NUMBER, U16),
    Field("ip.dsfield", "dsfield", NUMBER, U8),
    Field("ipv6.src", "src", TEXT),
    Field("ipv6.dst", "dst", TEXT),
    Field("ipv6.tclass", "dsfield", NUMBER, U8),
    Field("icmp.type", "", QUOTE),
    Field("icmpv6.type", "", QUOTE),
    Field("tcp.stream", "stream", NUMBER, U32),
    Field("tcp.srcport", "sport", NUMBER, U16),
    Field("tcp.dstport", "dport", NUMBER, U16),
    Field("tcp.seq", "seq", NUMBER, U32),
    Field("tcp.seq_raw", "seq_raw", NUMBER, U32),
    Field("tcp.ack", "ack", NUMBER, U32),
    Field("tcp.ack_raw", "ack_raw", NUMBER, U32),
    Field("tcp.len", "len", NUMBER, U32),
    Field("tcp.flags", "flags", NUMBER, U16),
    Field("tcp.window_size_value", "window_raw", NUMBER, U16),
    Field("tcp.window_size", "window", NUMBER, U32),
    Field("tcp.options.sack_le", "sack_left", NUMBERS),
    Field("tcp.options.sack_re", "sack_right", NUMBERS),
    Field("tcp.options.sack.dsack_le", "dsack_left", NUMBER, U32),
    Field("tcp.options.sack.dsack_re", "dsack_right", NUMBER, U32),
    Field("tcp.options.sack_perm", "sack_permitted", FLAG),
    Field("tcp.options.acc_ecn.ee0b", "acc_ecn_e0b", NUMBER, U32),
    Field("tcp.options.acc_ecn.eceb", "acc_ecn_ceb", NUMBER, U32),
    Field("tcp.options.acc_ecn.ee1b", "acc_ecn_e1b", NUMBER, U32),
    Field("tcp.options.timestamp.tsval", "tsval", NUMBER, U32),
    Field("tcp.options.timestamp.tsecr", "tsecr", NUMBER, U32),
    Field("tcp.options.mss_val", "mss_option", NUMBER, U16),
    Field("tcp.options.wscale.shift", "wscale_option", NUMBER, U8),
    Field("tcp.analysis.retransmission", "retransmission", FLAG),
    Field("tcp.analysis.fast_retransmission", "fast_retransmission", FLAG),
    Field("tcp.analysis.spurious_retransmission", "spurious_retransmission", FLAG),
    Field("tcp.analysis.out_of_order", "out_of_order", FLAG),
    Field("tcp.analysis.lost_segment", "previous_missing", FLAG),
    Field("tcp.analysis.duplicate_ack_num", "dup_ack", NUMBER, U32),
    Field("tcp.analysis.acks_frame", "acks_packet", NUMBER, U32),
    Field("tcp.analysis.ack_rtt", "ack_rtt_ns", SECONDS),
    Field("tcp.analysis.bytes_in_flight", "bytes_in_flight", NUMBER, U32),
    Field("tcp.analysis.window_full", "window_full", FLAG),
    Field("tcp.analysis.zero_window", "zero_window", FLAG),
    Field("tcp.analysis.window_update", "window_update", FLAG),
    Field("tcp.analysis.keep_alive", "keep_alive", FLAG),
    Field("tcp.analysis.ack_lost_segment", "acks_unseen", FLAG),
    Field("tcp.analysis.rto", "rto_ns", SECONDS),
)


def columns(kind: int) -> tuple[str, ...]:
    """Return the columns that fields of a kind fill; their places are the rows of its array."""
    return tuple(dict.fromkeys(field.column for field in FIELDS if field.kind == kind))


# Per field: kind, place among the columns of that kind, largest number.
PLAN = np.array([[f.kind, columns(f.kind).index(f.column), f.most] for f in FIELDS], dtype=np.int64)
