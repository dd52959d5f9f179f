"""A call that drew at random and is followed by silence: it is told as the replay tells it."""

from __future__ import annotations

from bbrscope import fixtures
from bbrscope.analyze.bbr import codes
from bbrscope.analyze.live.live_replay import LiveReplay

from tests.live_stream import events_of


def test_what_hangs_on_a_draw_waits_for_the_row_that_tells_it_and_the_rest_does_not() -> None:
    events, columns, manifest = events_of(fixtures.path("v1_x_lt"))
    end = events[-1].ns + 1
    once = LiveReplay("v1", columns, manifest).take(events, end)
    drew = next(one for one in once if one.code == codes.PBW_ENTER_PHASE_RANDOM)
    at = events.index(drew.event) + 1
    silent = LiveReplay("v1", columns, manifest)
    before = silent.take(events[:at], drew.event.ns + 1)
    after = silent.take(events[at:], end)
    assert [(one.event.ns, one.code, one.evidence) for one in before + after] == [
        (one.event.ns, one.code, one.evidence) for one in once
    ]
    assert before[-1].event is drew.event
    assert after[0].code == codes.PBW_ENTER_PHASE_RANDOM
    assert silent.exact == silent.compared > 0
