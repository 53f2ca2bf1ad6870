"""`halley.chips` and `halley.models`: what ships with Halley, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rich.console import Console

from halley.importers.model import ImportedModel
from halley.importers.source import find_model
from halley.io.chips.load import load_chip
from halley.io.transformers import ModelDescription, load_description
from halley.ir.hardware import Chip
from halley.library import CHIPS, MODELS
from halley.report.hardware import chip_list, chip_rows
from halley.report.html_tables import table_html
from halley.report.imports import model_list, model_rows
from halley.report.rows import Row, csv_text, frame
from halley.report.table import Table
from halley.report.terminal import show
from halley.workloads.transformer import Transformer

V = TypeVar("V")


@dataclass(frozen=True, eq=False, repr=False)
class Listing(Mapping[str, V], Generic[V]):
    """Values by name, read from their files when they are used; notebooks show all of them as a table."""

    names: tuple[str, ...]
    load: Callable[[str], V]
    table: Callable[[Iterable[V]], Table]
    rows: Callable[[Iterable[V]], Iterable[Row]]

    def __getitem__(self, name: str) -> V:
        if name not in self.names:
            raise KeyError(name)
        return self.load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return ", ".join(self.names)

    def show(self) -> None:
        """Print the table."""
        show(Console(highlight=False), [self.table(self.values())])

    def to_frame(self) -> Any:
        """Bare numbers as a data frame of pandas or polars, in SI units. Raises BadInput: neither package is installed."""
        return frame(csv_text(self.rows(self.values())))

    def _repr_html_(self) -> str:
        return table_html(self.table(self.values()))


def chips() -> Listing[Chip]:
    """The chips that ship with Halley.

    >>> "h100" in chips(), chips()["edge"].name
    (True, 'edge')
    """
    return Listing(CHIPS.names(), load_chip, lambda found: chip_list(list(found)), chip_rows)


def models() -> Listing[Transformer | ModelDescription]:
    """The models that ship with Halley: transformers, and descriptions of hybrids, which no plan trains.

    >>> models()["llama3-8b"].layers, models()["nemotron-h-8b"].hybrid.layers
    (32, 24)
    """
    return Listing(
        MODELS.names(),
        _model,
        lambda found: model_list(_imported(found)),
        lambda found: model_rows(_imported(found)),
    )


def _model(name: str) -> Transformer | ModelDescription:
    found = load_description(name)
    return found.shape if found.hybrid is None else found


def _imported(found: Iterable[Transformer | ModelDescription]) -> list[ImportedModel]:
    return [find_model(each.name if isinstance(each, Transformer) else each.shape.name) for each in found]
