"""HTML and SVG as trees. Text is escaped by the standard library when the tree is written, so no text can become markup."""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree.ElementTree import Element, indent, tostring

Attribute = str | float | int
SVG_NAMESPACE = "http://www.w3.org/2000/svg"
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Characters that neither HTML nor XML may hold."""


def el(tag: str, *content: Element | str, **attributes: Attribute) -> Element:
    """An element. In names of attributes ``_`` stands for ``-``, one at the end is dropped; numbers are rounded to 2 decimals.

    >>> html_text(el("p", "1 < 2", el("b", "&"), "?", class_="a", data_x=0.333))
    '<p class="a" data-x="0.33">1 &lt; 2<b>&amp;</b>?</p>'
    """
    made = Element(tag, {name.rstrip("_").replace("_", "-"): _attribute(value) for name, value in attributes.items()})
    add(made, content)
    return made


def add(parent: Element, content: Iterable[Element | str]) -> None:
    """Append elements and text to an element."""
    for item in content:
        if isinstance(item, Element):
            parent.append(item)
        elif len(parent):
            parent[-1].tail = (parent[-1].tail or "") + clean(item)
        else:
            parent.text = (parent.text or "") + clean(item)


def clean(text: str) -> str:
    """The text with a mark in place of each character that a page may not hold.

    >>> clean("a\\x00b")
    'a\\ufffdb'
    """
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def _attribute(value: Attribute) -> str:
    if isinstance(value, str):
        return clean(value)
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def html_text(element: Element) -> str:
    """The element as HTML. What stands in a ``script`` or ``style`` is written as it is."""
    return tostring(element, encoding="unicode", method="html")


def svg_file(element: Element) -> str:
    """An ``svg`` element as a file of its own."""
    whole = Element("svg", {"xmlns": SVG_NAMESPACE, **element.attrib})
    whole.extend(element)
    indent(whole)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(whole, encoding="unicode") + "\n"
