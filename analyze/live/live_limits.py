"""What limits sending right now, by the rules of the view `binding`, from one event to the next."""

from __future__ import annotations

from collections.abc import Mapping

from ..views.phase_names import phase_name

UNSET = (1 << 32) - 1
U31, U32 = 1 << 31, 1 << 32
CA_RECOVERY, CA_LOSS = 3, 4
LEAST_CWND = 4
HEADROOM = 38  # inflight_headroom's default, of 256

Values = Mapping[str, int]


def phase_of(version: str, values: Values) -> str:
    """The phase; "" where not recorded."""
    if "bbr_mode" not in values:
        return ""
    names = ("bbr_mode", "bbr_cycle_idx", "bbr_lt_use_bw", "bbr_pacing_gain")
    return phase_name(version, *(values.get(name, 0) for name in names)) or ""


def in_flight(values: Values) -> int:
    """Packets in flight: tcp_packets_in_flight()."""
    names = ("tp_packets_out", "tp_sacked_out", "tp_lost_out", "tp_retrans_out")
    out, sacked, lost, again = (values.get(name, 0) for name in names)
    return max(out - sacked - lost + again, 0)


def max_bw(values: Values) -> int:
    """The maximum that BBR's bandwidth filter holds [packets/us << 24]."""
    pair = values.get("bbr_bw_hi_0", 0), values.get("bbr_bw_hi_1", 0)
    return max(pair) or values.get("bbr_bw_s_0_v", 0)


def bandwidth(values: Values) -> int:
    """The bandwidth that BBR works with [packets/us << 24]: bbr_bw() of each version."""
    if values.get("bbr_lt_use_bw"):
        return values.get("bbr_lt_bw", 0)
    return min(max_bw(values), values.get("bbr_bw_lo", UNSET))


def limit_of(version: str, before: Values, now: Values, now_ns: int) -> str:
    """What limited sending between two events of a flow: one word of the view binding.

    Args:
        before: the earlier event's values, its exit among them.
        now: those of the event that ended the interval, whose entry shows what kept the sender.
        now_ns: when that was [ns, CLOCK_MONOTONIC], for rungs that do not show TCP's clock.
    """
    cwnd = before.get("exit_snd_cwnd", now.get("tp_snd_cwnd", 0))
    flying = now.get("rs_prior_in_flight", in_flight(now))
    phase = phase_of(version, now)
    if flying >= cwnd:
        return _window(version, phase, cwnd, now)
    # main() comes after its ACK has moved the window, a sample before.
    seen = before if "rs_prior_in_flight" in now else now
    left = seen.get("tp_snd_una", 0) + seen.get("tp_snd_wnd", 0) - now.get("tp_snd_nxt", 0)
    room = (left + U31) % U32 - U31  # a window that shrank is overrun
    if "tp_snd_wnd" in seen and _is_window_short(version, room, cwnd - flying, cwnd, seen, now):
        return "receive_window"
    waits = now.get("tp_lost_out", 0) > now.get("tp_retrans_out", 0)
    if not waits and _application(phase, before, now):
        return "application"
    if now.get("tp_tcp_wstamp_ns", 0) > now.get("tp_tcp_clock_cache", now_ns):
        return _pacing(now)
    if flying <= 0 and not waits:
        return "application"
    # Events of v1 do not have the mark; there nothing else of tcp_write_xmit() is left.
    is_limited = now.get("tp_is_cwnd_limited", version == "v1" and "rs_prior_in_flight" in now)
    if is_limited and cwnd - flying < _burst(version, now):
        return _window(version, phase, cwnd, now)
    return "unknown"


def _is_window_short(
    version: str, room: int, free: int, cwnd: int, seen: Values, now: Values
) -> bool:
    """Is less of the receiver's window left than tcp_snd_wnd_test() or tcp_tso_should_defer() ask?

    Args:
        room: bytes left of it.
        free: packets that snd_cwnd leaves.
        cwnd: snd_cwnd.
        seen: values that show the window.
        now: those of the event that ended the interval.
    """
    mss = seen.get("tp_mss_cache", 0)
    third = min(seen.get("tp_snd_wnd", 0), cwnd * mss) // 3
    return room < mss or (room <= free * mss and room < min(_burst(version, now) * mss, third))


def _application(phase: str, before: Values, now: Values) -> bool:
    """TCP's mark covers what was sent, or was made since; in PROBE_RTT BBR makes it itself."""
    mark = now.get("tp_app_limited", 0)
    old = before.get("exit_app_limited", before.get("tp_app_limited", 0))
    sent = (now.get("tp_delivered", 0) + in_flight(now)) % U32
    if not mark or (phase == "PROBE_RTT" and mark == old):
        return False
    return mark != old or mark == sent


def _pacing(now: Values) -> str:
    rate = now.get("sk_pacing_rate")
    if rate is not None and rate == now.get("sk_max_pacing_rate"):
        return "max_pacing_rate"
    if now.get("bbr_lt_use_bw"):
        return "policer"
    return "pacing_bw_lo" if now.get("bbr_bw_lo", UNSET) < max_bw(now) else "pacing_max_bw"


def _window(version: str, phase: str, cwnd: int, now: Values) -> str:
    """Which bound made the window that is full."""
    if phase == "PROBE_RTT":
        return "probe_rtt"
    if version == "v1" and now.get("bbr_packet_conservation"):
        return "recovery"
    high, low = bounds_of(phase, now)
    if low != UNSET and low < high and cwnd == max(low, LEAST_CWND):
        return "inflight_lo"
    if high != UNSET and cwnd == max(high, LEAST_CWND):
        return "inflight_hi_headroom" if phase == "PROBE_BW_CRUISE" else "inflight_hi"
    state = now.get("icsk_ca_state", 0)
    cut = state == CA_LOSS or (version == "v1" and state == CA_RECOVERY)
    if cut and cwnd < now.get("bbr_prior_cwnd", 0):
        return "recovery"
    return "cwnd_target"


def bounds_of(phase: str, values: Values) -> tuple[int, int]:
    """The upper bound on inflight as it is applied in this phase, and the lower one; ~0U: none."""
    high, low = values.get("bbr_inflight_hi", UNSET), values.get("bbr_inflight_lo", UNSET)
    if not phase.startswith("PROBE_BW") or high == UNSET:
        return UNSET, low
    if phase == "PROBE_BW_CRUISE":
        share = values.get("params_inflight_headroom", HEADROOM)
        return high - max(high * share >> 8, 1), low
    return high, low


def _burst(version: str, now: Values) -> int:
    """Packets of a TSO burst that the kernel would not split."""
    size = now.get("sk_pacing_rate", 0) >> now.get("sk_pacing_shift", 10)
    shift = now.get("bbr_min_rtt_us", UNSET) >> 9
    if version != "v1" and shift < 32:
        size += min(now.get("sk_gso_max_size", 65536), 65536) >> shift
    return max(size // max(now.get("tp_mss_cache", 1), 1), 2)
