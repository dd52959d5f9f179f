"""Vega for pages that need no network: its JavaScript as vl-convert ships it, and its charts."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from altair.typing import ChartType


@functools.cache
def javascript() -> str:
    """Return a script that defines ``window.vegaEmbed``, safe inside an HTML script element."""
    import vl_convert

    # Without Vega-Embed the bundle would be smaller, but its own name for Vega is null in 1.9.
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # Inside JavaScript strings and regular expressions \/ and \! are / and !, so nothing changes.
    bundle = re.sub(r"</(?=script)", r"<\/", bundle, flags=re.IGNORECASE)
    return bundle.replace("<!--", r"<\!--")


def compiled(chart: ChartType) -> dict[str, Any]:
    """Return a chart as a Vega specification, so that the page needs no Vega-Lite."""
    import vl_convert

    spec: dict[str, Any] = vl_convert.vegalite_to_vega(chart.to_dict())
    spec.pop("$schema", None)
    return spec
