"""What the ``#TAG,`` lines of an event stream say: which columns each row has, and where they go.

Rows of one kernel event may be split over any number of tags (M0, M1 ...). A tag is the letter of
its role and a number that orders the parts; the roles are in `ROLES`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ....probes.base.errors import BundleError
from ....probes.base.plurals import plural, worded
from ....probes.fields import EVENT_FIELDS, EXIT_FIELDS, FIELDS, Field
from ....probes.leaving import LEFT, LEFT_FOR_GOOD
from ....probes.packed_columns import Part, is_packed, parts_of, width_of
from ...bundle.quality import CODES
from ...store.schema.recorded_tables import KINDS, SAMPLE

# What a row of a tag is to its event; single rows, of no event, have a table and one tag each.
ENTRY, EXIT, PARAMETERS, SINGLE = "entry", "exit", "parameters", "single"

# Letters of the tag -> (kind of event or name of the table, role).
ROLES = {
    "M": ("main", ENTRY),
    "X": ("main", EXIT),
    "I": ("init", ENTRY),
    "IX": ("init", EXIT),
    "P": ("init", PARAMETERS),
    "S": ("set_state", ENTRY),
    "E": ("cwnd_event", ENTRY),
    "H": ("ssthresh", ENTRY),
    "U": ("undo_cwnd", ENTRY),
    "L": ("skb_marked_lost", ENTRY),
    "T": (SAMPLE, ENTRY),
    "K": ("loss_marks", SINGLE),
    "R": ("retransmits", SINGLE),
}
TAG = re.compile(r"([A-Z]+)([0-9]*)")
MAX_TAG = 7
MAX_COLUMNS = 256
# Rows of one event; each has a bit of a number of 64.
MAX_PARTS = 60

# Of an init row, for people: they are read as text and go to the flow, not to the event.
ADDRESSES = ("family", "saddr", "daddr", "saddr6", "daddr6")
MAX_HEADER = "max_header"
IDENTITY = "N"

BY_NAME = {name: f for name, f in FIELDS.items() if name not in (*ADDRESSES, MAX_HEADER)}
EXITS = {f.name for f in EXIT_FIELDS}
STORED = {f.name for f in EVENT_FIELDS}

LAYOUT_HELP = "BUNDLE.md describes the header lines"


@dataclass(frozen=True)
class HeaderColumn:
    """One column of a tag: its field (None: free text) and its store column (None: not stored).

    `known` tells whether fields.csv, or this module, has a column of this name.

    `packed` is the width in bits of a word that holds several fields (0: it is none). Each of these
    is a column, too: `part` says where in the word it is, `word` which of the tag's columns has it.
    """

    name: str
    field: Field | None
    target: str | None
    known: bool
    packed: int = 0
    word: int = -1
    part: Part | None = None


@dataclass(frozen=True)
class Tag:
    """One declared tag. `part` is its bit among the tags of its kind.

    It is 0 for single rows: these are no part of an event and have a table of their own.

    `columns` are those of its rows in their order, and then the fields of the packed ones.
    """

    name: str
    kind: str
    role: str
    order: int
    columns: tuple[HeaderColumn, ...]
    part: int = 0

    @property
    def printed(self) -> tuple[HeaderColumn, ...]:
        """The columns that its rows have."""
        return tuple(column for column in self.columns if column.part is None)


@dataclass(frozen=True, eq=False)
class Header:
    """All declared tags; `notes` are (code, sentence) about what will not be stored.

    `skipped` maps the tags that are not taken (unknown ones, N, O and OX) to their columns. Two are
    equal if they are one: what is worked out of a header is kept by it.
    """

    tags: tuple[Tag, ...]
    skipped: dict[str, list[str]]
    notes: tuple[tuple[str, str], ...] = field(default=())

    def columns(self) -> set[str]:
        """Return the names of every recorded column."""
        return {column.name for tag in self.tags for column in tag.columns if not column.packed}

    def parts(self, kind: str, roles: Iterable[str]) -> int:
        """Return the sum of the bits (`Tag.part`) of the tags of `kind` with one of `roles`."""
        wanted = tuple(roles)
        return sum(tag.part for tag in self.tags if tag.kind == kind and tag.role in wanted)


# Headers by their lines. One recorder writes the same into all of its bundles, and reading it takes
# as long as reading 2,000 events.
_known: dict[tuple[str, ...], Header] = {}
MOST_KNOWN = 16


def parse(lines: Sequence[tuple[int, str]], where: str) -> Header:
    """Read header lines, given with their line numbers and without the leading ``#``.

    Raises:
        BundleError: a tag is declared twice, lacks ns or sk, repeats a column, or no tag is known.
    """
    key = tuple(line for _, line in lines)
    known = _known.get(key)
    if known is None:
        known = _parse(lines, where)
        if len(_known) == MOST_KNOWN:
            _known.clear()
        _known[key] = known
    return known


def _parse(lines: Iterable[tuple[int, str]], where: str) -> Header:
    tags: dict[str, Tag] = {}
    skipped: dict[str, list[str]] = {}
    notes: list[tuple[str, str]] = []
    for number, line in lines:
        name, *columns = line.split(",")
        if name in tags or name in skipped:
            raise BundleError(f"{where}, line {number}: {name} is declared twice", LAYOUT_HELP)
        match = TAG.fullmatch(name)
        if match is None or not _is_known(match[1], match[2]) or len(name) > MAX_TAG:
            skipped[name] = columns
            if match is None or match[1] not in (IDENTITY, LEFT, LEFT_FOR_GOOD):
                notes.append(("unknown_tag", worded(CODES["unknown_tag"], name=repr(name[:40]))))
            continue
        kind, role = ROLES[match[1]]
        _check_columns(columns, f"{where}, line {number}")
        order = int(match[2] or 0)
        found = (*(_column(c, kind, role) for c in columns), *_fields(columns, kind, role))
        _check_fields(found, f"{where}, line {number}")
        tags[name] = Tag(name, kind, role, order, found)
    if all(tag.role == SINGLE for tag in tags.values()):
        raise _no_events(where, [*tags, *skipped])
    numbered = _number_parts(list(tags.values()))
    _check_repeats(numbered, where)
    notes += _unstored(numbered)
    return Header(tuple(numbered), skipped, tuple(notes))


def _no_events(where: str, seen: list[str]) -> BundleError:
    only = f" (only {', '.join(map(repr, seen[:8]))})" if seen else ""
    return BundleError(
        f"{where} declares no rows of kernel events{only}",
        "record BBR's callbacks or samples of its state; BUNDLE.md describes the rows",
    )


def _is_known(letters: str, number: str) -> bool:
    return letters in ROLES and not (number and ROLES[letters][1] == SINGLE)


def _check_columns(columns: list[str], where: str) -> None:
    for needed in ("ns", "sk"):
        if needed not in columns:
            raise BundleError(f"{where}: the header has no column {needed}", LAYOUT_HELP)
    if len(columns) > MAX_COLUMNS:
        raise BundleError(f"{where}: more than {MAX_COLUMNS} columns", LAYOUT_HELP)
    for packed in filter(is_packed, columns):
        try:
            parts_of(packed)
        except ValueError as error:
            raise BundleError(f"{where}: column {packed!r:.40}: {error}", LAYOUT_HELP) from error


def _check_fields(columns: Sequence[HeaderColumn], where: str) -> None:
    """Refuse more columns than any recorder names, and one that comes twice, packed or not."""
    names = [column.name for column in columns]
    if len(names) > MAX_COLUMNS:
        raise BundleError(f"{where}: more than {MAX_COLUMNS} columns", LAYOUT_HELP)
    for column in columns:
        if names.count(column.name) > 1:
            raise BundleError(f"{where}: column {column.name!r:.40} appears twice", LAYOUT_HELP)
        known, part = column.field, column.part
        if part and (known is None or part.bits > known.bits) and column.known:
            raise BundleError(
                f"{where}: {column.name} cannot be packed in {plural(part.bits, 'bit')}",
                LAYOUT_HELP,
            )


def _fields(columns: Sequence[str], kind: str, role: str) -> list[HeaderColumn]:
    """The fields of packed columns."""
    return [
        replace(_column(part.name, kind, role), word=index, part=part)
        for index, name in enumerate(columns)
        if is_packed(name)
        for part in parts_of(name)
    ]


def _column(name: str, kind: str, role: str) -> HeaderColumn:
    """Decide where a column of a tag goes."""
    if is_packed(name):
        return HeaderColumn(name, None, None, True, packed=width_of(name))
    if name in (*ADDRESSES, MAX_HEADER):
        return HeaderColumn(name, None, None, True)
    known = BY_NAME.get(name)
    if known is None:
        return HeaderColumn(name, None, None, False)
    target = None
    if role == EXIT and name in EXITS:
        target = known.exit_column
    elif name in STORED and role != SINGLE and (name.startswith("bbr.") or role == ENTRY):
        # init's state is the one it leaves behind, read at its exit; main's the one it finds.
        at_exit = kind == "init" and name.startswith("bbr.")
        target = known.column if at_exit == (role == EXIT) else None
    return HeaderColumn(name, known, target, True)


def _number_parts(tags: list[Tag]) -> list[Tag]:
    """Give every tag its bit; the parts of a kind are ordered by role, then by number."""
    numbered = []
    for kind in KINDS:
        own = sorted(
            (tag for tag in tags if tag.kind == kind),
            key=lambda tag: ((ENTRY, PARAMETERS, EXIT).index(tag.role), tag.order, tag.name),
        )
        if len(own) > MAX_PARTS:
            raise BundleError(f"{kind} has more than {MAX_PARTS} rows of its own", LAYOUT_HELP)
        if own and own[0].role != ENTRY:
            raise BundleError(f"{own[0].name} is declared, but no entry row of {kind}", LAYOUT_HELP)
        numbered += [
            Tag(tag.name, kind, tag.role, tag.order, tag.columns, 1 << bit)
            for bit, tag in enumerate(own)
        ]
    return [*numbered, *(tag for tag in tags if tag.role == SINGLE)]


def _check_repeats(tags: list[Tag], where: str) -> None:
    """Refuse two tags of one kind that fill the same column."""
    seen: dict[tuple[str, str], str] = {}
    for tag in tags:
        for column in tag.columns:
            if column.target is None:
                continue
            other = seen.setdefault((tag.kind, column.target), tag.name)
            if other != tag.name:
                raise BundleError(
                    f"{where}: {other} and {tag.name} both have {column.name}", LAYOUT_HELP
                )


def _unstored(tags: list[Tag]) -> list[tuple[str, str]]:
    """Name columns that a reader could expect in the store and will not find there."""
    unknown: dict[str, list[str]] = {}
    for tag in tags:
        for column in tag.columns:
            if not column.known:
                unknown.setdefault(column.name, []).append(tag.name)
    return [
        (
            "unknown_column",
            worded(CODES["unknown_column"], name=repr(name[:80]), tags=", ".join(where)),
        )
        for name, where in unknown.items()
    ]
