"""Words of an earlier private language do not come back: into pages, help, errors and reports, docstrings, comments and names."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
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

IN_NAMES = {
    **INSTEAD,
    r"tell( \w+)?": "state, report; distinguish",
    r"deal|dealt": "distribute",
    r"pulled": "read",
}
"""Patterns of words of an identifier, joined by spaces."""

IN_NAMES_OF = {
    "mapping": {
        r"around": "enclosing, outer, outside",
        r"shares": "axis partition",
        r"famil(y|ies)": "implicit set",
        r"ways": "placements, strategies",
    },
    "mapping/bounds": {r"whole": "untiled"},
    "mapping/solve": {r"whole": "untiled, outermost"},
    "sharding": {r"ways": "strategies", r"kept": "saved", r"prices?": "time, cost"},
    "network/bounds": {r"ways": "paths"},
    "cost": {r"around": "enclosing"},
    "execute": {r"around": "enclosing"},
    "rewrite": {r"around": "enclosing"},
    "simulate": {r"around": "enclosing"},
    "graphs": {r"prices?": "multiplier"},
    "training": {r"prices?": "multiplier"},
    "optim": {r"prices?": "multiplier"},
}
"""Patterns that are banned in the names of a package alone: elsewhere they are terms (shares of links, prices in USD)."""

RIGHT_NAMES = {
    ("sweeps/sampled.py", "tell"): "ask and tell: the interface of Optuna's samplers",
}
"""Names with a banned word that is right there, by module, with the reason. None is added; those that go are removed here."""

BANNED = re.compile(rf"\b(?:{'|'.join(INSTEAD)})\b")
CODE = re.compile(r"```.*?```|``[^`]*``|`[^`]*`", re.DOTALL)
EXAMPLE = re.compile(r"^ *>>> .*?(?=^ *$|\Z)", re.MULTILINE | re.DOTALL)


def faults(text: str, where: str, line: int = 1) -> list[str]:
    """Banned words of a text, with what to write instead. Code spans may have them: names in files do not change.

    >>> faults("Each cluster has room.", "page")
    ['page:1: room; write: capacity, memory budget']
    """
    plain = CODE.sub(_blank, text).lower()
    found = []
    for match in BANNED.finditer(plain):
        instead = next(term for word, term in INSTEAD.items() if re.fullmatch(word, match[0]))
        found.append(f"{where}:{line + plain[: match.start()].count(chr(10))}: {match[0]}; write: {instead}")
    return found


def pages() -> list[Path]:
    """Pages, templates of pages, and data with descriptions. Pages of studies are made from the texts in ``studies``."""
    found = [*ROOT.glob("*.md"), *(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "studies")]
    for folder in ("examples", "studies", "validation", "src"):
        found += [path for suffix in ("md", "yaml") for path in (ROOT / folder).rglob(f"*.{suffix}")]
    return sorted(path for path in found if path.name != "CHANGELOG.md")


def modules() -> list[Path]:
    folders = ("src", "studies", "validation", "benchmarks", "examples", "tests")
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def texts(path: Path) -> Iterator[tuple[str, int]]:
    """Strings of several words of a module, with their lines: those that reach users, docstrings, and all comments. Examples in
    docstrings have the names of the data that they show."""
    source = path.read_text(encoding="utf-8")
    if not BANNED.search(source.lower()):  # parsing takes most of the time
        return
    tree = ast.parse(source, str(path))
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if " " in text.strip():
                yield (EXAMPLE.sub(_blank, text) if id(node) in bare else text), node.lineno
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string, token.start[0]


def _blank(found: re.Match[str]) -> str:
    """As many lines without a word."""
    return re.sub(r"[^\n]", " ", found[0])


def test_pages_use_the_terms_of_the_field() -> None:
    where = ((path, str(path.relative_to(ROOT))) for path in pages())
    assert [fault for path, name in where for fault in faults(path.read_text(encoding="utf-8"), name)] == []


def test_texts_docstrings_and_comments_use_the_terms_of_the_field() -> None:
    found = [
        fault
        for path in modules()
        if path != Path(__file__)
        for text, line in texts(path)
        for fault in faults(text, str(path.relative_to(ROOT)), line)
    ]
    assert found == []


@pytest.mark.parametrize("word", ["told apart", "settles", "rivals", "in turn", "room", "priced", "dealt out", "worked off"])
def test_a_banned_word_is_found(word: str) -> None:
    assert len(faults(f"a line\nwith {word} in it", "page")) == 1
    assert faults(f"a line with `{word}` as code", "page") == []


def name_words(name: str) -> str:
    """The words of an identifier.

    >>> name_words("_tell_apart"), name_words("NEAR_OPTIMAL_GAP"), name_words("LeastSum")
    ('tell apart', 'near optimal gap', 'least sum')
    """
    return " ".join(word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name))


def names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Names that a module gives, with their lines: of functions, classes, arguments, attributes and variables."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                yield name, node.lineno
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, node.lineno


@cache
def patterns(folders: tuple[str, ...]) -> dict[str, str]:
    """What is banned in the names of some folders, and what to write instead."""
    return IN_NAMES | {word: instead for folder in folders for word, instead in IN_NAMES_OF[folder].items()}


@cache
def name_fault(name: str, folders: tuple[str, ...]) -> str:
    """The banned word of a name in modules of some folders, and what to write instead; "" for none."""
    banned, plain = patterns(folders), name_words(name)
    found = re.search(rf"\b(?:{'|'.join(banned)})\b", plain)
    if not found:
        return ""
    return f"{name} has {found[0]!r}; write: {next(term for word, term in banned.items() if re.fullmatch(word, found[0]))}"


def banned_names(module: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(name, fault) of every name with a banned word, the module's own included."""
    folders = tuple(folder for folder in IN_NAMES_OF if module.startswith(f"{folder}/"))
    for name, line in (*names(tree), (Path(module).stem, 1)):
        if fault := name_fault(name, folders):
            yield name, f"{module}:{line}: {fault}"


