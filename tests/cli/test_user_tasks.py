"""The tasks of three kinds of users, by the commands of the pages that describe them: what each has in hand at the end."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from tests.cli.running import halley
from tests.cli.test_documents import ROOT, blocks

from halley.answers.load import load

pytestmark = pytest.mark.medium


def done(*words: str) -> str:
    found = halley(*words, width=160)
    assert found.code == 0, f"{words}\n{found.err}"
    return found.out


def test_an_accelerator_of_ones_own_a_layer_and_three_sizes_of_a_buffer(empty_folder: Path) -> None:
    """`docs/how-to/your-own-accelerator.md`, with a change to the chip that the layer feels."""
    done("chips", "new", "my-npu", "--like", "edge")
    text = Path("my-npu.yaml").read_text()
    assert "name: my-npu" in text
    layer = ("conv", "--channels", "4", "--filters", "8", "--height", "10", "--width", "10", "--kernel", "3")
    done("optimise", *layer, "--chip", "my-npu.yaml", "--no-baselines", "-o", "layer.json")
    slower = text.replace("25.6 GB/s", "2.56 GB/s")
    assert slower != text
    Path("slower.yaml").write_text(slower)
    done("optimise", *layer, "--chip", "slower.yaml", "--no-baselines", "-o", "slower.json")
    times = [load(name).value.best.estimate.time for name in ("layer.json", "slower.json")]
    assert times[0] < times[1]
    (study,) = [text for _, text in blocks("how-to/your-own-accelerator.md") if text.startswith("# buffers.yaml")]
    Path("buffers.yaml").write_text(study)
    said = done("sweep", "buffers.yaml", "--all", "--best", "3", "--page", "buffers.html", "--csv", "buffers.csv")
    assert "The 3 best known" in said
    with Path("buffers.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["buffer"]) for row in rows] == [256, 512, 1024]
    assert all(float(row["time_s"]) > 0 for row in rows)
    assert "<svg" in Path("buffers.html").read_text()


def test_a_published_model_on_256_chips_with_launch_flags(empty_folder: Path) -> None:
    """`docs/how-to/bring-your-own-model.md`: the configuration alone, the plan with its proof, flags of two frameworks."""
    config = str(ROOT / "examples" / "qwen2.5-7b" / "config.json")
    assert "7,615,616,512 parameters" in done("import", config)
    words = ("--train", "--system", "256 x h100, nvlink 8, ib", "--batch", "512", "--sequence", "4096")
    said = done("plan", config, *words, "--emit", "megatron", "-o", "plan.json")
    assert "--global-batch-size 512" in said
    plan = load("plan.json").value
    assert plan.problem.system.chips == 256
    assert plan.certificate.gap < 0.01
    degrees = {"tensor": r"--tensor-model-parallel-size (\d+)", "pipeline": r"--pipeline-model-parallel-size (\d+)"}
    found = {name: int(re.search(pattern, said)[1]) for name, pattern in degrees.items()}  # type: ignore[index]
    assert found["pipeline"] == plan.plan.pipeline.stages
    assert found["tensor"] <= plan.plan.model
    assert "--parallelism." in done("show", "plan.json", "--emit", "torchtitan")


def test_a_mapping_by_hand_its_cost_its_execution_and_why_it_is_slower(empty_folder: Path) -> None:
    """`docs/how-to/cost-your-own-mapping.md` and `why-is-mine-slower.md`."""
    (mine,) = [text for _, text in blocks("how-to/why-is-mine-slower.md") if text.startswith("# mine.txt")]
    Path("mine.txt").write_text(mine)
    gemm = ("gemm", "--m", "16", "--n", "8", "--k", "8", "--chip", "edge")
    assert "DRAM traffic" in done("estimate", "mine.txt", *gemm, "-o", "mine.json")
    assert "outputs equal plain NumPy" in done("check", "mine.json")
    assert "time simulated" in done("simulate", "mine.json")
    done("optimise", *gemm, "-o", "best.json")
    said = done("compare", "mine.txt", "best.json")
    mine_time, best_time = load("mine.json").value.estimate.time, load("best.json").value.best.estimate.time
    assert best_time < mine_time
    assert "Why best.json takes" in said
