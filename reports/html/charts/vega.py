"""Vega for pages that need no network: its JavaScript as vl-convert ships it, and its charts."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

from ..data.legible import legible_texts
from ..panels.palette import COLOURS, variable

if TYPE_CHECKING:
    from altair.typing import ChartType


# Without Vega-Embed the bundle would be smaller, but its own name for Vega is null in 1.9.
_SNIPPET = "window.vegaEmbed = vegaEmbed;"
_BUNDLE = f"""
import sys, vl_convert
sys.stdout.buffer.write(vl_convert.javascript_bundle({_SNIPPET!r}).encode("utf-8"))"""


def _bundle() -> str:
    import vl_convert

    made: str = vl_convert.javascript_bundle(_SNIPPET)
    return made


def javascript() -> str:
    """Return a script that defines ``window.vegaEmbed``, safe inside an HTML script element."""
    return begun_script().result()


@functools.cache
def begun_script() -> Future[str]:
    """Have that script made, while the caller does something else, and once only.

    vl-convert takes two seconds and lets no other thread of Python run meanwhile: it works in a
    process of its own.
    """
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(_script)
    finally:
        pool.shutdown(wait=False)


def _script() -> str:
    # -P: a file of the folder that one works in is no module of ours.
    words = [sys.executable, "-P", "-c", _BUNDLE]
    try:
        bundle = subprocess.run(words, check=True, capture_output=True).stdout.decode("utf-8")
    except (OSError, subprocess.CalledProcessError):  # a Python that cannot start another one
        bundle = _bundle()
    # Inside JavaScript strings and regular expressions \/ and \! are / and !, so nothing changes.
    bundle = re.sub(r"</(?=script)", r"<\/", bundle, flags=re.IGNORECASE)
    return bundle.replace("<!--", r"<\!--")


def compiled(chart: ChartType) -> dict[str, Any]:
    """Return a chart as a Vega specification, so that the page needs no Vega-Lite."""
    import vl_convert

    spec: dict[str, Any] = vl_convert.vegalite_to_vega(_as_text(chart.to_dict()))
    spec.pop("$schema", None)
    return spec


def on_paper(spec: dict[str, Any], dark: bool = False) -> dict[str, Any]:
    """Return a Vega-Lite specification with its colours by value; on paper there is no page around.

    Data and titles keep what looks like a colour's name.
    """
    colours = {variable(name): pair[dark] for name, pair in COLOURS.items()}

    def painted(value: object, key: str = "") -> object:
        if isinstance(value, dict):
            return {k: v if k in _DATA else painted(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [painted(one, key) for one in value]
        return colours.get(value, value) if isinstance(value, str) and key not in _TEXTS else value

    made = cast("dict[str, Any]", painted(_as_text(spec)))
    return made | {"background": COLOURS["paper"][dark]}


# Keys of a specification below which nothing is ours to paint, and those of texts.
_DATA = ("datasets", "values", "domain")
_TEXTS = ("title", "text", "subtitle")
# Notes: their size, and pixels of a letter on average.
_SMALL, _LETTER = 9, 5


def _as_text(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a Vega-Lite specification in which nothing that a stranger wrote is more than text.

    Texts are legible: vl-convert ends the process at one that XML does not allow. And Vega-Lite
    puts titles of channels into expressions, for those who hear a chart, with quotes escaped but
    not backslashes: there they stand doubled, and as they are for the axis or legend.
    """

    def titled(value: object) -> object:
        if isinstance(value, list):
            return [titled(one) for one in value]
        if not isinstance(value, dict):
            return value
        made: dict[str, Any] = {
            key: one if key in _DATA else titled(one) for key, one in value.items()
        }
        for channel, found in (made.get("encoding") or {}).items():
            guide = "axis" if channel in ("x", "y") else "legend"
            for one in found if isinstance(found, list) else [found]:
                if "\\" in str(one.get("title")):
                    if channel != "tooltip" and one.get(guide, {}) is not None:
                        one[guide] = {"title": one["title"]} | one.get(guide, {})
                    one["title"] = one["title"].replace("\\", "\\\\")
        return made

    return cast("dict[str, Any]", titled(legible_texts(spec)))


def with_notes(spec: dict[str, Any], notes: Sequence[str], width: int) -> dict[str, Any]:
    """Return a Vega-Lite specification with notes below its title, wrapped to `width` pixels."""
    lines = [line for note in notes for line in textwrap.wrap(note, width // _LETTER)]
    if not lines:
        return spec
    title = spec.get("title")
    small: dict[str, Any] = {"text": lines, "fontSize": _SMALL, "fontWeight": "normal"}
    if title:  # Vega draws no subtitle without one
        heading = title if isinstance(title, dict) else {"text": title}
        small = heading | {"subtitle": lines, "subtitleFontSize": _SMALL}
    return spec | {"title": small | {"anchor": "start"}}
