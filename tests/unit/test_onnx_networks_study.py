"""The study of whole networks from ONNX files: what its page says, and two of its networks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from studies import onnx_networks as study
from studies.onnx_files import files
from studies.store import DOCS

from halley.importers.fusing import fused
from halley.importers.onnx.load import import_onnx


def test_page_shows_what_is_kept() -> None:
    known = study.STUDY.load()
    assert (DOCS / f"{study.NAME}.md").read_text(encoding="utf-8") == study.page(known)
    assert len(known["rows"]) == len(study.CHIPS) * len(study.NETWORKS)


def test_sentences_are_borne_out() -> None:
    assert [item.text for item in study.findings(study.STUDY.load()["rows"]) if not item.holds] == []


def test_times_are_above_their_bounds() -> None:
    for row in study.STUDY.load()["rows"]:
        assert 0 < row["bound"] <= row["time"] * (1 + 1e-9)
        assert 0 < row["searched"] <= row["distinct"] <= row["layers"] <= row["operators"]


@pytest.mark.medium
def test_transformers_have_few_layers(tmp_path: Path) -> None:
    """A layer for the projections, the attention, each product with what follows, and the norms; none is left out."""
    pytest.importorskip("onnx")
    expected = {
        "bert-base": {"MatMul": 36, "Attention": 12, "MatMul+Add": 24, "MatMul+Gelu": 12, "Gather+Add": 1,
                      "LayerNormalization": 25},
        "llama-3-8b-block": {
            "MatMul": 3, "Attention": 1, "MatMul+Add": 2, "MatMul+Swish": 1, "MatMul+Mul": 1, "RMSNormalization": 2
        },
    }  # fmt: skip
    paths = files(tmp_path)
    for name, counts in expected.items():
        network = fused(import_onnx(str(paths[name])))
        assert network.left_out == ()
        assert Counter(node.operator for node in network.nodes if node.lowered) == counts


@pytest.mark.slow
@pytest.mark.parametrize(("name", "chip"), [("squeezenet", "edge"), ("vit-b16", "tpu-v4i-like")])
def test_two_networks(tmp_path: Path, name: str, chip: str) -> None:
    """Every layer has a mapping, and no total is below the bound of the study. The searches have some more time than those of the
    study, so that no layer is left without a mapping where other programs take half of the processor."""
    pytest.importorskip("onnx")
    row = study.solve(name, files(tmp_path)[name], chip, limit=60)
    (kept,) = (each for each in study.STUDY.load()["rows"] if (each["network"], each["chip"]) == (name, chip))
    assert not row["left_out"]
    assert row["searched"] == row["distinct"] == kept["distinct"]
    assert row["macs"] == kept["macs"]
    assert kept["bound"] <= row["time"] * (1 + 1e-9)
    assert row["bound"] <= kept["time"] * (1 + 1e-9)
