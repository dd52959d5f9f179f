"""A column's name as the heading of a table: words, and the unit that its end names."""

from __future__ import annotations

# The ends of columns' names that are units.
UNITS = {
    "s": "s",
    "ms": "ms",
    "us": "us",
    "ns": "ns",
    "mbps": "Mbit/s",
    "bps": "bit/s",
    "bytes": "bytes",
    "packets": "packets",
    "percent": "%",
    "bdp": "BDP",
}
# Words of names that text spells otherwise.
_SPELLED = {
    "rtt": "RTT",
    "srtt": "SRTT",
    "ce": "CE",
    "pkt": "packet",
    "rwnd": "receive window",
    "jain": "Jain",
}


def words_and_unit(column: str) -> tuple[str, str]:
    """Return a column's name in words, and its unit; "" where its name ends in none.

    >>> words_and_unit("goodput_mbps"), words_and_unit("flow_no"), words_and_unit("s")
    (('goodput', 'Mbit/s'), ('flow no', ''), ('s', ''))
    """
    name, _, end = column.rpartition("_")
    has_unit = bool(name) and end in UNITS
    words = (name if has_unit else column).split("_")
    return " ".join(_SPELLED.get(word, word) for word in words), UNITS[end] if has_unit else ""


def heading(column: str) -> str:
    """Return the heading of a column whose cells are bare numbers.

    >>> heading("goodput_mbps"), heading("rtt_mean_ms"), heading("jain"), heading("cost_s")
    ('goodput, Mbit/s', 'RTT mean, ms', 'Jain', 'cost, s')
    """
    words, unit = words_and_unit(column)
    return f"{words}, {unit}" if unit else words
