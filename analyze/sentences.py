"""A decision in words: its template filled with the evidence, in units that people read."""

from __future__ import annotations

from collections.abc import Sequence

from . import names as naming
from .bbr.codes import CODES, Code
from .bbr.ints import U32_MAX
from .bbr.records import CA_STATES

# Evidence by unit; what is not listed is a count.
_BANDWIDTHS = frozenset(
    "bw bw_hi_0 bw_hi_1 bw_latest bw_lo bw_thresh full_bw lt_bw max_bw new_bw new_lt_bw"
    " old_bw".split()
)
_RATES = frozenset("rate old_rate new_rate pacing_rate".split())
_GAINS = frozenset(["gain"])
_STAMPS = frozenset("probe_rtt_done_stamp pause_until".split())
_FLAGS = frozenset("loss_in_round ecn_in_round".split())
_STATES = frozenset("old_state new_state".split())
# Volumes and times for which ~0U means that there is none.
_CAN_BE_UNSET = frozenset(
    "old new inflight_hi inflight_lo undo_inflight_hi headroom probe_rtt_cwnd min_rtt_us"
    " old_us new_us probe_rtt_min_us bw_lo old_bw new_bw bw_latest".split()
)
UNSET = "unset"
_U32 = 1 << 32


def mbps(bw: int, mss: int) -> str:
    """Bandwidth in the kernel's packets/us << 24 as Mbit/s of payload.

    >>> mbps(167772, 1448)
    '116 Mbit/s'
    """
    return megabits(bw * mss * 8 / (1 << 24))


def megabits(value: float) -> str:
    """Mbit/s with three significant digits."""
    digits = 0 if value >= 99.95 or not value else 1 if value >= 9.995 else 2
    return f"{value:,.{digits}f} Mbit/s"


def rate(bytes_per_second: int) -> str:
    """A pacing rate as Mbit/s; all ones (also as the stored -1) is none.

    >>> rate(12_500_000), rate(-1)
    ('100 Mbit/s', 'unlimited')
    """
    if bytes_per_second in (-1, (1 << 64) - 1):
        return "unlimited"
    return megabits(bytes_per_second * 8 / 1e6)


def milliseconds(us: int) -> str:
    """Microseconds as ms.

    >>> milliseconds(40041), milliseconds(2_345_678), milliseconds(38)
    ('40.04 ms', '2,346 ms', '0.038 ms')
    """
    value = us / 1000
    digits = 0 if value >= 1000 else 1 if value >= 100 else 2 if value >= 10 else 3
    return f"{value:,.{digits}f} ms"


def gain(value: int) -> str:
    """A gain in 1/256.

    >>> gain(320), gain(739), gain(256)
    ('1.25', '2.89', '1.0')
    """
    text = f"{value / 256:.2f}".rstrip("0")
    return text + "0" if text.endswith(".") else text


def stamp(jiffies: int, now: int | None, hz: int | None) -> str:
    """A time in jiffies; where the present and HZ are known, how far away it is.

    >>> stamp(4294668000, 4294667800, 1000), stamp(7, None, None)
    ('4294668000 (in 0.200 s)', '7')
    """
    if now is None or not hz or not jiffies:
        return str(jiffies)
    left = (jiffies - now + _U32 // 2) % _U32 - _U32 // 2
    when = f"in {left / hz:.3f} s" if left >= 0 else f"{-left / hz:.3f} s ago"
    return f"{jiffies} ({when})"


def value(
    name: str, number: int, mss: int, hz: int | None = None, jiffies: int | None = None
) -> str:
    """One number of evidence, by its name, with its unit."""
    if number == U32_MAX and name in _CAN_BE_UNSET:
        return UNSET
    if name in _BANDWIDTHS:
        return mbps(number, mss)
    if name in _RATES:
        return rate(number)
    if name.endswith("_us"):
        return milliseconds(number)
    if name in _GAINS:
        return gain(number)
    if name in _STAMPS:
        return stamp(number, jiffies, hz)
    if name in _FLAGS:
        return "yes" if number else "no"
    if name in _STATES and 0 <= number < len(CA_STATES):
        return CA_STATES[number]
    return str(number)


def sentence(
    code_number: int,
    evidence: Sequence[int],
    mss: int,
    names: str = naming.KERNEL,
    hz: int | None = None,
    jiffies: int | None = None,
) -> str:
    """The decision as a sentence.

    Args:
        code_number: key of analyze.bbr.codes.CODES.
        evidence: its numbers, in the order of `Code.evidence`; more of them are ignored.
        mss: tp.mss_cache [bytes], to turn packets/us into Mbit/s.
        names: "kernel" or "draft".
        hz: jiffies per second, and
        jiffies: low 32 bits of jiffies at the event, to say how far away a time is.
    """
    code = CODES[code_number]
    return naming.translate(fill(code, evidence, mss, hz, jiffies), names)


def fill(
    code: Code, evidence: Sequence[int], mss: int, hz: int | None = None, jiffies: int | None = None
) -> str:
    """Fill the template of `code`; see `sentence`."""
    numbers = dict(zip(code.evidence, evidence, strict=False))
    if jiffies is None:
        jiffies = numbers.get("jiffies")
    words = {name: value(name, number, mss, hz, jiffies) for name, number in numbers.items()}
    return code.sentence.format(**words)


def evidence_of(code: Code, evidence: Sequence[int]) -> dict[str, int]:
    """Evidence by name, in the kernel's units."""
    return dict(zip(code.evidence, map(int, evidence), strict=False))
