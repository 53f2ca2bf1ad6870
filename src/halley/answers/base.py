"""What every answer can do. Each kind of answer fills in how (`halley.answers.load.KINDS`)."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, cast
from xml.etree.ElementTree import Element

from rich.console import Console
from rich.text import Text

from halley.answer import Answerable, Certificate
from halley.errors import BadInput, Fault, HalleyError, did_you_mean
from halley.io.files.save import dumps, write_atomic
from halley.io.results.envelope import Plain, Saved
from halley.io.results.models import AnswerFile
from halley.report.browser import png_file
from halley.report.html_tables import table_html
from halley.report.markup import svg_file
from halley.report.rows import Row, csv_text, frame
from halley.report.table import Table
from halley.report.terminal import show as shown
from halley.verify.findings import Finding, Progress, figures

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two answers side by side: ``tables`` of what differs and why one is slower, and the same as plain data (``document``).
    ``questions``: what the answers were asked differently, so that not only their decisions differ."""

    tables: tuple[Table, ...]
    document: Plain
    questions: tuple[str, ...] = ()

    @property
    def remark(self) -> str:
        """The same as a sentence, if there is anything."""
        words = f"the questions differ in {', '.join(self.questions)}: not only decisions make the difference"
        return words if self.questions else ""

    def show(self) -> None:
        """Print the remark, if there is one, and the tables."""
        if self.remark:
            _console().print(Text(self.remark))
        shown(_console(), self.tables)


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure as text of an SVG file, which notebooks show."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg


@dataclass(frozen=True, eq=False)
class Answer(ABC, Generic[V]):
    """An answer: its ``value``, computed or computed anew from a file. ``saved``: what the file says, None for an answer that is
    from no file; ``remark``: what changed since the version of the file."""

    value: V
    saved: Plain | None = None
    remark: str = ""

    kind: ClassVar[str]
    """What files call it."""
    family: ClassVar[str]
    """Answers of one family can be compared."""
    file: ClassVar[type[AnswerFile]]
    """The form of a file."""

    # --- what each kind fills in ---------------------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def read(cls, saved: Saved) -> Answer[V]:
        """The answer in a file, its figures computed anew. Raises BadInput, IllegalMapping, Infeasible: what is wrong with it."""

    @property
    @abstractmethod
    def certificate(self) -> Certificate | None:
        """How good the answer is; None where nothing was searched."""

    @abstractmethod
    def document(self) -> Plain:
        """The content of a file, from the answer as it is now."""

    @abstractmethod
    def lines(self) -> tuple[str, ...]:
        """What was asked, and what is proven."""

    @abstractmethod
    def tables(self, details: bool = False) -> list[Table]:
        """All that is to be shown; ``details``: every op, every candidate."""

    @abstractmethod
    def explained(self, part: str) -> list[Table]:
        """Where the time goes and what limits it; or, of the ``part`` of that name, where its numbers come from.

        Raises BadInput: there is no such part."""

    @abstractmethod
    def own_findings(self, limit: float, search: bool, progress: Progress | None) -> Iterator[Finding]:
        """What a verification of the value finds (`halley.verify`)."""

    @abstractmethod
    def sheets(self) -> Mapping[str, Callable[[], Iterable[Row]]]:
        """Tables of bare numbers, by name."""

    @abstractmethod
    def pictures(self) -> Mapping[str, Callable[[], Element]]:
        """Figures, by name."""

    @abstractmethod
    def page(self) -> str:
        """The report as HTML."""

    @abstractmethod
    def compared(self, other: Answer[Any], names: tuple[str, str]) -> Comparison:
        """This answer and another of its family, by their ``names``."""

    def op_text(self, name: str) -> str:
        """One op as a mapping from the outermost axis of the system to the array of the chip, as text of the mapping language;
        what that does not say is in its comments. Raises BadInput: the answer has no such mapping, or no op of that name."""
        raise BadInput(Fault("--op", "a plan of training, from halley plan", f"a {self.kind}", "leave it out"))

    # --- what all do alike ---------------------------------------------------------------------------------------------------

    def content(self) -> Plain:
        """The content of a file: as it was read, or as it would be written."""
        return self.saved if self.saved is not None else self.document()

    def save(self, path: str | Path, force: bool = False) -> None:
        """Write the file, with figures computed anew. Raises BadInput: the file exists and ``force`` is not set, or cannot be
        written."""
        document = self.document()
        if self.saved is not None and "provenance" in self.saved:
            document["provenance"] = self.saved["provenance"]
        write_atomic(path, dumps(document), force)

    def show(self, details: bool = False) -> None:
        """Print what was asked, what is proven, and all tables."""
        console = _console()
        for place, line in enumerate(self.lines()):
            console.print(Text(line, style="" if place else "bold"))
        shown(console, self.tables(details))

    def findings(self, limit: float = 60.0, search: bool = True, progress: Progress | None = None) -> Iterator[Finding]:
        """The findings of a check, one after the other: figures of the file against those computed anew, then what
        `halley.verify` finds. ``limit`` [s] of a search; ``search``: whether to search again."""
        if self.saved is not None:
            yield self._same_figures()
        yield from self.own_findings(limit, search, progress)

    def _same_figures(self) -> Finding:
        # what made the file, and how long that took, nobody can compute anew
        both = self.content(), _plain(self)
        saved, found = ({key: item for key, item in each.items() if key != "provenance"} for each in both)
        return figures("file", saved, found)

    def check(self, limit: float = 60.0, search: bool = True) -> list[Finding]:
        """All findings. The answer is as it should be if none of them has ``passed`` False."""
        return list(self.findings(limit, search))

    def report(self, path: str | Path, force: bool = False) -> None:
        """Write the report as one HTML file. Raises BadInput: as `save`."""
        write_atomic(path, self.page(), force)

    def compare(self, other: Answer[Any] | Answerable, names: tuple[str, str] = ("this one", "the other")) -> Comparison:
        """What differs between two answers, and why one is slower. Raises BadInput: answers of unlike kinds."""
        if isinstance(other, Answerable):
            other = cast(Answer[Any], other.answer())
        if self.family != other.family:
            expected = f"two answers of one kind, such as two of {self.kind}"
            raise BadInput(Fault(f"comparison of {names[0]} and {names[1]}", expected, f"a {self.kind} and a {other.kind}"))
        found, questions = self.compared(other, names), _different(self, other)
        return replace(found, document={**found.document, "different_questions": list(questions)}, questions=questions)

    def explain(self, part: str = "") -> list[Table]:
        """As `explained`."""
        return self.explained(part)

    def table(self, name: str) -> str:
        """Bare numbers as CSV, in SI units. Raises BadInput: there is no table of that name."""
        known = self.sheets()
        return csv_text(known[_named("TABLE", name, known, self.kind)]())

    def to_dict(self) -> Plain:
        """The content of a file, with figures computed anew, as plain data in SI units."""
        return _plain(self)

    def to_frame(self, name: str = "") -> Any:
        """Bare numbers, the first table unless it is named, as a data frame of pandas, or of polars where there is no pandas.

        Raises BadInput: there is no table of that name; neither package is installed."""
        return frame(self.table(name or next(iter(self.sheets()))))

    def plot(self, name: str = "") -> Picture:
        """A figure, the first unless it is named, which notebooks show. Raises BadInput: there is none of that name."""
        return Picture(svg_file(self.drawn(name)))

    def _repr_html_(self) -> str:
        lines = [f"<b>{escape(line)}</b>" if place == 0 else escape(line) for place, line in enumerate(self.lines())]
        return f"<p>{'<br>'.join(lines)}</p>" + "".join(map(table_html, self.tables()))

    def figure(self, path: str | Path, name: str = "", force: bool = False) -> None:
        """Write a figure, the first unless it is named: .svg, or .png, which needs an installed Chromium.

        Raises BadInput: there is no figure of that name, another ending, or as `save`."""
        suffix = Path(path).suffix.lower()
        if suffix not in (".svg", ".png"):
            raise BadInput(Fault(str(path), "a name that ends in .svg or .png", repr(str(path))))
        drawn = self.drawn(name)
        write_atomic(path, svg_file(drawn) if suffix == ".svg" else png_file(drawn), force)

    def drawn(self, name: str = "") -> Element:
        """A figure as an SVG element, the first unless it is named. Raises BadInput: there is none of that name."""
        known = self.pictures()
        return known[_named("FIGURE", name or next(iter(known)), known, self.kind)]()


