"""Change text, bytes and documents at random, towards what readers get wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any

NUMBERS = (
    "0 -1 1 2 127 255 256 65535 65536 2147483647 2147483648 4294967295 4294967296"
    " 9223372036854775807 9223372036854775808 18446744073709551615 18446744073709551616"
    " -2147483648 -9223372036854775808 1e308 1e999 -1e999 0.1 1e-320 nan inf -inf 00 +1 0x10"
    " 99999999999999999999999999999999 ''"
).split()
TEXTS = (
    "", " ", "\x00", "\x1b[31m", "\u202e", "\u4e2d" * 100, "a" * 5000, "../../x", "/etc/passwd",
    "--help", "=1+1", "<script>alert(1)</script>", "'; DROP TABLE runs; --", "%s%n",
    "{0.__class__}",
    "null", "[]", "\ud800", "NaN", "true", ",", "\n", "\r\n", "#M0,ns,sk", "Lost 5 events",
)  # fmt: skip
_NUMBER = re.compile(rb"-?\d+(\.\d+)?")


def odd_value(random: Random) -> Any:
    """A value of JSON that a reader may not expect."""
    return random.choice(
        (
            None, True, False, 0, -1, 1 << 31, 1 << 63, (1 << 64) - 1, 1 << 64, 10**400, 1e308,
            float("inf"), float("nan"), -0.0, [], {}, [[]], [None], {"": None}, "x", *TEXTS,
            {"a": {"b": [1, {"c": 2}]}}, list(range(300)),
        )
    )  # fmt: skip


def document(value: Any, random: Random, depth: int = 0) -> Any:
    """A JSON document with one place changed: another value, no value, or one more."""
    if not isinstance(value, dict | list) or not value or (depth and random.random() < 0.3):
        return odd_value(random)
    changed = dict(value) if isinstance(value, dict) else list(value)
    key: Any = (
        random.choice(list(value)) if isinstance(value, dict) else random.randrange(len(value))
    )
    what = random.random()
    if what < 0.15:
        del changed[key]
    elif what < 0.25 and isinstance(changed, dict):
        changed[random.choice(TEXTS)] = changed.pop(key)
    elif what < 0.3 and isinstance(changed, list):
        changed.append(odd_value(random))
    else:
        changed[key] = document(value[key], random, depth + 1)
    return changed


def _flip(data: bytearray, random: Random) -> bytearray:
    for _ in range(random.randrange(1, 9)):
        data[random.randrange(len(data))] = random.randrange(256)
    return data


def _cut(data: bytearray, random: Random) -> bytearray:
    return data[: random.randrange(len(data))]


def _drop(data: bytearray, random: Random) -> bytearray:
    at = random.randrange(len(data))
    return data[:at] + data[at + random.randrange(1, 200) :]


def _double(data: bytearray, random: Random) -> bytearray:
    at = random.randrange(len(data))
    size = random.randrange(1, 400)
    return data[: at + size] + data[at : at + size] * random.randrange(1, 30) + data[at + size :]


def _number(data: bytearray, random: Random) -> bytearray:
    found = list(_NUMBER.finditer(data))
    for match in random.sample(found, min(len(found), random.randrange(1, 4)))[:1]:
        data[match.start() : match.end()] = random.choice(NUMBERS).encode()
    return data


def _insert(data: bytearray, random: Random) -> bytearray:
    at = random.randrange(len(data))
    text = random.choice(TEXTS).encode("utf-8", "surrogatepass")
    return data[:at] + text + data[at:]


def _swap_lines(data: bytearray, random: Random) -> bytearray:
    rows = data.split(b"\n")
    a, b = random.randrange(len(rows)), random.randrange(len(rows))
    rows[a], rows[b] = rows[b], rows[a]
    return bytearray(b"\n".join(rows))


def _drop_lines(data: bytearray, random: Random) -> bytearray:
    rows = data.split(b"\n")
    at = random.randrange(len(rows))
    del rows[at : at + random.choice((1, 1, 2, 10, 50))]
    return bytearray(b"\n".join(rows))


def _big(data: bytearray, random: Random) -> bytearray:
    """A number of four bytes that is a length somewhere, perhaps."""
    at = random.randrange(max(1, len(data) - 4))
    value = random.choice((0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFF, 0x10000))
    data[at : at + 4] = value.to_bytes(4, random.choice(("little", "big")))
    return data


Change = Callable[[bytearray, Random], bytearray]
TEXTUAL: tuple[Change, ...] = (
    _number, _number, _number, _flip, _cut, _drop, _double, _insert, _swap_lines, _drop_lines,
)  # fmt: skip
BINARY: tuple[Change, ...] = (_flip, _flip, _big, _big, _cut, _drop, _double)


def data(original: bytes, random: Random, changes: tuple[Change, ...] = TEXTUAL) -> bytes:
    """Bytes after one to four changes."""
    changed = bytearray(original)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        if not changed:
            break
        changed = random.choice(changes)(changed, random)
    return bytes(changed)
