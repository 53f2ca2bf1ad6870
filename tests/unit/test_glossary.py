"""The glossary is in order, and has the words of the tables that commands print."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from halley.mapping.baselines import BASELINES
from halley.mapping.declared_space import LEFT_OUT, SPACE
from halley.report.mapping.causes import LATENCY, RAMPS, SERIAL, STAGES
from halley.report.plans.plan import ACCOUNT, HELD
from halley.report.serving.plan import front_table
from halley.report.serving.speculation import speculation_table
from halley.serving.speculation import Round
from halley.serving.step import PARTS

PAGE = Path(__file__).parents[2] / "docs" / "glossary.md"
ROWS = [row.split(" | ") for row in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| (?!term )[^-]", row)]
TERMS = [row[0].removeprefix("| ") for row in ROWS]


def letters(term: str) -> str:
    """What terms are ordered by.

    >>> letters("`Partial`"), letters("all-reduce")
    ('partial', 'all reduce')
    """
    return re.sub(r"[^a-z0-9 ]", "", term.lower().replace("-", " "))


def singular(term: str) -> str:
    """
    >>> singular("backward passes"), singular("weights"), singular("FlashDecoding style (`flash-decoding`)")
    ('backward pass', 'weight', 'FlashDecoding style')
    """
    plain = re.sub(r" \(.*\)", "", term).replace("`", "")
    return re.sub(r"(?<=ss)es$|(?<!s)s$", "", plain)


def test_terms_are_in_order_and_each_has_one_entry() -> None:
    assert sorted(TERMS, key=letters) == TERMS
    assert len(set(TERMS)) == len(TERMS)
    assert all(len(row[1].split()) > 1 for row in ROWS)


def test_entries_that_refer_to_others_find_them() -> None:
    targets = [row[1].removeprefix("see ") for row in ROWS if row[1].startswith("see ")]
    assert [
        each for part in targets for each in re.split(r", | or ", part) if not any(each.strip("`") in term for term in TERMS)
    ] == []


def test_words_of_the_tables_have_entries() -> None:
    shown = [*ACCOUNT.values(), *HELD.values(), LATENCY, RAMPS, SERIAL, STAGES, *(each.name for each in BASELINES.values())]
    entries = {singular(term) for term in TERMS}
    assert [word for word in shown if singular(word) not in entries] == []
    assert all(any(f"`{word}`" in term for term in TERMS) for word in BASELINES)


def words(texts: Iterable[str]) -> set[str]:
    """Single words in the singular.

    >>> sorted(words(["tile sizes", "box (of tensors)"]))
    ['box', 'of', 'size', 'tensor', 'tile']
    """
    return {
        IRREGULAR.get(word, re.sub(r"(?<![is])s$", "", word))
        for text in texts
        for word in re.findall(r"[a-z]+(?:-[a-z]+)*", text.lower())
    }


IRREGULAR = {"axes": "axis", "indices": "index", "matrices": "matrix"}


NOUNS = """area | box | bus bandwidth | co-design | downset | draft | incumbent | interval | layout | pool | redistribution
| residual | skeleton | store | virtual stage"""
"""Nouns of pages and answers that no table below has."""

PLAIN = {"a", "across", "further", "in", "of", "one", "other", "parallel", "under", "with", "within"}
"""Words of English, not of the field."""

OF_SERVING = [*speculation_table([Round(1, 1.0, 1.0, 1.0, 1.0)]).head, *front_table((), 1).head, *PARTS.values()]
"""Heads of the tables on deployments, and the parts of a step's time."""


def test_nouns_that_users_see_have_entries() -> None:
    entries = {singular(term) for term in TERMS}
    assert [noun for noun in re.split(r"\s*\|\s*", NOUNS) if noun not in entries] == []


@pytest.mark.parametrize("shown", [[clause.what for clause in (*SPACE, *LEFT_OUT)], OF_SERVING], ids=["space", "serving"])
def test_words_of_answers_are_in_the_glossary(shown: list[str]) -> None:
    """Each word of the choices of a search and of the tables of deployments, in the term of some entry."""
    assert sorted(words(shown) - words(TERMS) - PLAIN) == []
