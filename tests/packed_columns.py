"""Columns of a report's page, read back."""

from __future__ import annotations

import base64


def unpack(text: str) -> list[int]:
    """What static/data.js does, written from the format's definition."""
    values, value, part, shift = [], 0, 0, 0
    for byte in base64.b64decode(text):
        part |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            value += (part >> 1) ^ -(part & 1)
            values.append(value)
            part = shift = 0
    return values
