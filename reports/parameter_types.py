"""Types of command-line parameters: times, shares, and quantities with units."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING

import click

from ..probes.base.errors import ScenarioError

if TYPE_CHECKING:
    _IntType = click.ParamType[int]
    _FloatType = click.ParamType[float]
else:
    _IntType = _FloatType = click.ParamType  # generic to type checkers only before click 8.2

_TIME = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(s|ms|us|ns)?")
_SHARE = re.compile(r"\d+(\.\d*)?|\.\d+")
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


class TimeType(_IntType):
    """A time on the run's clock: 12.3s, 12.3 or 850ms; becomes nanoseconds."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return the time in ns; a number without unit is in seconds.

        Raises:
            click.BadParameter: it is no time.
        """
        if isinstance(value, int):
            return value
        match = _TIME.fullmatch(str(value).strip())
        if not match:
            self.fail(f"{value!r} is not a time such as 12.3s or 850ms", param, ctx)
        number, unit = match.groups()
        return int(Decimal(number) * _NANOSECONDS[unit or "s"])


class ShareType(_FloatType):
    """A share: 10%, or 0.1."""

    name = "share"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the share as a number: 0.1 for both 10% and 0.1.

        Raises:
            click.BadParameter: it is no share.
        """
        if isinstance(value, float):
            return value
        text = str(value).strip()
        number = text.removesuffix("%").strip()
        if not _SHARE.fullmatch(number):
            self.fail(f"{value!r} is not a share such as 10% or 0.1", param, ctx)
        return float(number) / (100 if text.endswith("%") else 1)


class QuantityType(_FloatType):
    """A quantity as the lab's scenarios write it, e.g. 15mbit; `read` makes it a number."""

    def __init__(self, name: str, read: Callable[[str], float]) -> None:
        self.name = name
        self.read = read

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the quantity in the unit of `read`; numbers are in that unit already.

        Raises:
            click.BadParameter: it is no such quantity, or not above 0.
        """
        if isinstance(value, int | float):
            return float(value)
        try:
            quantity = self.read(str(value))
        except ScenarioError as error:
            self.fail(f"{error.fact}; {error.way_out}", param, ctx)
        if quantity <= 0:
            self.fail(f"{value!r} must be above 0", param, ctx)
        return quantity
