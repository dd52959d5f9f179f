"""The data of a built page, as its script reads them."""

from __future__ import annotations

import json
from typing import Any


def data_of(html: str) -> dict[str, Any]:
    """Return the JSON object that a page of the report carries."""
    begins = '<script id="data" type="application/json">'
    data: dict[str, Any] = json.loads(html.partition(begins)[2].partition("</script>")[0])
    return data
