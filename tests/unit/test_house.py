"""Rules of the house, read from the source: imports point one way, core stays light, nothing runs text as code."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "halley"

ORDER: tuple[tuple[str, ...], ...] = (
    ("answer", "errors", "processes", "version"),
    ("units",),
    ("formulas",),
    ("ir", "optim"),
    ("network", "silicon"),
    ("library", "workloads", "rewrite", "execute", "simulate"),
    ("cost",),
    ("mapping",),
    ("kernels",),
    ("sharding", "pipeline", "spatial"),
    ("memory", "dfmodel"),
    ("graphs", "training", "serving"),
    ("verify",),
    ("io",),
    ("importers", "launch", "measure"),
    ("sweeps",),
    ("report",),
    ("answers",),
    ("products",),
    ("cli",),
)
"""Packages from the lowest to the highest: a package imports from lower rows and from itself, never from its own row's others."""

RANK = {package: rank for rank, row in enumerate(ORDER) for package in row}
HEAVY = ("typer", "rich", "pydantic", "yaml", "click", "numba", "llvmlite", "scipy")
DIRECTORIES = ("src", "tests", "benchmarks", "examples", "validation", "studies")


def files(*directories: str) -> list[Path]:
    return sorted(path for directory in directories for path in (ROOT / directory).rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def package(module: str) -> str:
    """``halley.cost.events`` -> ``cost``."""
    return module.split(".")[1]


def own(path: Path) -> str:
    """The package that a file of the source belongs to; "" for ``halley/__init__.py`` and ``__main__.py``, which import all."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return "" if parts in (("__init__",), ("__main__",)) else parts[0]


def imported(node: ast.AST) -> Iterator[tuple[str, int]]:
    """(module, line) of an import statement."""
    match node:
        case ast.Import(names=names):
            yield from ((name.name, node.lineno) for name in names)
        case ast.ImportFrom(module=str(module), level=0, names=names):
            # `from halley import cost` names the package in what it imports
            modules = [f"halley.{name.name}" for name in names] if module == "halley" else [module]
            yield from ((name, node.lineno) for name in modules)


MODULES = frozenset(
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__") for path in files("src")
)
"""The modules of the source: ``halley.ir.text``."""


def named(path: Path) -> Iterator[tuple[str, int]]:
    """(module, line) of each string that names a module of the source: what `import_module` loads when it is needed."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Constant) and node.value in MODULES and node.value != "halley":
            yield str(node.value), node.lineno


def all_imports(path: Path) -> list[tuple[str, int]]:
    """(module, line) of import statements and of modules loaded by name."""
    return [*(item for node in ast.walk(tree(path)) for item in imported(node)), *named(path)]


def for_types_only(path: Path) -> set[int]:
    """Lines under ``if TYPE_CHECKING:``, which never run."""
    guards = (n for n in ast.walk(tree(path)) if isinstance(n, ast.If) and ast.unparse(n.test).endswith("TYPE_CHECKING"))
    return {inner.lineno for guard in guards for inner in ast.walk(guard) if isinstance(inner, ast.stmt)}


LOADED_BY_VALUES = ("answer", "halley.answers.load")
"""What a product returns shows, saves and checks itself: the first time it is asked to, it loads the package of answers, which
stands on all packages with products, by its name. The only load against the order."""


def wrong_way(path: Path) -> list[str]:
    """Imports of a higher package, or of another one in the same row."""
    mine, found = own(path), []
    for module, line in all_imports(path):
        if not mine or not module.startswith("halley.") or (mine, module) == LOADED_BY_VALUES:
            continue
        other = package(module)
        if other != mine and RANK[other] >= RANK[mine]:
            found.append(f"{short(path)}:{line}: {mine} imports {module}")
    return found


def test_imports_point_one_way() -> None:
    assert [fault for path in files("src") for fault in wrong_way(path)] == []


ORACLES = ("execute", "simulate")
"""Packages that answers are verified by."""

SEARCHES = ("formulas", "optim", "network", "silicon", "rewrite", "cost", "mapping", "kernels", "sharding", "pipeline", "spatial")
SEARCHES += ("memory", "dfmodel", "graphs", "training", "serving", "sweeps")
"""Packages that make answers."""


def test_searches_do_not_import_the_oracles() -> None:
    """What verifies an answer shares no code with what found it."""
    found = [
        f"{short(path)}:{line}: {module}"
        for path in files("src")
        if own(path) in SEARCHES
        for module, line in all_imports(path)
        if module.startswith("halley.") and package(module) in ORACLES
    ]
    assert found == []
    assert set(SEARCHES) < set(RANK)


def test_every_package_has_its_place_in_the_order() -> None:
    assert {own(path) for path in files("src")} - {""} == set(RANK)


def test_a_wrong_import_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check itself can fail."""
    text = "from halley.mapping.optimise import optimise\nfrom halley import io\nfrom halley.ir.mapping import Hold\n"
    text += "import_module('halley.report.table')\n"
    monkeypatch.setattr(sys.modules[__name__], "tree", lambda path: ast.parse(text))
    faults = wrong_way(SOURCE / "cost" / "evaluate.py")
    wrong = ["halley.mapping.optimise", "halley.io", "halley.report.table"]
    assert [fault.split(": ")[1] for fault in faults] == [f"cost imports {module}" for module in wrong]


def room(module: str) -> str:
    """The folder of a module: ``halley.network.graph.routes`` -> ``network.graph``.

    >>> room("halley.units"), room("halley.network.graph.routes")
    ('units', 'network.graph')
    """
    parts = module.split(".")[1:]
    return ".".join(parts[:-1] or parts)


def test_no_circles_between_folders() -> None:
    """A folder and the folders that it imports from, directly or through others, never import from it. Types count too."""
    modules = {".".join(path.relative_to(SOURCE.parent).with_suffix("").parts) for path in files("src")}
    graph: dict[str, set[str]] = {}
    for path in files("src"):
        own_room = room(".".join(path.relative_to(SOURCE.parent).with_suffix("").parts))
        if not own(path):
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("halley."):
                found = [node.module] if node.module in modules else [f"{node.module}.{name.name}" for name in node.names]
                graph.setdefault(own_room, set()).update({room(name) for name in found} - {own_room})
        if own(path) != "cli":  # whose registry of commands loads each of them by its name
            loaded = {name for name, _ in named(path) if (own(path), name) != LOADED_BY_VALUES}
            graph.setdefault(own_room, set()).update({room(name) for name in loaded} - {own_room})
    order: list[str] = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name not in order:
            for other in sorted(graph.get(name, ())):
                visit(other, (*path, name))
            order.append(name)

    for name in sorted(graph):
        visit(name, ())


def test_the_page_on_packages_has_all_of_them_in_order() -> None:
    page = (ROOT / "docs" / "packages.md").read_text(encoding="utf-8")
    rows = [row.split("|")[1] for row in page.splitlines() if row.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]
    modules = [path.relative_to(SOURCE.parent).with_suffix("").parts for path in files("src") if path.name != "__init__.py"]
    folders = {room(".".join(module)) for module in modules}
    inside = {"io", "report", "cli"}  # their folders stand in their rows
    assert {name for name in folders if name.split(".")[0] not in inside} <= {*named, "__init__", "__main__"}
    ranks = [RANK[name.split(".")[0]] for name in named]
    assert ranks == sorted(ranks)


MODULES_IN_FOLDER = 20
"""Most modules of a folder, beside its ``__init__.py``: what a newcomer can take in."""


def test_folders_are_small() -> None:
    sizes = Counter(str(path.parent.relative_to(SOURCE)) for path in files("src") if path.name != "__init__.py")
    assert {name: size for name, size in sizes.items() if size > MODULES_IN_FOLDER} == {}


def test_no_cycles_between_modules() -> None:
    """Modules of one package may import each other, but not in a circle."""
    graph: dict[str, set[str]] = {}
    for path in files("src"):
        name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        typed = for_types_only(path)
        found = (item for node in ast.walk(tree(path)) for item in imported(node))
        graph[name] = {module for module, line in found if module.startswith("halley.") and line not in typed}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name not in done:
            for other in sorted(graph.get(name, ())):
                visit(other, (*path, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())


def test_no_import_inside_a_function() -> None:
    """Imports are at the top, so that the order above is the whole truth. A command line may load a command when it is called."""
    found = []
    for path in files("src"):
        if own(path) == "cli":
            continue
        for function in ast.walk(tree(path)):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                inside = (n for n in ast.walk(function) if isinstance(n, (ast.Import, ast.ImportFrom)))
                found += [f"{short(path)}:{node.lineno}" for node in inside]
    assert found == []


DOMAIN = re.compile(r"(?i)(?<![a-z])(mapping|kernel|tile|chip|plan|shard|tensor|workload|engine|collective)(s|ed|ing)?(?![a-z])")
"""Words of the domain, also as parts of names in capitals and small letters: ``open_tiles``."""


def test_optimisation_has_no_words_of_the_domain() -> None:
    """What `halley.optim` holds is for any problem; ``typing.Mapping`` is not the domain's mapping."""
    found = [
        f"{short(path)}:{number}: {word.group()}"
        for path in (SOURCE / "optim").glob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for word in DOMAIN.finditer(re.sub(r"\bMapping\b(?=[\[,\n]|$)", "", line).replace("_", " "))
    ]
    assert found == []


GAP = re.compile(r"/ *\(?(self\.|found\.|certificate\.)?bound\)? *- *1\b")


def test_the_gap_is_computed_once() -> None:
    """`halley.answer.relative_gap` alone subtracts 1 from the value over the bound."""
    found = [
        f"{short(path)}:{node.lineno}"
        for path in files("src")
        if path != SOURCE / "answer.py"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.BinOp) and GAP.search(ast.unparse(node))
    ]
    assert found == []
    assert GAP.search("self.value / self.bound - 1")
    assert GAP.search("value / bound - 1.0")


