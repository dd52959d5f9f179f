"""What charts call a sender."""

from __future__ import annotations


def sender_name(flow: int | None, stream: int | None) -> str:
    """Return the name of a row of `senders`; without a flow, packets alone tell of it.

    >>> sender_name(2, None), sender_name(None, 3)
    ('flow 2', 'connection 3 (no events)')
    """
    return f"flow {flow}" if flow is not None else f"connection {stream} (no events)"
