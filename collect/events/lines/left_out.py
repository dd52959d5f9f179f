"""Columns that the probes of a version record and a recording does not have: what they would say.

Some no kernel of the version need have; all others were left out, and what needs them is not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache

from ....probes.fields import FIELDS, ROWS, Field
from ...bundle.quality import QualityNote, note_of
from .header import IDENTITY, MOST_KNOWN, Header

# Not every kernel has these (struct bbr without PLB, tcp_sock before tail loss probes told it), or
# they tell more of a flow than who it is.
_NOT_EVERYWHERE = (
    *("bbr.plb.", "tp.tlp_orig_data_app_limited", "tp.rtt_min", "bbr.debug."),
    *("sk.cookie", "daddr6"),
)
# Who a flow is, in one of the rows that tell it; see BUNDLE.md.
ENDS = ("sport", "dport", "daddr")
# By the beginning of names: what cannot be told without them.
_UNTOLD = {
    "skb.": "which packets were lost or sent again, when, and what was in flight when they left",
    "rs.": "what ACKs told BBR, and what it decided on them",
    "tp.": "what TCP counted, and what BBR decided on it",
    "sk.": "how fast the socket was paced and allowed to be, and what BBR decided on it",
    "bbr.": "BBR's own state, and whether the replay agrees with it there",
    "icsk_ca_state": "when TCP was in recovery, and what BBR decided on it",
    "jiffies32": "when BBR's own clocks ran out, and what it decided on them",
    "new_state": "which state TCP entered",
    "event": "which event TCP reported",
    **dict.fromkeys(ENDS, "who the flows are, and which packets of a capture are theirs"),
}
LEFT_OUT = "columns_left_out"
# A note names so many columns, and counts the others.
_MOST = 6


def columns_left_out(header: Header, version: str | None) -> Iterator[QualityNote]:
    """Yield a note on the columns of each kind that rows of a recording do not have.

    `version` is how the recording is decoded; None: it has no BBR of which something is known.
    """
    for untold, where, shown in _left_out(header, version):
        yield note_of(LEFT_OUT, tags=where, names=shown, untold=untold)


@lru_cache(MOST_KNOWN)
def _left_out(header: Header, version: str | None) -> tuple[tuple[str, str, str], ...]:
    """Return what cannot be told, of rows with which tags, and without which columns."""
    had = _recorded(header)
    wanting: dict[tuple[str, str], list[str]] = defaultdict(list)
    for field in FIELDS.values():
        if version not in field.versions or field.name.startswith(_NOT_EVERYWHERE):
            continue
        untold = next((text for begin, text in _UNTOLD.items() if field.name.startswith(begin)), "")
        tags = [tag for tag in _tags_of(field) if tag in had and field.name not in had[tag]]
        if field.name in ENDS and any(
            {field.name, f"{field.name}6"} & had.get(tag, set()) for tag in _tags_of(field)
        ):
            continue
        if untold and tags:
            wanting[untold, ", ".join(tags)].append(field.name)
    return tuple((untold, where, _shown(names)) for (untold, where), names in wanting.items())


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return f"{', '.join(names[:_MOST])}{more}"


def _tags_of(field: Field) -> list[str]:
    """The letters of the rows that have a field, each once; samples have what their rung sees."""
    return [*dict.fromkeys(tag for rows in field.recorded for tag in ROWS[rows] if tag != "T")]


def _recorded(header: Header) -> dict[str, set[str]]:
    """The columns of the declared rows by the letters of their tags, whatever part they are in."""
    had: dict[str, set[str]] = defaultdict(set)
    for tag in header.tags:
        had[tag.name.rstrip("0123456789")] |= {column.name for column in tag.columns}
    for name, columns in header.skipped.items():
        if name.rstrip("0123456789") == IDENTITY:
            had[IDENTITY] |= set(columns)
    return had