def shared_class_names(paths: list[Path]) -> dict[str, list[str]]:
    """By name, the files of public classes at the top of modules, where more than one has the name."""
    found: dict[str, list[str]] = {}
    for path in paths:
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(short(path))
    return {name: places for name, places in found.items() if len(places) > 1}


def test_one_class_name_has_one_meaning() -> None:
    assert shared_class_names(files("src")) == {}


def test_shared_class_names_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check itself can fail."""
    monkeypatch.setattr(sys.modules[__name__], "tree", lambda path: ast.parse("class Step: ...\nclass _Own: ...\n"))
    assert list(shared_class_names([SOURCE / "units.py", SOURCE / "errors.py"])) == ["Step"]


FORBIDDEN_CALLS = ("eval", "exec", "compile", "__import__")
FORBIDDEN_MODULES = ("pickle", "cPickle", "shelve", "marshal", "dill", "cloudpickle")


def dangers(path: Path) -> list[str]:
    """Where text or a file could run as code, or an error be swallowed whole."""
    found = []
    for node in ast.walk(tree(path)):
        at = f"{short(path)}:{getattr(node, 'lineno', 0)}"
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_CALLS:
                found.append(f"{at}: {name}()")
            case ast.Import() | ast.ImportFrom():
                found += [f"{at}: {m}" for m, _ in imported(node) if m.split(".")[0] in FORBIDDEN_MODULES]
            case ast.ExceptHandler(type=None):
                found.append(f"{at}: bare except")
            case ast.keyword(arg="shell", value=ast.Constant(value=True)):
                found.append(f"{at}: shell=True")
            case ast.keyword(arg="allow_pickle", value=ast.Constant(value=True)):
                found.append(f"{at}: allow_pickle")
            case ast.Attribute(value=ast.Name(id="yaml"), attr="load" | "unsafe_load" | "full_load" | "load_all"):
                found.append(f"{at}: yaml.{node.attr}")
    return found


def test_nothing_runs_text_as_code() -> None:
    assert [danger for path in files("src", "benchmarks", "examples", "validation", "studies") for danger in dangers(path)] == []


def test_dangers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check itself can fail."""
    text = "import pickle\ntry:\n    eval('1')\nexcept:\n    pass\nyaml.load(x)\nrun(x, shell=True)\n"
    monkeypatch.setattr(sys.modules[__name__], "tree", lambda path: ast.parse(text))
    assert len(dangers(SOURCE / "units.py")) == 5


