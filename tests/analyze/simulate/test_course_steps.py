"""A course counted in steps of time, against numbers counted by hand."""

from __future__ import annotations

import numpy as np
from bbrscope.analyze.simulate.course import COURSE, UNSET
from bbrscope.analyze.simulate.course_steps import band, over_time
from bbrscope.analyze.views.phase_names import PHASES

STARTUP, DRAIN = PHASES.index("STARTUP"), PHASES.index("DRAIN")


def course(*rows: tuple[int, ...]) -> np.ndarray:
    """Rows of t_us, flow, delivered, lost, rtt_us, inflight, inflight_hi, phase."""
    made = np.zeros(len(rows), COURSE)
    names = ("t_us", "flow", "delivered", "lost", "rtt_us", "inflight", "inflight_hi", "phase")
    for place, name in enumerate(names):
        made[name] = [row[place] for row in rows]
    return made


def test_steps_hold_what_was_delivered_lost_and_in_force() -> None:
    rows = course(
        (50, 0, 10, 0, 300, 4, UNSET, STARTUP),
        (90, 0, 20, 1, 500, 8, UNSET, STARTUP),
        (110, 1, 5, 0, 900, 2, UNSET, STARTUP),
        (250, 0, 40, 3, 0, 6, 30, DRAIN),
    )
    counted = over_time(rows, 2, 40_000)  # steps of 100 us
    assert counted.step_us == 100
    # Packets of 1448 bytes in 100 us, in kbit/s.
    rates = counted.together["rate_kbps"] / (1448 * 8 * 10)
    np.testing.assert_allclose(rates[:4], [20, 5, 20, 0])
    np.testing.assert_array_equal(counted.together["rtt_us"][:3], [500, 900, np.nan])
    np.testing.assert_array_equal(counted.together["lost"][:4], [1, 1, 3, 3])
    np.testing.assert_array_equal(counted.flows[0]["inflight"][:4], [6, np.nan, 6, np.nan])
    np.testing.assert_array_equal(counted.flows[0]["inflight_hi"][:4], [np.nan, np.nan, 30, np.nan])
    np.testing.assert_array_equal(counted.phases[0][:4], [STARTUP, STARTUP, DRAIN, UNSET])
    np.testing.assert_array_equal(counted.phases[1][:3], [UNSET, STARTUP, UNSET])


def test_a_band_is_of_the_seeds_that_have_a_value() -> None:
    seeds = [np.array([value, other]) for value, other in ((3, 1), (1, np.nan), (2, np.nan))]
    found = band(seeds)
    np.testing.assert_allclose([found.low[0], found.middle[0], found.high[0]], [1.1, 2, 2.9])
    assert np.isnan(found.middle[1])
