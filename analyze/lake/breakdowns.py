"""By what the findings of a fleet may be broken down."""

from __future__ import annotations

# Its name, and its column of the fleet's flows.
BREAKDOWNS = {
    "version": "version",
    "kernel": "kernel",
    "host": "host",
    "day": "day",
    "path": "path_class",
}
