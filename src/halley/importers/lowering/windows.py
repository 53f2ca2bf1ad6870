"""Convolutions and poolings of ONNX in Halley's notation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from halley.importers.lowering.elementwise import applied
from halley.importers.lowering.node import LoweredNode, NodeView, NotLowered, Shape, factors, indexed

PLACES_LIMIT = 10**7
"""Most places of an average pooling, and elements read along an axis: the sizes of its windows are counted one by one."""


def _times(coefficient: int) -> str:
    return f"{coefficient}*" if coefficient != 1 else ""


@dataclass(frozen=True, slots=True)
class _Windows:
    """Windows along each spatial axis: extents of the image and the result, taps, strides, distances of taps, padding before and
    behind."""

    image: Shape
    result: Shape
    taps: Shape
    strides: Shape
    distances: Shape
    before: Shape
    behind: Shape

    def place(self, axis: int) -> str:
        """The position of a tap in the image: a sum of dims p and r of that axis."""
        pad, taps = self.before[axis], f"+{_times(self.distances[axis])}r{axis}" if self.taps[axis] > 1 else ""
        return f"{_times(self.strides[axis])}p{axis}{taps}" + (f"-{pad}" if pad else "")

    def kept(self, axis: int) -> bool:
        """Whether the axis is there at all: not one place of one tap in an image of one row."""
        return (self.image[axis], self.result[axis], self.taps[axis]) != (1, 1, 1)

    def whole(self, axis: int) -> bool:
        """Whether the only window is the whole image, tap by tap."""
        single = self.result[axis] == 1 and self.taps[axis] == self.image[axis] and self.distances[axis] == 1
        return single and not self.before[axis] and not self.behind[axis]

    def direct(self, axis: int) -> bool:
        """Whether each place has one tap, which is in the image: only those elements of the image are read."""
        return self.taps[axis] == 1 and not self.before[axis] and not self.behind[axis]

    @property
    def skipped(self) -> Shape:
        """By axis of the image, the distance of the elements that are read at all; 1 where all of them may be."""
        return tuple(self.strides[axis] if self.direct(axis) else 1 for axis in range(len(self.image)))


def _windows(node: NodeView, taps: Shape) -> _Windows:
    image, result = node.shape(node.inputs[0])[2:], node.shape(node.outputs[0])[2:]
    rank = len(image)
    strides = tuple(node.get("strides", (1,) * rank))
    distances = tuple(node.get("dilations", (1,) * rank))
    pads = tuple(node.get("pads", (0,) * (2 * rank)))
    if not rank or len(taps) != rank or len(strides) != rank or len(distances) != rank or len(pads) != 2 * rank:
        raise NotLowered("windows of another rank than the image")
    auto = node.get("auto_pad", "NOTSET")
    if auto not in ("NOTSET", "VALID"):
        needed = [
            max((out - 1) * stride + distance * (tap - 1) + 1 - size, 0)
            for out, stride, distance, tap, size in zip(result, strides, distances, taps, image, strict=True)
        ]
        small = [each // 2 for each in needed]
        large = [each - half for each, half in zip(needed, small, strict=True)]
        pads = (*small, *large) if auto == "SAME_UPPER" else (*large, *small)
    elif auto == "VALID":
        pads = (0,) * (2 * rank)
    if min((*taps, *strides, *distances)) < 1 or min(pads) < 0:
        raise NotLowered("windows with sizes below 1")
    return _Windows(image, result, taps, strides, distances, pads[:rank], pads[rank:])


def _spatial(windows: _Windows) -> tuple[dict[str, int], list[str], list[str], list[str], list[str]]:
    """Extents; names of the image's axes, of the places that are read, of the result's axes, and of the taps."""
    extents: dict[str, int] = {}
    image, places, result, taps = list[str](), list[str](), list[str](), list[str]()
    for axis in range(len(windows.image)):
        if not windows.kept(axis):
            continue
        if windows.direct(axis):
            extents[f"p{axis}"] = windows.result[axis]
            for names in (image, places, result):
                names.append(f"p{axis}")
            continue
        if windows.whole(axis):
            extents[f"r{axis}"] = windows.image[axis]
            for names in (image, places, taps):
                names.append(f"r{axis}")
            continue
        extents |= {f"h{axis}": windows.image[axis], f"p{axis}": windows.result[axis]}
        image.append(f"h{axis}")
        result.append(f"p{axis}")
        if windows.taps[axis] > 1:
            extents[f"r{axis}"] = windows.taps[axis]
            taps.append(f"r{axis}")
        places.append(windows.place(axis))
    return extents, image, places, result, taps


def conv(node: NodeView) -> LoweredNode:
    weights = node.shape(node.inputs[1])
    windows = _windows(node, weights[2:])
    extents, image, places, result, taps = _spatial(windows)
    batch, channels = node.shape(node.inputs[0])[:2]
    groups, filters = int(node.get("group", 1)), weights[0]
    if groups < 1 or channels % groups or filters % groups or weights[1] != channels // groups:
        raise NotLowered("groups that do not divide the channels")
    own = {"b": batch, "g": groups, "f": filters // groups, "c": channels // groups}
    kept = {name for name, extent in own.items() if extent > 1}
    kept |= set() if kept & {"f", "g"} else {"f"}
    kept |= {"c"} if not taps else set()  # there is something to sum over
    extents = {name: extent for name, extent in own.items() if name in kept} | extents

    def dims(names: str, more: Sequence[str]) -> list[str]:
        return [*(name for name in names if name in kept), *more]

    over_image, at = dims("bgc", image), dims("bgf", result)
    lines = [indexed("X", over_image)] if places != image else []
    biased = node.has(2)
    first = "Y1" if biased else "Y"
    lines.append(f"{indexed(first, at)} = {indexed('X', dims('bgc', places))} * {indexed('W', dims('gfc', taps))}")
    inputs = factors(node)
    if biased:
        lines.append(f"{indexed('Y', at)} = add({indexed('Y1', at)}, {indexed('B', dims('gf', ()))})")
        inputs["B"] = node.inputs[2]
    steps = {"X": (1, 1, *windows.skipped)} if max(windows.skipped) > 1 else {}
    return LoweredNode(tuple(lines), extents, inputs, {"Y": node.outputs[0]}, steps=steps)


def conv_transpose(node: NodeView) -> LoweredNode:
    """A transposed convolution whose windows do not overlap: each element of the image becomes a window of the result."""
    image, weights, result = (node.shape(name) for name in (node.inputs[0], node.inputs[1], node.outputs[0]))
    rank = len(weights) - 2
    taps = weights[2:]
    whole = tuple(size * tap for size, tap in zip(image[2:], taps, strict=True))
    if len(image) != rank + 2 or int(node.get("group", 1)) != 1 or tuple(node.get("strides", (1,) * rank)) != taps:
        raise NotLowered("a transposed convolution of groups, or with windows that overlap")
    if result != (image[0], weights[1], *whole) or max(node.get("dilations", (1,))) > 1:
        raise NotLowered("a transposed convolution with padding")
    extents = {"b": image[0], "f": weights[1], "c": image[1]}
    if extents["b"] == 1:
        del extents["b"]
    places, own = [f"p{axis}" for axis in range(rank)], [f"r{axis}" for axis in range(rank)]
    extents |= dict(zip(places, image[2:], strict=True)) | dict(zip(own, taps, strict=True))
    at = [*(name for name in "bf" if name in extents), *(name for pair in zip(places, own, strict=True) for name in pair)]
    read = [*(name for name in "bc" if name in extents), *places]
    biased = node.has(2)
    first = "Y1" if biased else "Y"
    lines = [f"{indexed(first, at)} = {indexed('X', read)} * {indexed('W', ['c', 'f', *own])}"]
    inputs = factors(node)
    if biased:
        lines.append(f"{indexed('Y', at)} = add({indexed('Y1', at)}, B[f])")
        inputs["B"] = node.inputs[2]
    return LoweredNode(tuple(lines), extents, inputs, {"Y": node.outputs[0]})


def pool(node: NodeView) -> LoweredNode:
    taps = tuple(node.get("kernel_shape", ()))
    if len(node.outputs) > 1 and node.outputs[1]:
        raise NotLowered("a pooling that gives the places of its maxima")
    windows = _windows(node, taps)
    extents, image, places, result, reduced = _spatial(windows)
    if not reduced:
        if places != image or max(windows.skipped) > 1:
            raise NotLowered("a pooling that only skips elements")
        return applied(node, "identity", inputs=node.inputs[:1])
    planes = math.prod(node.shape(node.inputs[0])[:2])
    extents = {"c": planes} | extents
    if max(windows.skipped) > 1:
        raise NotLowered("a pooling that skips rows")
    lines = [indexed("X", ["c", *image])]
    source, at = indexed("X", ["c", *places]), ["c", *result]
    inputs, outputs = {"X": node.inputs[0]}, {"Y": node.outputs[0]}
    if node.operator == "MaxPool":
        return LoweredNode((*lines, f"{indexed('Y', at)} = max({source})"), extents, inputs, outputs)
    if (
        math.prod(windows.result) > PLACES_LIMIT
        or max(out * tap for out, tap in zip(windows.result, taps, strict=True)) > PLACES_LIMIT
    ):
        raise NotLowered(f"more than {PLACES_LIMIT:,} places with windows of several sizes")
    shares = _shares(windows, bool(node.get("count_include_pad", 0)))
    if (shares == shares.flat[0]).all() and math.isclose(1 / shares.flat[0], math.prod(windows.taps)):
        return LoweredNode((*lines, f"{indexed('Y', at)} = mean({source})"), extents, inputs, outputs)
    lines += [f"{indexed('S', at)} = sum({source})", f"{indexed('Y', at)} = mul({indexed('S', at)}, {indexed('D', result)})"]
    return LoweredNode(tuple(lines), extents, inputs, outputs, {"D": shares.reshape([extents[name] for name in result])})


def _shares(windows: _Windows, padded: bool) -> Any:
    """By place of the result, 1 / the number of elements of its window; ``padded``: those of the padding count."""
    counts = np.ones((), float)
    for axis in range(len(windows.image)):
        places = np.arange(windows.result[axis])[:, None] * windows.strides[axis] - windows.before[axis]
        taps = places + np.arange(windows.taps[axis]) * windows.distances[axis]
        low, high = (-windows.before[axis], windows.image[axis] + windows.behind[axis]) if padded else (0, windows.image[axis])
        counts = np.multiply.outer(counts, ((taps >= low) & (taps < high)).sum(axis=1))
    return 1.0 / np.maximum(counts, 1)
