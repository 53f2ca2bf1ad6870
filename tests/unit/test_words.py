"""Words of an earlier private language do not come back into what users read: pages, help, errors, output and reports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

INSTEAD = {
    r"told( apart)?": "state, describe; distinguish",
    r"settl(e|es|ed|ing)": "decide; Pareto search at fixed shared tiles",
    r"hopeless": "pruned",
    r"rivals?": "incumbents; other plans",
    r"in turn": "sequentially, one after the other",
    r"sharpen(s|ed|ing)?": "tighten (a bound)",
    r"(cost|what is|what stands|loops) around": "cost outside the stages; enclosing",
    r"(stages on )?shares of (an?|one|the|each) ax[ei]s|stages on shares": "partitions of an axis",
    r"famil(y|ies) of (mappings|frames|stages)": "implicit set",
    r"crowded": "over capacity",
    r"sift(s|ed|ing)?": "prune",
    r"weigh(s|ed|ing)?": "bound; matter",
    r"squeez(e|es|ed|ing)": "re-shard under the budget",
    r"room": "capacity, memory budget",
    r"ways (to|of|that) (map|cut|split|shard|share)\w*|ways? to share": "sharding strategies, mapping strategies",
    r"kept (activations|for the backward)": "saved activations",
    r"priced|price of (a )?(time|mapping|plan|second)s?": "time, cost; Lagrange multiplier",
    r"lies? in (the |a )?(memory|buffer|dram|sram|hbm)": "is held in",
    r"(dealt|dealing|deals?) out": "distributed",
    r"(shared|shares?|sharing)[ -]out": "distributed, sharded",
    r"work(s|ed|ing)? off": "processed",
    r"(go|goes|went|going) past": "bypasses",
    r"pulled (from|in|into|through|by)": "read",
    r"held for several inner tiles": "operand-stationary inner loop",
    r"in (its|their) turn": "then, one after the other",
    r"(it|they|plans?|others?|alternatives?|algorithms?|candidates?) loses?": "is slower",
    r"nothing hides|hidden by nothing": "exposed",
    r"(the time|it|its time) goes to": "breakdown of the time",
    r"(is|are) done last": "finishes last",
    r"(needs|with) nothing beside (it|itself)": "self-contained",
    r"computed again|made anew": "recomputed",
    r"before there was one|let it run longer": "before the first one",
    r"as fast as can be|just as hard|whatever happens": "a plain statement",
    r"told already": "reported before",
}
"""Patterns of words, and the terms of the field to use instead."""

BANNED = re.compile("|".join(rf"(?P<w{number}>\b(?:{word})\b)" for number, word in enumerate(INSTEAD)), re.IGNORECASE)
CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)


def faults(text: str, where: str, line: int = 1) -> list[str]:
    """Banned words of a text, with what to write instead. Code spans may have them: names in files do not change.

    >>> faults("Each cluster has room.", "page")
    ['page:1: room; write: capacity, memory budget']
    """
    plain = CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)
    found = []
    for match in BANNED.finditer(plain):
        instead = next(term for number, term in enumerate(INSTEAD.values()) if match[f"w{number}"])
        found.append(f"{where}:{line + plain[: match.start()].count(chr(10))}: {match[0]}; write: {instead}")
    return found


def pages() -> list[Path]:
    """Pages, templates of pages, and data with descriptions. Pages of studies are made from the texts in ``studies``."""
    found = [*ROOT.glob("*.md"), *(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "studies")]
    for folder in ("examples", "studies", "validation", "src"):
        found += [path for suffix in ("md", "yaml") for path in (ROOT / folder).rglob(f"*.{suffix}")]
    return sorted(path for path in found if path.name != "CHANGELOG.md")


def modules() -> list[Path]:
    folders = ("src", "studies", "validation", "benchmarks", "examples")
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def texts(path: Path) -> Iterator[tuple[str, int]]:
    """Texts of a module that reach users, with their lines: strings of several words; docstrings of the command line alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if " " in text.strip() and (id(node) not in bare or "cli" in path.parts):
                yield text, node.lineno


def test_pages_use_the_terms_of_the_field() -> None:
    where = ((path, str(path.relative_to(ROOT))) for path in pages())
    assert [fault for path, name in where for fault in faults(path.read_text(encoding="utf-8"), name)] == []


def test_texts_of_the_program_use_the_terms_of_the_field() -> None:
    found = [
        fault for path in modules() for text, line in texts(path) for fault in faults(text, str(path.relative_to(ROOT)), line)
    ]
    assert found == []


@pytest.mark.parametrize("word", ["told apart", "settles", "rivals", "in turn", "room", "priced", "dealt out", "worked off"])
def test_a_banned_word_is_found(word: str) -> None:
    assert len(faults(f"a line\nwith {word} in it", "page")) == 1
    assert faults(f"a line with `{word}` as code", "page") == []
