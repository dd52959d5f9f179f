"""The variants by name: what each is, where it is described, and its file.

Lanigan20 is a dissertation of 2020 that compares variants of BBR in ns-3 (analyze/bbr/README.md).
Nothing of the estimator is imported before a variant is loaded.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .variant import Variant


@dataclass(frozen=True)
class Listed:
    """A variant that comes with bbrscope.

    Attributes:
        file: its module here.
        place: what it is called there.
        about: what it does, in a line.
        source: where it is described.
    """

    file: str
    place: str
    about: str
    source: str


_THESIS = "Lanigan20"
_AS_RUN = "Lanigan20, its code as it ran"
VARIANTS = {
    "bbr-prime": Listed(
        "bbr_prime", "VARIANT", "v1; 0.75x lasts until the queue is empty", f"BBR', {_THESIS}"
    ),
    "bbr-plus-0.5": Listed(
        "bbr_plus", "HALF", "v1; gains 1.5 and 0.5, RTprop + 0.5 deviations", f"BBR+, {_THESIS}"
    ),
    "bbr-plus-0.125": Listed(
        "bbr_plus", "EIGHTH", "v1; the same, RTprop + 0.125 deviations", f"BBR+, {_THESIS}"
    ),
    "bbrplus": Listed(
        "bbrplus", "VARIANT", "v1; cycles of a random length, drained", f"BBRPlus, {_THESIS}"
    ),
    "delay-bbr": Listed(
        "delay_bbr", "VARIANT", "v1; backs off when the RTT rises by 20 %", f"Delay-BBR, {_THESIS}"
    ),
    "bbr2-exp": Listed(
        "bbr2_exp", "VARIANT", "v2; CE marks bound the rate, too", f"BBRv2-EXP, {_THESIS}"
    ),
    "bbr3-draft": Listed(
        "bbr3_draft", "VARIANT", "v3; DRAIN ends after three rounds", "draft-ietf-ccwg-bbr-06"
    ),
    "bbr-lanigan-code": Listed(
        "bbr_lanigan_code", "VARIANT", "v1; 0.75x lasts one min_rtt", f"BBR, {_AS_RUN}"
    ),
    "bbr-plus-lanigan-code": Listed(
        "bbr_plus", "LANIGAN_CODE", "BBR+; the last RTT, in whole ms", f"BBR+, {_AS_RUN}"
    ),
    "bbrplus-lanigan-code": Listed(
        "bbrplus", "LANIGAN_CODE", "BBRPlus; 1.25x ends below 1.25 BDP", f"BBRPlus, {_AS_RUN}"
    ),
    "delay-bbr-lanigan-code": Listed(
        "delay_bbr", "LANIGAN_CODE", "Delay-BBR, alpha 0 and beta 1", f"Delay-BBR, {_AS_RUN}"
    ),
    "bbr2-lanigan-code": Listed(
        "bbr2_lanigan_code",
        "VARIANT",
        "v2; integer division makes fractions 0",
        f"BBRv2 and -EXP, {_AS_RUN}",
    ),
}


def load(name: str) -> Variant:
    """A variant of VARIANTS."""
    listed = VARIANTS[name]
    module = importlib.import_module(f".{listed.file}", __package__)
    variant: Variant = getattr(module, listed.place)
    return variant


def help_text() -> str:
    """The variants for a command's help: a name and a line each."""
    width = max(map(len, VARIANTS))
    lines = [f"  {name:{width}}  {one.about}" for name, one in VARIANTS.items()]
    return "\n".join(["\b", "Variants of BBR (analyze/bbr/README.md):", *lines])