def test_user_input_is_not_checked_by_assert() -> None:
    """``python -O`` drops asserts: whatever reads files and flags raises instead."""
    found = [
        f"{short(path)}:{node.lineno}"
        for path in files("src")
        if own(path) in ("io", "cli", "workloads", "library", "errors", "units")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Assert)
    ]
    assert found == []


@pytest.mark.parametrize("path", files(*DIRECTORIES), ids=short)
def test_files_say_what_they_are(path: Path) -> None:
    if path.read_text(encoding="utf-8").strip():
        assert ast.get_docstring(tree(path)), "a module docstring says the file's subject"


def test_no_machine_paths() -> None:
    """Nothing in the repository depends on where somebody happened to work."""
    marks = [f"/{word}/" for word in ("home", "root", "work", "tmp", "Users")]
    suffixes = {".py", ".md", ".yaml", ".yml", ".toml", ".json", ".svg", ".html"}
    found = []
    for top in (*DIRECTORIES, "docs", ".ci"):
        for path in (ROOT / top).rglob("*"):
            if path.is_file() and (path.suffix in suffixes or top == ".ci") and path != Path(__file__):
                text = path.read_text(encoding="utf-8")
                found += [f"{short(path)}: {mark}" for mark in marks if mark in text]
    assert found == []


