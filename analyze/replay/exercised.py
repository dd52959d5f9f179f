"""Which codes of the decision vocabulary a set of recordings exercises under some rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..bbr.codes import CODES


@dataclass(frozen=True)
class Exercised:
    """Codes by name: how often each was decided, and which of the base's never were."""

    exercised: dict[str, int]
    never: list[str]


def exercised_by(decided: Sequence[Mapping[str, int]], base: str) -> Exercised:
    """Sum the decisions of several flows.

    Args:
        decided: of each flow, how often each code was decided.
        base: v1, v2 or v3, whose codes are listed if no flow decided them.
    """
    total: Counter[str] = Counter()
    for flow in decided:
        total.update(flow)
    counts = {code.name: total[code.name] for code in CODES.values() if code.name in total}
    kernels = [code.name for code in CODES.values() if base[1:] in code.versions]
    return Exercised(counts, [name for name in kernels if name not in counts])
