"""``python -m bbrscope.reports``: the bbrscope command without its script."""

from __future__ import annotations

from .entry import main

main()