def fresh_python(code: str) -> str:
    """What a new interpreter prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=600).stdout


@pytest.mark.parametrize("module", ["halley", "halley.cost.evaluate", "halley.mapping.optimise", "halley.execute.interpreter"])
def test_core_pulls_in_no_heavy_module(module: str) -> None:
    """Costing and searching need NumPy alone; files, terminal and command line bring their own."""
    loaded = json.loads(fresh_python(f"import sys, json, {module}; print(json.dumps(sorted(sys.modules)))"))
    assert [name for name in HEAVY if name in loaded] == []


def test_what_the_first_page_shows_is_what_one_gets() -> None:
    """The Python of README.md runs, and finds the mapping and the time that the picture has."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    picture, code = (page.split(f"```{language}\n")[1].split("```")[0] for language in ("text", "python"))
    printed = fresh_python(code)
    shown = re.findall(r"^ *\d+ ( *\S.*?) {2,}[\d.]+ [num]?s ", picture, re.MULTILINE)
    words = ("hold", "for", "spread", "sequence", "overlap", "compute", "all-reduce")
    plan = [line for line in printed.splitlines() if line.strip().startswith(words)]
    root = len(shown[0]) - len(shown[0].lstrip())
    assert [line[root:] for line in shown] == plan
    mappings, least = re.findall(r"optimal: of ([\d,.e+]+) mappings, none takes less time than ([\d.]+ us)", picture)[0]
    searched = re.findall(r"([\d,]+) mappings", printed)[0]
    assert mappings in (searched, f"{int(searched.replace(',', '')):.2e}")  # large numbers are rounded on the command line
    (time,) = re.findall(r"\n([\d.]+) us,", printed)  # the command line omits zeros at the end
    assert float(time) == float(least.split()[0])


def test_links_in_the_documents_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    found = []
    for page in pages:
        for target in links(page.read_text(encoding="utf-8")):
            if not (page.parent / target).exists():
                found.append(f"{short(page)}: {target}")
    assert found == []


def links(text: str) -> list[str]:
    """Relative targets of the links in a page.

    >>> links("see [a](b.md#part), ![c](d.svg) and [e](https://f)")
    ['b.md', 'd.svg']
    """
    outside = "".join(part for index, part in enumerate(text.split("```")) if index % 2 == 0)
    targets = [piece.split(")")[0].split("#")[0] for piece in outside.split("](")[1:]]
    return [target for target in targets if target and "://" not in target and not target.startswith("mailto:")]
