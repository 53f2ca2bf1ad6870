"""Layers of published networks as single convolutions: each has a proven mapping, which is legal and costs what it says."""

from __future__ import annotations

import pytest

from halley import Problem, load_chip, optimise
from halley.answer import Status
from halley.cost.evaluate import evaluate
from halley.rewrite.legality import faults
from halley.workloads import conv

LAYERS: dict[str, dict[str, int]] = {
    # He et al., arXiv 1512.03385, table 1, 50 layers
    "resnet-50 conv1": {"height": 224, "width": 224, "channels": 3, "filters": 64, "kernel": 7, "stride": 2, "padding": 3},
    "resnet-50 conv2 3x3": {"height": 56, "width": 56, "channels": 64, "filters": 64, "padding": 1},
    "resnet-50 conv2 1x1": {"height": 56, "width": 56, "channels": 64, "filters": 256, "kernel": 1},
    "resnet-50 conv3 3x3": {"height": 56, "width": 56, "channels": 128, "filters": 128, "stride": 2, "padding": 1},
    "resnet-50 conv3 shortcut": {"height": 56, "width": 56, "channels": 256, "filters": 512, "kernel": 1, "stride": 2},
    "resnet-50 conv5 3x3": {"height": 7, "width": 7, "channels": 512, "filters": 512, "padding": 1},
    # Sandler et al., arXiv 1801.04381, table 2: a stem, an expansion, a depthwise convolution, a projection
    "mobilenet-v2 stem": {"height": 224, "width": 224, "channels": 3, "filters": 32, "stride": 2, "padding": 1},
    "mobilenet-v2 expansion": {"height": 56, "width": 56, "channels": 24, "filters": 144, "kernel": 1},
    "mobilenet-v2 depthwise": {"height": 56, "width": 56, "channels": 144, "filters": 144, "groups": 144}
    | {"stride": 2, "padding": 1},
    "mobilenet-v2 projection": {"height": 28, "width": 28, "channels": 144, "filters": 32, "kernel": 1},
    # Ronneberger et al., arXiv 1505.04597, figure 1: unpadded convolutions
    "u-net first": {"height": 572, "width": 572, "channels": 1, "filters": 64},
    "u-net second": {"height": 570, "width": 570, "channels": 64, "filters": 64},
    "u-net deepest": {"height": 30, "width": 30, "channels": 1024, "filters": 1024},
}
CHIPS = ("edge", "eyeriss-like", "tpu-v4i-like")
QUICK = ("resnet-50 conv3 3x3", "mobilenet-v2 projection")
LEFT_OUT = {("resnet-50 conv1", "eyeriss-like"), ("u-net first", "edge")}
"""7 x 7 taps of an input, which stay whole with a stride, exceed the 24 bytes of the spad. The other takes more than a minute."""


@pytest.mark.parametrize(
    ("layer", "chip"),
    [
        pytest.param(layer, chip, marks=[] if layer in QUICK and chip == "edge" else [pytest.mark.slow])
        for layer in LAYERS
        for chip in CHIPS
        if (layer, chip) not in LEFT_OUT
    ],
)
def test_layers_are_proven(layer: str, chip: str) -> None:
    workload, machine = conv(**LAYERS[layer]), load_chip(chip)  # type: ignore[arg-type]
    best = optimise(Problem(workload, machine, baselines=False)).best
    assert best.status is Status.OPTIMAL
    assert best.certificate.bound == best.certificate.value
    assert not faults(best.plan, workload, machine)
    assert float(evaluate(workload, machine, best.plan).time) == pytest.approx(best.certificate.value, rel=1e-9)
