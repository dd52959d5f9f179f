"""What every page is put into: colours, style, scripts, Vega and the data, in one file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ....analyze.story.names import DRAFT_NAMES
from ....probes.base.plurals import plural
from ...text import quantities
from ..charts import vega
from ..data.legible import legible
from ..panels import palette

if TYPE_CHECKING:
    import jinja2

    from ..data.document import Document

_STATIC = Path(__file__).parents[1] / "static"
_SCRIPTS = ("data.js", "window.js", "panels.js", "gestures.js", "page.js")


def render(template: str, charts: Document, names: str, values: dict[str, object]) -> str:
    """Return a page of `static/` with its document and `values`; everything in them is escaped.

    Args:
        names: "draft" shows the names of draft-ietf-ccwg-bbr instead of the kernel's.
    """
    scripts = "\n".join(text(name) for name in _SCRIPTS)
    if names != "kernel":
        scripts += "\n" + text("names.js").replace("NAMES", json.dumps(DRAFT_NAMES))
    drawn: dict[str, object] = {"charts": charts.shown, "strip": charts.strip}
    return fill(template, charts.json(), f"(() => {{\n{scripts}\n}})();", drawn | values)


def fill(template: str, data: str, script: str, values: dict[str, object]) -> str:
    """Return a page of `static/`; everything in `values` is escaped.

    Args:
        data: JSON that may stand inside a script element.
        script: JavaScript of our own.
    """
    from markupsafe import Markup

    ours: dict[str, object] = {
        "style": Markup(text("page.css")),
        "light": Markup(palette.declarations(dark=False)),
        "dark": Markup(palette.declarations(dark=True)),
        "vega": Markup(vega.javascript()),
        "script": Markup(script),
        "data": Markup(data),
        "variable": palette.variable,
        "colour_of": palette.colour_of,
        "quantity": quantities.quantity,
        "seconds": quantities.seconds,
        "share": quantities.share,
        "plural": plural,
    }
    html: str = _environment().get_template(template).render(ours | values)
    return html


def text(name: str) -> str:
    """Return a file of `static/`."""
    return (_STATIC / name).read_text("utf-8")


def _environment() -> jinja2.Environment:
    import jinja2

    made = jinja2.Environment(
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(text),
    )
    made.filters["arrows"] = _with_arrows
    return made


def _with_arrows(sentence: str) -> str:
    """A sentence with the arrow that the terminal writes as two characters."""
    return sentence.replace("->", "\u2192")


def _shown(value: object) -> object:
    """A text as a reader may trust it; markup is our own."""
    return legible(value) if type(value) is str else value
