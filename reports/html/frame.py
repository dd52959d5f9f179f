"""What every page is put into: colours, style, scripts, Vega and the data, in one file."""

from __future__ import annotations

import json
from importlib import resources
from typing import TYPE_CHECKING, Any

from ...analyze.names import DRAFT_NAMES
from . import palette, prose, vega

if TYPE_CHECKING:
    from .document import Document

_STATIC = resources.files(__package__) / "static"
_SCRIPTS = ("data.js", "window.js", "panels.js", "gestures.js", "page.js")


def render(template: str, made: Document, names: str, values: dict[str, Any]) -> str:
    """Return a page of `static/` with its document and `values`; everything in them is escaped.

    Args:
        names: "draft" shows the names of draft-ietf-ccwg-bbr instead of the kernel's.
    """
    from markupsafe import Markup

    # Our own scripts and styles; everything else is escaped.
    scripts = "\n".join(_text(name) for name in _SCRIPTS)
    if names != "kernel":
        scripts += "\n" + _text("names.js").replace("NAMES", json.dumps(DRAFT_NAMES))
    ours: dict[str, Any] = {
        "style": Markup(_text("page.css")),
        "light": Markup(palette.declarations(dark=False)),
        "dark": Markup(palette.declarations(dark=True)),
        "vega": Markup(vega.javascript()),
        "script": Markup("(() => {\n" + scripts + "\n})();"),
        "data": Markup(made.json()),
        "charts": made.shown,
        "strip": made.strip,
        "variable": palette.variable,
        "quantity": prose.quantity,
        "seconds": prose.seconds,
        "share": prose.share,
        "plural": prose.plural,
    }
    html: str = _environment().get_template(template).render(ours | values)
    return html


def _text(name: str) -> str:
    return (_STATIC / name).read_text("utf-8")


def _environment() -> Any:
    import jinja2

    return jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(_text),
    )
