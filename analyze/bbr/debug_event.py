"""The single letters that v2alpha itself leaves in debug.event (tcp_bbr2.c), one per decision."""

from __future__ import annotations

EVENT_NONE = ord(".")
EVENT_GROW_SLOPE = ord("G")
EVENT_INCREMENT = ord("I")
EVENT_LOSS_OR_ECN = ord("L")
EVENT_REPROBE = ord("R")
EVENT_RAISE = ord("U")
EVENT_ALL_CLEAR = ord("A")
EVENT_DANGER = ord("D")
EVENT_QUEUE = ord("Q")
EVENT_STARTUP_ECN = ord("E")
EVENT_STARTUP_LOSS = ord("P")
