"""Rows whose columns hold several fields each, as plain ones: nothing here imports the product."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

# What the kernel declares with a sign; the rest of what is packed has none.
SIGNED = {"rs.delivered", "rs.delivered_ce", "rs.losses", "rs.lost"}


def unpacked(lines: Iterable[str]) -> Iterator[str]:
    """The lines of an event stream as if no column held several fields."""
    heads: dict[str, list[str]] = {}
    for line in lines:
        tag, *values = line.split(",")
        if tag.startswith("#"):
            heads[tag[1:]] = values
            names = [part.split(":")[0] for value in values for part in value.split("+")]
            yield ",".join([tag, *filter(None, names)])
        elif tag in heads:
            named = zip(heads[tag], values, strict=True)
            yield ",".join([tag, *(one for name, value in named for one in apart(name, value))])
        else:
            yield line


def apart(column: str, value: str) -> list[str]:
    """The fields of one value: of a packed one from its last bits on."""
    if ":" not in column:
        return [value]
    bits = f"{int(value, 16):064b}"
    fields = []
    for part in column.split("+"):
        name, width = part.split(":")
        bits, own = bits[: -int(width)], bits[-int(width) :]
        sign = 1 << int(width) if name in SIGNED and own[0] == "1" else 0
        fields += [str(int(own, 2) - sign)] if name else []
    return fields
