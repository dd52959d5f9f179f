"""BBR's phases by name: bbr.mode, refined in PROBE_BW by bbr.cycle_idx.

The one place: the macro `phase_name`, Python code that follows events one by one, and arrays of
phases all come from here.
"""

from __future__ import annotations

MODES = ("STARTUP", "DRAIN", "PROBE_BW", "PROBE_RTT")
PROBE_BW = MODES.index("PROBE_BW")
# By cycle_idx, the last one also beyond: of v2 and v3, and of v1, whose bbr_pacing_gain[] has 1.25,
# 0.75 and six times 1.0; with the policer's rate in use v1's gain is 1.0 throughout (tcp_bbr.c
# bbr_update_gains()). An undo gives that rate up and leaves the gain as it is until the next ACK: a
# cycle_idx of 0 is no probe then.
CYCLE = ("PROBE_BW_UP", "PROBE_BW_DOWN", "PROBE_BW_CRUISE", "PROBE_BW_REFILL")
V1_CYCLE = ("PROBE_BW_1.25", "PROBE_BW_0.75", "PROBE_BW_1.0")
POLICED = "PROBE_BW_LT"
_PROBE = 0
_UNIT = 1 << 8  # BBR_UNIT: a gain of 1.0
# In the order in which legends have them; PROBE_BW: a sample that tells the mode alone.
PHASES = ("STARTUP", "DRAIN", "PROBE_BW", *CYCLE, *V1_CYCLE, POLICED, "PROBE_RTT")


def phase_name(
    version: str, mode: int, cycle_idx: int, lt_use_bw: int, pacing_gain: int
) -> str | None:
    """Return the phase; None: BBR has no such mode.

    >>> phase_name("v3", 2, 0, 0, 320), phase_name("v1", 2, 7, 0, 256)
    ('PROBE_BW_UP', 'PROBE_BW_1.0')
    >>> phase_name("v1", 2, 7, 1, 256), phase_name("v1", 2, 0, 0, 256)
    ('PROBE_BW_LT', 'PROBE_BW_1.0')
    """
    if not 0 <= mode < len(MODES):
        return None
    if mode != PROBE_BW:
        return MODES[mode]
    if version == "v1" and lt_use_bw == 1:
        return POLICED
    if version == "v1" and cycle_idx == _PROBE and pacing_gain == _UNIT:
        return V1_CYCLE[-1]
    names = V1_CYCLE if version == "v1" else CYCLE
    return names[min(cycle_idx, len(names) - 1)]


def mode_sql() -> str:
    """Return the same of `mode` alone, in SQL."""
    return f"CASE mode {_whens(MODES)} END"


def phase_sql() -> str:
    """Return `phase_name` in SQL, over columns called like its parameters."""
    return (
        f"CASE WHEN mode <> {PROBE_BW} THEN mode_name(mode)"
        f" WHEN mode = {PROBE_BW} THEN CASE WHEN version <> 'v1' THEN {_by_cycle(CYCLE)}"
        f" WHEN lt_use_bw = 1 THEN '{POLICED}'"
        f" WHEN cycle_idx = {_PROBE} AND pacing_gain = {_UNIT} THEN '{V1_CYCLE[-1]}'"
        f" ELSE {_by_cycle(V1_CYCLE)} END END"
    )


def _by_cycle(names: tuple[str, ...]) -> str:
    return f"CASE cycle_idx {_whens(names[:-1])} ELSE '{names[-1]}' END"


def _whens(names: tuple[str, ...]) -> str:
    return " ".join(f"WHEN {place} THEN '{name}'" for place, name in enumerate(names))
