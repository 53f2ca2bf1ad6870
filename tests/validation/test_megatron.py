"""Published iterations of Megatron-LM."""

from __future__ import annotations

from pathlib import Path

import pytest
from validation.megatron.__main__ import main
from validation.megatron.compare import COLUMNS, compare, constant, iteration, points, roofline
from validation.sources import SOURCES

from halley.cli.validate import NAMES
from halley.errors import BadInput

ROW = "megatron-22b,8,1,1,4,4,full,no,1.42"


def table(folder: Path, *rows: str) -> Path:
    path = folder / "points.csv"
    path.write_text("\n".join([",".join(COLUMNS), *rows]) + "\n")
    return path


def test_published_iterations_are_met_and_simpler_models_are_worse() -> None:
    outcome = compare()
    assert outcome.holds
    line = outcome.lines[0]
    assert len(line.cases) == 4
    times: list[list[float]] = [[], [], []]
    for point in points():
        found = iteration(point)
        for errors, time in zip(times, (roofline(point), constant(found, 0.5), constant(found, 1.0)), strict=True):
            errors.append(abs(time / point.seconds - 1))
    assert all(sum(errors) / 4 > 2 * line.mean_error for errors in times)


def test_help_names_every_comparison() -> None:
    assert tuple(SOURCES) == NAMES


def test_what_was_run_fits() -> None:
    for point in points():
        held = iteration(point).memory
        assert max(sum(stage.values()) for stage in held) <= 80e9


def test_any_table_can_be_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(table(tmp_path, ROW))]) == 0
    shown = capsys.readouterr().out
    assert "| megatron-22b, 8 x 1, recompute full | 1.42 s |" in shown
    assert "waits: all-reduce (model)" in shown
    assert main([str(table(tmp_path, ROW.replace("full", "ful")))]) == 1
    assert "recompute: expected one of none, selective, full; got 'ful'; did you mean 'full'?" in capsys.readouterr().err
    assert main(["a", "b"]) == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (",no,", ",nu,", "scattered: expected one of no, yes"),
        (",8,1,1,4", ",x,1,1,4", "tensor: expected a whole number; got 'x'"),
        ("1.42", "-1", "seconds: expected a number above 0"),
    ],
)
def test_rows_that_cannot_be_read(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        points(table(tmp_path, ROW.replace(old, new)))
