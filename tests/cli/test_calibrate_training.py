"""``halley calibrate training``: a table of measured iterations in, tables and a software file out."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.running import halley

import halley as package
from halley.io.chips.software import load_software

HEAD = "model,system,microbatch,batch,time_ms\n"
ONE = f'{HEAD}llama-68m,"1 x a100",8,32,150\n'


@pytest.mark.medium
def test_a_table_becomes_software_that_plans_take(empty_folder: Path) -> None:
    (empty_folder / "runs.csv").write_text(ONE)
    made = halley("calibrate", "training", "runs.csv", "-o", "mine.yaml", "--source", "my node")
    assert made.code == 0, made.err
    assert "mine: fitted numbers" in made.out
    assert "mean error" in made.out
    assert "halley: one row determines one number: " in made.err
    assert made.err.endswith("written to mine.yaml\n")
    software = load_software(empty_folder / "mine.yaml")
    assert (software.name, software.source, software.rows, software.error) == ("mine", "my node", 1, None)
    fix = "tp=1,pp=1,zero=0,microbatch=8,recompute=none,attention=fused"
    words = ("--system", "1 x a100", "--batch", "32", "--fix", fix, "--software", "mine.yaml", "--json")
    assert halley("plan", "llama-68m", *words).json["certificate"]["value"] == pytest.approx(0.15, rel=2e-3)


def test_json_is_the_fit_and_python_gives_the_same(empty_folder: Path) -> None:
    (empty_folder / "runs.csv").write_text(ONE)
    made = halley("calibrate", "training", "runs.csv", "--json").json
    found = package.calibrate_training("runs.csv")
    assert made["errors"] == {"after": found.after, "before": found.before, "held_out": None}
    assert made["numbers"][0]["value"] == found.numbers[0].value
    (row,) = made["rows"]
    assert (row["measured"], row["where"]) == (0.15, "runs.csv:2")
    assert sum(row["parts"].values()) == pytest.approx(row["after"])
    assert not list(empty_folder.glob("*.yaml"))


def test_what_is_wrong_is_said_before_anything_is_written(empty_folder: Path) -> None:
    (empty_folder / "there.yaml").write_text("mine")
    (empty_folder / "runs.csv").write_text(ONE)
    (empty_folder / "wrong.csv").write_text(f'{HEAD}llama-69m,"1 x a100",8,32,-60\n')
    for words, message in (
        (("none.csv",), "halley: none.csv: expected a file; got no such file"),
        (("runs.csv", "-o", "there.yaml"), "there.yaml: expected a new file; got a file that exists"),
        (("runs.csv", "--software", "eagre"), "got 'eagre'; did you mean 'eager'?"),
        (("runs.csv", "--software", "none"), "software: expected software from which the fit starts; got none"),
        (("runs.csv", "--efficiency", "a1000"), "a1000"),
        (("wrong.csv", "-o", "new.yaml"), "wrong.csv:2: time_ms: expected a number above 0; got '-60'"),
    ):
        made = halley("calibrate", "training", *words)
        assert made.code == 1
        assert message in made.err
    assert (empty_folder / "there.yaml").read_text() == "mine"
    assert not (empty_folder / "new.yaml").exists()