def test_names_use_the_terms_of_the_field() -> None:
    source = ROOT / "src" / "halley"
    found: dict[tuple[str, str], str] = {}
    for path in sorted(source.rglob("*.py")):
        module = path.relative_to(source).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"), module)
        found |= {(module, name): fault for name, fault in banned_names(module, tree)}
    assert [fault for key, fault in found.items() if key not in RIGHT_NAMES] == []
    assert RIGHT_NAMES.keys() - found.keys() == set()


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("cost/x.py", "def tell_apart(): ..."),
        ("cost/x.py", "class Settled: ..."),
        ("cost/x.py", "def f(in_turn): ..."),
        ("cost/x.py", "self.room = 1"),
        ("mapping/bounds/x.py", "whole_sizes = 1"),
        ("mapping/x.py", "family: int = 1"),
        ("report/crowded.py", ""),
    ],
)
def test_a_banned_name_is_found(module: str, text: str) -> None:
    assert len(list(banned_names(module, ast.parse(text)))) == 1
    assert list(banned_names("cost/x.py", ast.parse("whole = least_time = family = shares = 1"))) == []


VAGUE = """
AGAIN BELOW BEYOND CLOSED DEEPEST ERROR EVEN EVERYTHING EXACT FAITH FAR FEW FEWEST FLOOR LARGE LARGEST LEAST LESS LIMIT LONG
LONGEST MANY MET MORE MOST NEAR NEGLIGIBLE PARALLEL PATIENCE SAME SHARP SHARPER SMALL SOLVED UNEVEN UNREACHED WAIT
""".split()  # noqa: SIM905
"""Names of constants that give neither a meaning nor a unit: `RELATIVE_ROUNDING` says more than `SAME`."""


def is_number(node: ast.expr | None) -> bool:
    """Whether an expression is written with numbers alone: 60, -1e4, 2**20."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
    return False


def constant_faults(source: str, where: str) -> list[str]:
    """Numeric constants of a module whose name is vague, or that have neither a docstring nor a comment with meaning and unit.

    >>> constant_faults("SAME = 1e-9\\n", "x.py")
    ['x.py:1: SAME: a vague name', 'x.py:1: SAME: no docstring']
    """
    found, lines, body = [], source.splitlines(), ast.parse(source).body
    for node, after in zip(body, [*body[1:], None], strict=False):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)) if name.isupper():
                pass
            case _:
                continue
        if not is_number(node.value):
            continue
        commented = "#" in lines[node.lineno - 1] or lines[node.lineno - 2].startswith("#")
        documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        found += [f"{where}:{node.lineno}: {name}: a vague name"] if name.strip("_") in VAGUE else []
        found += [] if commented or documented else [f"{where}:{node.lineno}: {name}: no docstring"]
    return found


def test_numeric_constants_say_what_they_mean() -> None:
    source = ROOT / "src" / "halley"
    paths = ((path, path.relative_to(source).as_posix()) for path in sorted(source.rglob("*.py")))
    assert [fault for path, name in paths for fault in constant_faults(path.read_text(encoding="utf-8"), name)] == []


def test_a_vague_constant_is_found() -> None:
    assert len(constant_faults("FEW = 3\n", "x.py")) == 2
    assert len(constant_faults('_LESS: float = -1e-9\n"""Relative."""\n', "x.py")) == 1
    assert constant_faults('MAX_ROWS = 2**10\n"""Rows of a table."""\nWORDS = ("a",)\nTRIES = 3  # of a search\n', "x.py") == []
