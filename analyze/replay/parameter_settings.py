"""Other values for BBR's parameters, as a user writes them: ``loss_thresh=5%``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...probes.base.errors import BbrscopeError
from ...probes.fields import FIELDS
from ..bbr import params
from ..bbr.kernel_units import BBR_UNIT

# Parameters in 1/256, which may be given in percent.
_FRACTIONS = frozenset(
    name for name, parameter in params.PARAMETERS.items() if parameter.unit == "1/256"
)
_PACING_GAIN = re.compile(r"pacing_gain[.\[](\d)\]?$")
_LARGEST = (1 << 31) - 1
_LARGEST_GAIN = 2047  # the widest bitfield that holds a gain
_SMALLEST = {"HZ": 1, "max_tcp_header": 0}


def parse_settings(
    texts: Sequence[str], version: str, *, readers: Sequence[str] | None = None
) -> dict[str, int]:
    """Read `name=value` pairs; return the values by parameter, in kernel units.

    A value is in kernel units, or in percent where the kernel has 1/256.

    Args:
        version: whose names of parameters these are.
        readers: the versions and variants that are to run, None: this version. A variant may read
            what its version does not.

    Raises:
        BbrscopeError: not such a pair, unknown name, a value that the kernel's field could not
            hold, or a parameter that no reader reads.
    """
    values: dict[str, int] = {}
    aliases: dict[str, tuple[str, ...]] = params.ALIASES.get(version, {})
    running = [version] if readers is None else readers
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise BbrscopeError(f"--set {text}: no '='", "write --set loss_thresh=13 or =5%")
        for target in aliases.get(name, (name,)):
            values[target] = _value(target, value, running)
            _check_read(target, running)
    return values


def _check_read(name: str, readers: Sequence[str]) -> None:
    """Refuse a parameter that changes nothing."""
    if any(name not in params.UNREAD.get(one.partition("-patched")[0], ()) for one in readers):
        return
    reading = [one for one, unread in params.UNREAD.items() if name not in unread]
    raise BbrscopeError(
        f"{name}: nothing in {' or '.join(dict.fromkeys(readers))} reads it, so that it would"
        " change nothing",
        f"it is a parameter of {' and '.join(reading)}: run these, or set another",
    )


def can_be(name: str, number: int) -> bool:
    """Tell whether there is such a parameter, and the kernel could hold the number."""
    if _PACING_GAIN.match(name):
        return 0 <= number <= _LARGEST_GAIN
    return name in (params.PARAMS.names or ()) and _SMALLEST.get(name, 0) <= number <= _LARGEST


def as_settings(values: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, int]:
    """What differs from the usual parameters, as `apply_settings` takes it: a number each."""
    changed = {name: value for name, value in values.items() if usual.get(name, 0) != value}
    gains = changed.pop("pacing_gain", [])
    return changed | {f"pacing_gain.{i}": gain for i, gain in enumerate(gains)}


def _value(name: str, text: str, readers: Sequence[str]) -> int:
    """The value of one setting in kernel units, checked."""
    known = set(params.PARAMS.names or ()) - {"pacing_gain"}
    is_gain = _PACING_GAIN.match(name) is not None
    if name not in known and not is_gain:
        raise BbrscopeError(f"{name}: no such parameter", f"there are {', '.join(sorted(known))}")
    is_fraction = is_gain or name in _FRACTIONS
    if text.endswith("%") and not is_fraction:
        raise BbrscopeError(f"{name}={text}: not a fraction", "give a whole number")
    number = _number(name, text)
    smallest, largest = _SMALLEST.get(name, 0), _LARGEST_GAIN if is_fraction else _LARGEST
    # A version that keeps its parameters in struct bbr has so many bits for each.
    field = FIELDS.get(f"params.{name}")
    if field and any(one.partition("-patched")[0] in field.versions for one in readers):
        largest = min(largest, field.maximum)
    if not smallest <= number <= largest:
        raise BbrscopeError(f"{name}={text}: out of range", f"between {smallest} and {largest}")
    return number


def _number(name: str, text: str) -> int:
    """A whole number, or percent in units of 1/256."""
    try:
        return round(float(text[:-1]) * BBR_UNIT / 100) if text.endswith("%") else int(text)
    except (ValueError, OverflowError):  # the second of 1e999%
        raise BbrscopeError(
            f"{name}={text}: not a number", "give a whole number in kernel units, or 5%"
        ) from None


def apply_settings(values: Mapping[str, Any], settings: Mapping[str, int]) -> dict[str, Any]:
    """The parameters with the settings in their place; pacing_gain.3 is one of eight."""
    result = dict(values)
    gains = list(result.get("pacing_gain", [0] * 8))
    for name, value in settings.items():
        match = _PACING_GAIN.match(name)
        if match:
            gains[int(match[1])] = value
        else:
            result[name] = value
    result["pacing_gain"] = gains
    return result
