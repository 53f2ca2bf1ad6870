"""Tables as HTML, for pages and for notebooks. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree.ElementTree import Element

from halley.report.markup import el, html_text
from halley.report.table import Table

BLOCK = "█"
"""What a bar in a table is made of."""
BREAKABLE_CHARACTERS = 24
"""Characters of a word from which on it may be broken, so that no table is wider than its page."""


NARROW = 24
"""Characters of a cell that a narrow screen shows in one line."""


def table(shown: Table, kind: str = "", titled: bool = True) -> Element:
    """A table as an element, with its title unless a heading says the same. ``kind``: its class; tables without a head are
    ``pairs``. What the alignment and the bold rows say is written on the cells, as notebooks bring no style sheet.

    >>> html_text(table(Table("t", ("a",), (("<b>",),))))
    '<table><caption>t</caption><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    headed = any(shown.head)
    kind = kind or ("" if headed else "pairs")
    made = el("table", **({"class": kind} if kind else {}))
    if titled and shown.title:
        made.append(el("caption", shown.title))
    if headed:
        made.append(el("thead", _row("th", shown.head, shown.right)))
    body = (_row("td", row, shown.right, index in shown.strong) for index, row in enumerate(shown.rows))
    made.append(el("tbody", *body))
    return made


def _row(tag: str, cells: Iterable[str], right: frozenset[int], strong: bool = False) -> Element:
    row = el("tr", **({"class": "strong", "style": "font-weight:600"} if strong else {}))
    for position, cell in enumerate(cells):
        long = any(len(word) > BREAKABLE_CHARACTERS for word in cell.split())
        kinds = [name for name, holds in (("long", long), ("words", tag == "td" and len(cell) > NARROW)) if holds]
        aligned = {"class": " ".join(kinds)} if kinds else {}
        if position in right:
            aligned = {"class": "right", "style": "text-align:right"}
        if cell.strip() and not cell.strip(BLOCK + " "):
            # a bar of characters, as terminals have it; notebooks bring no style sheet
            drawn = f"width:{0.5 * cell.count(BLOCK):g}em;height:1em;background:var(--bar,#b9d7ea)"
            row.append(el(tag, el("div", class_="bar", style=drawn)))
            continue
        # the indentation of a tree is its meaning
        words = cell.lstrip(" ")
        first, *further = ("\N{NO-BREAK SPACE}" * (len(cell) - len(words)) + words).split("\n")
        row.append(el(tag, first, *(part for line in further for part in (el("br"), line)), **aligned))
    return row


def table_html(shown: Table) -> str:
    """One table as text."""
    return html_text(table(shown))
