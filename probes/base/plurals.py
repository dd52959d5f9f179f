"""Sentences with counts in them: "1 packet was", "20 packets were"."""

from __future__ import annotations

from collections.abc import Sequence
from string import Formatter


def plural(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun, or with what follows it in a sentence.

    Args:
        count: how many.
        one: what follows 1.
        many: what follows every other count; left out, `one` with an s.

    >>> plural(1, "packet"), plural(20300, "packet"), plural(0, "axis", "axes")
    ('1 packet', '20,300 packets', '0 axes')
    """
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def in_words(names: Sequence[str]) -> str:
    """Return names as a sentence lists them.

    >>> in_words(["v1"]), in_words(["v1", "v2"]), in_words(["v1", "v2", "v3"])
    ('v1', 'v1 and v2', 'v1, v2 and v3')
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def worded(template: str, **values: object) -> str:
    """Fill a template: like str.format(), and a place may have the words that follow its count.

    They stand in the place, after a colon: those for 1, a bar, those for every other count. A count
    may be text already.

    Raises:
        KeyError: the template names a value that is not given.

    >>> worded("{lost:packet is|packets are} lost of {sent}", lost=1, sent=7)
    '1 packet is lost of 7'
    >>> worded("{lost:packet is|packets are} lost of {sent}", lost="20", sent=70)
    '20 packets are lost of 70'
    """
    return _WORDS.vformat(template, (), values)


def words_after(count: object, words: str) -> str:
    """Return what follows a count, of "words for 1|words for every other count".

    >>> words_after(1, "packet is|packets are"), words_after("2", "packet is|packets are")
    ('packet is', 'packets are')
    """
    one, _, many = words.partition("|")
    return one if str(count) == "1" else many


class _Words(Formatter):
    def format_field(self, value: object, format_spec: str) -> str:
        if "|" in format_spec:
            return f"{value} {words_after(value, format_spec)}"
        return format(value, format_spec)


_WORDS = _Words()
