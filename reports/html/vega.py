"""Vega's JavaScript, from the copy that vl-convert ships, so that the page needs no network."""

from __future__ import annotations

import functools
import re


@functools.cache
def javascript() -> str:
    """Return a script that defines ``window.vegaEmbed``, safe inside an HTML script element."""
    import vl_convert

    # Without Vega-Embed the bundle would be smaller, but its own name for Vega is null in 1.9.
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # Inside JavaScript strings and regular expressions \/ and \! are / and !, so nothing changes.
    bundle = re.sub(r"</(?=script)", r"<\/", bundle, flags=re.IGNORECASE)
    return bundle.replace("<!--", r"<\!--")
