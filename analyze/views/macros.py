"""The kernel's arithmetic as DuckDB macros: every view, rule, chart and query writes it so.

They are stored in the file beside the views, so that a query of one's own has them as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from .phase_names import mode_sql, phase_sql


@dataclass(frozen=True)
class Macro:
    """A documented function of SQL; `sql` is an expression over its `parameters`."""

    name: str
    parameters: tuple[str, ...]
    unit: str
    meaning: str
    sql: str

    def ddl(self, temporary: bool = False) -> str:
        """Return the ``CREATE MACRO`` statement; a temporary macro leaves the file as it is."""
        kind = "TEMPORARY MACRO" if temporary else "MACRO"
        return f'CREATE OR REPLACE {kind} "{self.name}"({", ".join(self.parameters)}) AS {self.sql}'


_TWO_TO_32 = 1 << 32
_TWO_TO_31 = 1 << 31
# bbr.bw and its filters are packets/us << BW_SCALE (tcp_bbr.c).
_BW_UNIT = 1 << 24
# What a segment has on top of tp.mss_cache: Ethernet 14, IPv4 20 or IPv6 40, TCP 20, timestamps 12.
OVERHEAD, OVERHEAD_IPV6 = 66, 86

MACROS = (
    Macro(
        "unset",
        (),
        "",
        "~0U: what the kernel's inflight_hi, inflight_lo, bw_lo and min_rtt_us hold while unset",
        f"{_TWO_TO_32 - 1}::UINTEGER",
    ),
    Macro("if_set", ("value",), "", "the value; NULL: unset", "nullif(value::BIGINT, unset())"),
    Macro(
        "increase32",
        ("later", "earlier"),
        "",
        "by how much a 32-bit counter grew, beyond 2^32 as well",
        f"((later::BIGINT - earlier + {_TWO_TO_32}) % {_TWO_TO_32})",
    ),
    Macro(
        "growth32",
        ("later", "earlier"),
        "",
        "the same, and 0 where the counter fell back",
        f"CASE WHEN increase32(later, earlier) < {_TWO_TO_31}"
        " THEN increase32(later, earlier) ELSE 0 END",
    ),
    Macro(
        "distance32",
        ("later", "earlier"),
        "",
        "from one sequence number to another within 2^31 in either direction (RFC 9293, 3.4)",
        f"((later::BIGINT - earlier + {_TWO_TO_32 + _TWO_TO_31}) % {_TWO_TO_32} - {_TWO_TO_31})",
    ),
    Macro(
        "packets_in_flight",
        ("packets_out", "sacked_out", "lost_out", "retrans_out"),
        "packets",
        "include/net/tcp.h tcp_packets_in_flight()",
        "greatest(packets_out::BIGINT - sacked_out - lost_out + retrans_out, 0)",
    ),
    Macro(
        "rtt_given",
        ("later", "earlier"),
        "us",
        "the round trip that made tp.srtt_us (kept in eighths) what it is later, "
        "net/ipv4/tcp_input.c tcp_rtt_estimator(); NULL: none did, or one as long as it",
        "CASE WHEN later = earlier THEN NULL WHEN earlier = 0 THEN later >> 3"
        " ELSE later::BIGINT - earlier + (earlier >> 3) END::BIGINT",
    ),
    Macro(
        "max_bw",
        ("bw_hi_0", "bw_hi_1", "bw_s_0_v"),
        "packets/us << 24",
        "BBR's bandwidth filter: v2's and v3's pair bbr.bw_hi[], or v1's windowed maximum bbr.bw",
        "coalesce(greatest(bw_hi_0, bw_hi_1), bw_s_0_v)",
    ),
    Macro(
        "bw_of_sample",
        ("delivered", "interval_us"),
        "packets/us << 24",
        "bandwidth of a rate sample as bbr_update_bw() finds it; NULL: no sample",
        f"CASE WHEN delivered > 0 AND interval_us > 0"
        f" THEN ((delivered::HUGEINT * {_BW_UNIT}) // interval_us)::BIGINT END",
    ),
    Macro(
        "bw_to_bytes",
        ("bw", "mss"),
        "bytes/s",
        "payload per second of a bandwidth in the kernel's unit",
        f"(bw::DOUBLE * mss * 1e6 / {_BW_UNIT})",
    ),
    Macro(
        "bw_to_mbps",
        ("bw", "mss"),
        "Mbit/s",
        "payload of a bandwidth in the kernel's unit",
        f"(bw::DOUBLE * mss * 8 / {_BW_UNIT})",
    ),
    Macro(
        "bw_to_packets",
        ("bw", "rtt_us"),
        "packets",
        "bandwidth-delay product of a bandwidth in the kernel's unit, not rounded",
        f"(bw::DOUBLE * rtt_us / {_BW_UNIT})",
    ),
    Macro(
        "frame_bytes",
        ("mss", "address"),
        "bytes",
        "a full segment to that address on Ethernet: with headers of IPv4 (also where the address "
        "is not known) or IPv6, TCP, and timestamps",
        f"(mss + CASE WHEN contains(address, ':') THEN {OVERHEAD_IPV6} ELSE {OVERHEAD} END)",
    ),
    Macro(
        "bdp_packets",
        ("bits_per_s", "rtt_us", "frame"),
        "packets",
        "full segments, of this many bytes with all headers (frame_bytes), that a link of this "
        "rate and round-trip time holds",
        "(bits_per_s * rtt_us / 8e6 / frame)",
    ),
    Macro(
        "mode_name",
        ("mode",),
        "",
        "bbr.mode by name",
        mode_sql(),
    ),
    Macro(
        "phase_name",
        ("version", "mode", "cycle_idx", "lt_use_bw", "pacing_gain"),
        "",
        "bbr.mode and bbr.cycle_idx by name, see view phases",
        phase_sql(),
    ),
    Macro(
        "at_greatest",
        ("value", "amount", "ns"),
        "",
        "aggregate: the value at the first instant at which the amount is greatest; arg_max() "
        "takes any of equal ones, and another one each time",
        "arg_max(value, CASE WHEN amount IS NOT NULL THEN (amount, -(ns::BIGINT)) END)",
    ),
    Macro(
        "at_smallest",
        ("value", "amount", "ns"),
        "",
        "aggregate: the value at the first instant (or of the first flow) at which the amount is "
        "smallest",
        "arg_min(value, CASE WHEN amount IS NOT NULL THEN (amount, ns::BIGINT) END)",
    ),
)
