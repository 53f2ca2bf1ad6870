"""The workload `conv` gives what SciPy's correlation gives: strided, padded, dilated, depthwise and grouped; and a transposed
convolution what SciPy's convolution gives."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from tests.reference.generate import plain_tree
from tests.reference.problems import random_chip

import halley
from halley.execute.interpreter import random_inputs
from halley.ir.workload import Workload
from halley.workloads import conv

signal = pytest.importorskip("scipy.signal")


def executed(work: Workload, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    arrays, chip = random_inputs(work, seed), random_chip(Random(seed))
    (result,) = halley.run(work, chip, plain_tree(work, chip), arrays).outputs.values()
    return arrays, result


def spread_out(array: np.ndarray, step: int) -> np.ndarray:
    """Zeros between the elements of the last two dims."""
    rows, columns = array.shape[-2:]
    wide = np.zeros((*array.shape[:-2], step * (rows - 1) + 1, step * (columns - 1) + 1))
    wide[..., ::step, ::step] = array
    return wide


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"), [(3, 1, 0, 1), (3, 2, 1, 1), (3, 1, 2, 2), (2, 3, 1, 1), (1, 2, 0, 1)]
)
def test_conv(groups: int, kernel: int, stride: int, padding: int, dilation: int) -> None:
    """As many groups as channels is a depthwise convolution."""
    channels = filters = 4
    work = conv(9, 8, channels, filters, kernel, stride, padding, dilation, groups)
    arrays, found = executed(work, kernel + groups)
    if kernel == 1:  # the image has only what is read
        image = spread_out(np.moveaxis(arrays["I"].reshape(*arrays["I"].shape[:2], channels), -1, 0), stride)
    else:
        image = np.moveaxis(arrays["I"].reshape(9, 8, channels), -1, 0)
    image = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
    inside = channels // groups
    weights = arrays["W"].reshape(kernel, kernel, groups, inside, filters // groups)
    expected = []
    for group in range(groups):
        own = image[group * inside : (group + 1) * inside]
        for each in range(filters // groups):
            taps = spread_out(np.moveaxis(weights[:, :, group, :, each], -1, 0), dilation)
            expected.append(sum(signal.correlate(own[c], taps[c], mode="valid") for c in range(inside))[::stride, ::stride])
    got = np.moveaxis(found.reshape(*found.shape[:2], filters), -1, 0)
    np.testing.assert_allclose(got, np.stack(expected)[:, : got.shape[1], : got.shape[2]], rtol=1e-9, atol=1e-12)


def test_transposed() -> None:
    """Stride 2, four taps: result row 2 a + b takes the taps 2 k + b of the rows a - k of the image."""
    work = halley.graph(
        "I[c,x,y]\nO[f,a,b,u,v] = I[c,a-k,u-l] * W[c,f,k,b,l,v]",
        {"f": 2, "c": 3, "x": 3, "y": 4, "a": 4, "b": 2, "k": 2, "u": 5, "v": 2, "l": 2},
    )
    arrays, found = executed(work, 3)
    taps = arrays["W"].reshape(3, 2, 4, 4)
    for filter_ in range(2):
        expected = sum(signal.convolve(spread_out(arrays["I"][c], 2), taps[c, filter_]) for c in range(3))
        got = found[filter_].reshape(8, 10)
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)
