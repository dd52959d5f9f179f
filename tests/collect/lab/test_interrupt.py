"""A signal ends the lab in order, whatever it comes in the middle of."""

from __future__ import annotations

import signal

import pytest
from bbrscope.collect.lab.interrupt import SIGNALS, InterruptedLabError, in_order


class Signals:
    """Sends a signal to this process while the class is made that has it."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number

    def __set_name__(self, owner: type, name: str) -> None:
        signal.raise_signal(self.number)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_a_module_makes_its_classes_is_one(number: signal.Signals) -> None:
    """Python says RuntimeError then."""
    before = [signal.getsignal(each) for each in SIGNALS]
    with pytest.raises(InterruptedLabError), in_order():
        type("Made", (), {"field": Signals(number)})
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_what_went_wrong_without_a_signal_stays_what_it_is() -> None:
    with pytest.raises(RuntimeError, match="mine"), in_order():
        raise RuntimeError("mine")