QUESTIONS = ("workload", "chip", "objective", "model", "models", "system", "batch", "sequence", "load", "lengths")
QUESTIONS_OF_COLLECTIVES = ("collective", "network", "size", "ranks", "beside")
"""Parts of a question; the others are limits of the search, or decisions that the user fixed."""


def _different(one: Answer[Any], other: Answer[Any]) -> tuple[str, ...]:
    """Parts of their questions in which two answers differ; variants of a workload compute the same."""
    asked = [dict(_plain(each)["question"]) for each in (one, other)]
    for each in asked:
        if isinstance(work := each.get("workload"), dict) and isinstance(work.get("parameters"), dict):
            each["workload"] = work | {"parameters": {**work["parameters"], "variant": ""}}
    both = [name for name in (*QUESTIONS, *QUESTIONS_OF_COLLECTIVES) if all(name in each for each in asked)]
    return tuple(name for name in both if asked[0][name] != asked[1][name])


def _named(where: str, name: str, known: Mapping[str, object], kind: str) -> str:
    if name not in known:
        raise BadInput(Fault(where, f"{', '.join(known)}, of a {kind}", repr(name), did_you_mean(name, known)))
    return name


def _plain(answer: Answer[Any]) -> Plain:
    return dict(json.loads(dumps(answer.document())))


def _console() -> Console:
    return Console(file=sys.stdout, highlight=False)


def unknown_part(part: str, known: Iterable[str]) -> BadInput:
    """The error of a part of an answer that cannot be explained, with those that can."""
    names = list(known)
    return BadInput(Fault("PART", f"one of: {', '.join(names)}", repr(part), did_you_mean(part, names)))


def verified(cls: type[Answer[Any]], saved: Saved, limit: float, search: bool, progress: Progress | None) -> Iterator[Finding]:
    """The findings of a file: decisions that cannot be are one of them, and no error.

    Raises BadInput: a file of another form.
    """
    saved.checked(cls.file)
    yield Finding("file", "form", True, f"{saved.name} holds an answer of the kind {saved.kind}")
    try:
        answer = cls.read(saved)
    except HalleyError as error:
        yield Finding("file", "decisions", False, str(error.faults[0]))
        return
    yield from answer.findings(limit, search, progress)
