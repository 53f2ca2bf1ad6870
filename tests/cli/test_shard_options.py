"""Options of ``halley shard`` that fix a part of the sharding: they are kept, saved, and refused where they make no sense."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.running import halley

GRAPH = """
chip: h100
workload:
  graph:
    dims: {m: 4096, k: 4096, f: 8192}
    lines: ["F[m,f] = X[m,k] * U[k,f]", "Y[m,k] = F[m,f] * D[f,k]"]
"""
SYSTEM = ("--system", "4 x h100, nvlink")


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "graph.yaml"
    path.write_text(GRAPH)
    return str(path)


def test_a_split_is_kept_and_saved(file: str, tmp_path: Path) -> None:
    saved = str(tmp_path / "shard.json")
    told = halley("shard", file, *SYSTEM, "--split", "F=nvlink:f", "--split", "Y=nvlink:f", "--ops", "-o", saved)
    assert told.code == 0
    assert "all-reduce" in told.out or "reduce-scatter" in told.out
    again = halley("show", saved)
    assert again.code == 0
    assert told.out.splitlines()[:6] == again.out.splitlines()[:6]
    free = halley("shard", file, *SYSTEM)
    assert "all-reduce" not in free.out


def test_a_chain_lays_the_output_out_as_the_input(file: str) -> None:
    told = halley("shard", file, *SYSTEM, "--chain", "Y=X", "--split", "F=nvlink:f", "--split", "Y=nvlink:k")
    assert told.code == 0
    assert "all-gather" in told.out or "all-to-all" in told.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--split", "F:f"), "--split: expected OP=AXIS:DIM"),
        (("--split", "F=nvlink"), "--split: expected OP=AXIS:DIM"),
        (("--split", "F=nvlink:f", "--split", "F=nvlink:m"), "each axis of an op once"),
        (("--split", "G=nvlink:f"), "expected names of ops; got 'G'"),
        (("--split", "F=nvlnk:f"), "did you mean 'nvlink'?"),
        (("--split", "F=nvlink:q"), "expected a dim of the op"),
        (("--chain", "Y"), "--chain: expected OUTPUT=INPUT"),
        (("--chain", "Y=Z"), "expected outputs of the workload, or inputs"),
    ],
)
def test_wrong_options(file: str, options: tuple[str, ...], message: str) -> None:
    told = halley("shard", file, *SYSTEM, *options)
    assert told.code == 1
    assert message in told.err
