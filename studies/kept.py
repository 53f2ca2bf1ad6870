"""A study of whole systems whose rows are made in one go: kept as JSON beside its page, made again when the source changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import machine as measured_on

from studies.store import DOCS, behind, load_tables, replace_text, save_tables


@dataclass(frozen=True, slots=True)
class KeptStudy:
    """``file`` is that of the study; its content counts as source, as that of ``others`` does. ``make``: its tables by name;
    ``files``: the text of each file of docs/studies, from what is kept."""

    name: str
    file: str
    make: Callable[[], Mapping[str, list[dict[str, Any]]]]
    files: Callable[[Mapping[str, Any]], Mapping[str, str]]
    others: tuple[Path, ...] = ()

    @property
    def schema(self) -> str:
        return f"halley.study.{self.name}/1"

    def run(self, again: bool, say: Callable[[str], None]) -> None:
        """Make what is not known for the present source; then write figures and page."""
        mark = behind(Path(self.file), *self.others)
        if again or self.load().get("source") != mark:
            made = self.make()
            save_tables(self.name, {"schema": self.schema, "source": mark, "machine": measured_on(), **made})
            say(f"{self.name}: " + ", ".join(f"{len(rows)} {table}" for table, rows in made.items()))
        self.write()

    def load(self) -> dict[str, Any]:
        """What is kept; empty where the study was never run."""
        return load_tables(self.name, self.schema)

    def write(self) -> None:
        """Figures and page from what is kept."""
        for name, text in self.files(self.load()).items():
            replace_text(DOCS / name, text)
