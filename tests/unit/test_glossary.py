"""The glossary is in order, and has the words of the tables that commands print."""

from __future__ import annotations

import re
from pathlib import Path

from halley.mapping.baselines import BASELINES
from halley.report.mapping.causes import LATENCY, RAMPS, SERIAL, STAGES
from halley.report.plans.plan import ACCOUNT, HELD

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
