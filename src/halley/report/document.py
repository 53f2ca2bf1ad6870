"""A self-contained page: style, script and numbers inside, and a content policy that blocks all other sources."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any
from xml.etree.ElementTree import Element

from halley.report.markup import el, html_text


def document(
    title: str,
    header: Sequence[Element],
    sections: Sequence[Element],
    data: Mapping[str, Any],
    file: str,
    footer: str,
    further: Sequence[str] = (),
) -> str:
    """The page as text. Each section has an ``id`` and begins with its heading, to which the contents lead; ``data`` can be saved
    from the page as ``file``. ``further``: scripts of this kind of page, by the names of their assets."""
    script, style = "".join(_asset(name) for name in ("page.js", *further)), _asset("page.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # even if text became markup, it could neither run nor load anything
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("title", f"{title} - Halley"),
        el("style", style),
    )
    links = [el("a", section[0].text or "", href=f"#{section.get('id')}") for section in sections]
    save = el("button", f"Save {file}", id="save", type="button", data_file=file)
    body = el(
        "body",
        el("header", *header, el("nav", *links)),
        el("main", *sections),
        el("footer", el("p", footer), el("p", save, class_="tools")),
        # JSON as data; "<" is escaped, so that no text in it can end the element
        el("script", json.dumps(data).replace("<", "\\u003c"), type="application/json", id="result"),
        el("script", script),
    )
    return "<!doctype html>\n" + html_text(el("html", head, body, lang="en")) + "\n"


def _asset(name: str) -> str:
    return (files("halley.report") / "assets" / name).read_text(encoding="utf-8")


ROOFLINE = "Roofline with every resource"
"""What the figure is called."""
ROOFLINE_WORDS = (
    "Each resource has a stem, from the rate that is reached (red) up to the rate that this resource alone would allow: the "
    "shorter the stem, the busier it is. The lines are bandwidths, all instances together."
)
"""How to read it."""


def framed(picture: Element, caption: str = "", name: str = "") -> Element:
    """A picture with its caption; on a narrow screen the picture alone scrolls. ``name``: the element's ``id``."""
    words = [el("figcaption", caption)] if caption else []
    return el("figure", el("div", picture, class_="scroll"), *words, **({"id": name} if name else {}))


def zoomed_out() -> Element:
    """The button by which a timeline that was zoomed shows the whole again."""
    return el("div", el("button", "Show the whole", id="whole", type="button", hidden="hidden"), class_="tools")
