"""Layers of published networks as single convolutions: each has a proven mapping, which is legal and costs what it says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from halley import Problem, load_chip, optimise
from halley.answer import Status
from halley.cost.evaluate import evaluate
from halley.errors import BadInput, Infeasible
from halley.ir.hardware import Chip, Memory
from halley.ir.mapping import Compute
from halley.mapping.space.affine import read_bytes
from halley.rewrite.legality import faults
from halley.verify.reduced import reduced
from halley.workloads import conv, graph

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


def test_what_the_search_refuses() -> None:
    """Strides that leave gaps, and diagonals: there smaller tiles may move less than larger ones."""
    gaps = graph("I[c,h]\nO[f,p] = I[c,2p] * W[f,c]", {"c": 4, "f": 4, "p": 4, "h": 8})
    with pytest.raises(BadInput, match=r"got h at 2p: a stride of 2 over 1; leave out of h what is not read"):
        optimise(Problem(gaps, load_chip("edge")))
    diagonal = graph("O[i,k] = A[i,i,j] * B[j,k]", {"i": 4, "j": 4, "k": 4})
    with pytest.raises(BadInput, match="expected each dim once in the places of A; got i twice"):
        optimise(Problem(diagonal, load_chip("edge")))


def test_taps_that_exceed_a_scratch_pad_are_told_before_anything_is_searched() -> None:
    """The least tile of the image is 7 x 7 points; 3 x 3 points, which are 18 B, fit."""
    chip = load_chip("eyeriss-like")
    with pytest.raises(Infeasible, match="at most 24 B in ispad; got 98 B with the smallest tiles of convolve"):
        optimise(
            Problem(conv(**LAYERS["resnet-50 conv1"]), chip, baselines=False), progress=lambda found: pytest.fail("searched")
        )  # type: ignore[arg-type]
    small = conv(height=4, width=4, channels=2, filters=2, stride=2, padding=1)
    assert optimise(Problem(small, chip, baselines=False)).best.status is Status.OPTIMAL
    with pytest.raises(Infeasible, match="at most 16 B in ispad; got 18 B"):
        optimise(Problem(small, narrowed(chip, "ispad", 16), baselines=False))


def narrowed(chip: Chip, name: str, capacity: int) -> Chip:
    def memory(own: Memory) -> Memory:
        return replace(own, capacity=capacity) if own.name == name else own

    return replace(chip, levels=tuple(replace(level, memories=tuple(map(memory, level.memories))) for level in chip.levels))


def test_no_more_is_counted_as_compulsory_than_is_read() -> None:
    """Of 9 rows, every third from the second, and two of three of which the first is padding."""
    work = graph("I[c,h]\nO[c,p] = I[c,3p+2]", {"c": 2, "p": 3, "h": 9})
    assert read_bytes(work, "I") == 2 * 3 * 2
    work = graph("I[c,h]\nO[c,p] = max(I[c,3p+r-1])", {"c": 2, "p": 3, "r": 2, "h": 9})
    assert read_bytes(work, "I") == 2 * 5 * 2


def test_a_reduced_convolution_is_checked_with_its_padding() -> None:
    """The image shrinks with the result, so that no position is padding that was none before."""
    work, tree = conv(height=58, width=60, channels=20, filters=4, stride=2, padding=1), Compute("convolve")
    small, _ = reduced(work, tree)
    assert small.dims["h"] < work.dims["h"]
    for index in work.indices:
        first, last = index.positions(work.dims)
        assert index.positions(small.dims) == (first, small.dims[index.dim] + last - work.dims[index.dim])
