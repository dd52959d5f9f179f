"""A decision in words: its template filled with the evidence, in units that people read."""

from __future__ import annotations

from collections.abc import Sequence

from ...probes.base.plurals import worded
from ..bbr.codes import CODES, Code, Unit
from ..bbr.kernel_units import U32_MAX
from ..bbr.records import CA_STATES
from . import names as naming

# Units whose ~0U means that there is none.
_CAN_BE_UNSET = frozenset([Unit.VOLUME, Unit.BW_OR_UNSET, Unit.TIME_OR_UNSET])
# What struct bbr held before init, no row has: the replay has -1 for it.
_NEVER_NEGATIVE = _CAN_BE_UNSET | {Unit.BW, Unit.PACKETS, Unit.TIME}
# The evidence that is a window restored, which need not be the one at the callback's exit.
RESTORED = "new_cwnd"
UNSET = "unset"
# The kernel counts a round's in four bits, and goes no further.
MOST_LOSS_EVENTS = 0xF
_U32 = 1 << 32


def mbps(bw: int, mss: int | None) -> str:
    """Bandwidth in the kernel's packets/us << 24 as Mbit/s of payload; None: no MSS was recorded.

    >>> mbps(167772, 1448), mbps(167772, None)
    ('116 Mbit/s', '10,000 packets/s')
    """
    if mss is None:
        return f"{bw * 1e6 / (1 << 24):,.0f} packets/s"
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
    unit: Unit, number: int, mss: int | None, hz: int | None = None, jiffies: int | None = None
) -> str:
    """One number of evidence as people read its unit; counts stay plain.

    >>> value(Unit.VOLUME, 4294967295, 1448), value(Unit.BW, 167772, 1448), value(Unit.FLAG, 1, 0)
    ('unset', '116 Mbit/s', 'yes')
    >>> value(Unit.BW, -1, 1448), value(Unit.LOSS_EVENTS, 15, 1448)
    ('not recorded', '15 or more')
    """
    if number == U32_MAX and unit in _CAN_BE_UNSET:
        return UNSET
    if number == -1 and unit in _NEVER_NEGATIVE:
        return "not recorded"
    match unit:
        case Unit.BW | Unit.BW_OR_UNSET:
            return mbps(number, mss)
        case Unit.RATE:
            return rate(number)
        case Unit.TIME | Unit.TIME_OR_UNSET:
            return milliseconds(number)
        case Unit.GAIN:
            return gain(number)
        case Unit.STAMP:
            return stamp(number, jiffies, hz)
        case Unit.LOSS_EVENTS if number == MOST_LOSS_EVENTS:
            return f"{number} or more"
        case Unit.FLAG:
            return "yes" if number else "no"
        case Unit.CA_STATE if 0 <= number < len(CA_STATES):
            return CA_STATES[number]
        case _:
            return str(number)


def bound_unit(about: str) -> Unit:
    """The unit of what a decision is about, where that is a bound: a bandwidth or a volume."""
    return Unit.BW_OR_UNSET if about == "bw_lo" else Unit.VOLUME


def sentence(
    code_number: int,
    evidence: Sequence[int],
    mss: int | None,
    names: str = naming.KERNEL,
    hz: int | None = None,
    jiffies: int | None = None,
    left_cwnd: int | None = None,
) -> str:
    """The decision as a sentence.

    Args:
        code_number: key of analyze.bbr.codes.CODES.
        evidence: its numbers, in the order of `Code.evidence`; more of them are ignored.
        mss: tp.mss_cache [bytes], to turn packets/us into Mbit/s; None: not recorded.
        names: "kernel" or "draft".
        hz: jiffies per second; with `jiffies`, to say how far away a time is.
        jiffies: low 32 bits of jiffies at the event; None: as in the evidence, if it has them.
        left_cwnd: snd_cwnd at the callback's exit [packets]; None: not recorded.
    """
    code = CODES[code_number]
    return naming.translate(fill(code, evidence, mss, hz, jiffies, left_cwnd), names)


def fill(
    code: Code,
    evidence: Sequence[int],
    mss: int | None,
    hz: int | None = None,
    jiffies: int | None = None,
    left_cwnd: int | None = None,
) -> str:
    """Fill the template of `code`; see `sentence`."""
    numbers = dict(zip(code.evidence, evidence, strict=False))
    if jiffies is None:
        jiffies = numbers.get("jiffies")
    words = {
        name: value(code.units[name], number, mss, hz, jiffies) for name, number in numbers.items()
    }
    text = worded(code.sentence, **words)
    # In the same bbr_main(), bbr_set_cwnd() comes later, and bounds what the model restored.
    if left_cwnd is not None and left_cwnd < numbers.get(RESTORED, 0):
        text += f" The bounds of cwnd leave {left_cwnd} of it in the same ACK."
    return text


def evidence_of(code: Code, evidence: Sequence[int]) -> dict[str, int]:
    """Evidence by name, in the kernel's units."""
    return dict(zip(code.evidence, map(int, evidence), strict=False))
