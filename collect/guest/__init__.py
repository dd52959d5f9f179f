"""Running commands under real kernels, in QEMU guests with virtual time.

See `python -m bbrscope.collect.guest --help`.
"""

from __future__ import annotations

from .machine import run
from .root import GuestError, missing_tools

__all__ = ["GuestError", "missing_tools", "run"]
