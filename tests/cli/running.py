"""Runs a command as the shell would, but in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from halley.cli.main import app


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def halley(*words: str, width: int = 100) -> Outcome:
    made = CliRunner().invoke(app, list(words), env={"COLUMNS": str(width)}, prog_name="halley")
    return Outcome(made.exit_code, made.stdout, made.stderr)


PROGRAM = Path(__file__).parents[2] / "examples" / "projections.pt2"
"""A file of torch.export without weights: the norm and the projections to queries, keys and values of a transformer block."""
