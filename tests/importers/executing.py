"""Networks run layer by layer in Halley's interpreter, beside the reference of the package onnx."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halley.execute.interpreter import run
from halley.importers.lowering.node import LoweredNode
from halley.importers.network import ImportedNetwork
from halley.ir.hardware import Chip, Level, MatrixEngine, Memory, VectorEngine
from halley.ir.text import parse
from halley.ir.workload import Workload
from halley.workloads.user import graph

Array = NDArray[Any]
CHIP = Chip(
    "plain",
    (Level("dram", (Memory("dram", 1e12, 1e9, 1e9),)), Level("core", (Memory("buffer", 1e12, 1e9, 1e9),))),
    MatrixEngine("mxu", 4, 4, 1e9),
    VectorEngine("simd", 4, 1e9, {"add": 1.0}),
)


def mapping(work: Workload) -> str:
    """Op after op, each with its whole tensors in the buffer."""
    lines = [f"hold dram: {' '.join(work.tensors)}", "  sequence"]
    for op in work.ops:
        own = dict.fromkeys((*op.inputs, *op.outputs))
        lines += [f"    hold buffer: {' '.join(own)}", f"      compute {op.name}"]
    return "\n".join(lines)


def executed(made: LoweredNode, values: dict[str, Array]) -> dict[str, Array]:
    """The values of a node's outputs, in the order of the elements."""
    work = graph(made.lines, made.dims, "fp64", tuple(made.outputs))
    before = computed_ahead(made, values)
    arrays = {}
    for name in work.inputs:
        shape = [work.dims[dim] for dim in work.tensors[name].dims]
        if name in before:
            arrays[name] = before[name]
            continue
        array = made.computed[name] if name in made.computed else values[made.inputs[name]]
        if array.dtype == bool:  # the truths of a mask
            array = np.where(array, np.inf, -np.inf)
        if name in made.rows:
            array = array[np.asarray(values[made.rows[name]], int)]
        array = array[tuple(slice(None, None, step) for step in made.steps.get(name, ()))]
        arrays[name] = array.reshape(shape)
    found = run(work, CHIP, parse(mapping(work)), arrays).outputs
    return {value: found[name] for name, value in made.outputs.items()}


def computed_ahead(made: LoweredNode, values: dict[str, Array]) -> dict[str, Array]:
    """The tensors of the lines that follow from constants alone."""
    if not made.ahead:
        return {}
    results = tuple(line.split("[")[0] for line in made.ahead)
    used = {dim for line in made.ahead for dim in re.findall(r"\w+", " ".join(re.findall(r"\[(.*?)\]", line)))}
    work = graph(made.ahead, {dim: made.dims[dim] for dim in made.dims if dim in used}, "fp64", results)
    arrays = {}
    for name in work.inputs:
        array = made.computed[name] if name in made.computed else values[made.inputs[name]]
        arrays[name] = np.asarray(array).reshape([work.dims[dim] for dim in work.tensors[name].dims])
    return run(work, CHIP, parse(mapping(work)), arrays).outputs


def run_network(onnx: Any, model: Any, network: ImportedNetwork, feeds: dict[str, Array]) -> dict[str, Array]:
    """All values of a network. Layers run in Halley's interpreter; views, what computes constants, and steps that are part of a
    layer run alone in onnx's."""
    from onnx.reference import ReferenceEvaluator

    values: dict[str, Array] = {item.name: onnx.numpy_helper.to_array(item) for item in model.graph.initializer} | feeds
    lowered = {node.name: node.lowered for node in network.nodes if node.lowered is not None}
    kinds = onnx.helper.make_empty_tensor_value_info
    for proto in model.graph.node:
        made = lowered.get(proto.name)
        if made is not None:
            shape = dict(zip(proto.output, shapes_of(onnx, model, proto), strict=True))
            values |= {name: array.reshape(shape[name]) for name, array in executed(made, values).items()}
            continue
        inputs = [name for name in proto.input if name]
        single = onnx.helper.make_graph([proto], "node", list(map(kinds, inputs)), list(map(kinds, proto.output)))
        alone = onnx.helper.make_model(single, opset_imports=list(model.opset_import))
        given = {name: values[name] for name in inputs}
        if np.float64 in {array.dtype.type for array in given.values()}:  # of the interpreter, beside the fp32 of the file
            given = {name: array.astype(np.float64) if array.dtype == np.float32 else array for name, array in given.items()}
        found = ReferenceEvaluator(alone).run(None, given)
        values |= dict(zip(proto.output, map(np.asarray, found), strict=True))
    return values


def shapes_of(onnx: Any, model: Any, proto: Any) -> list[tuple[int, ...]]:
    """Shapes of the outputs of a node, by the inference of onnx."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    known = {
        item.name: tuple(dim.dim_value for dim in item.type.tensor_type.shape.dim)
        for item in (*inferred.value_info, *inferred.output)
    }
    return [known[name] for name in proto.output]
