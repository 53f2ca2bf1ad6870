"""Answers about whole networks on one chip: a `NetworkResult` to the file of an answer and back."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, WrapValidator

from halley.errors import BadInput, Fault
from halley.io.chips.save import chip_document
from halley.io.files.entries import Text
from halley.io.files.models import ChipFile, Model
from halley.io.results.envelope import Plain, Saved, enveloped
from halley.io.results.models import Amount, AnswerFile, Count, SolutionModel, WorkloadModel, as_it_is
from halley.io.results.result import rebuilt, solution_document, with_chip, workload_document
from halley.ir.neural_network import LeftOut, NetworkLayer, NeuralNetwork
from halley.mapping.network import LayerResult, NetworkResult
from halley.mapping.problem import Objective, Problem
from halley.mapping.result import Result
from halley.workloads import build

KIND = "network-mapping"


class LayerModel(Model):
    """A distinct layer."""

    name: Text = Field(description="name of the layer")
    operator: Text = Field(description="operators of the file, joined by +")
    nodes: list[str] = Field(min_length=1, description="names of its nodes")
    workload: WorkloadModel = Field(description="what each node computes")


class LeftOutModel(Model):
    """Nodes that are part of no layer."""

    operator: Text = Field(description="operator of the file")
    reason: Text = Field(description="why it is not part of a layer")
    count: Count = Field(description="number of nodes")
    bytes_B: Count = Field(description="bytes that they read and write")


class NetworkModel(Model):
    """A network as its layers (`halley.ir.neural_network.NeuralNetwork`)."""

    name: Text = Field(description="name of the network")
    source: Text = Field(description="file that it was read from")
    opset: Count = Field(description="version of the operators of ONNX; 0: those of PyTorch")
    dtype: Text = Field(description="element type of all tensors")
    constants: Count = Field(description="elements of weights and other constants")
    layers: list[LayerModel] = Field(description="the distinct layers")
    views: dict[str, Count] = Field(description="nodes that only select or reorder elements, by operator")
    left_out: list[LeftOutModel] = Field(description="nodes without a layer")
    remarks: list[str] = Field(description="what to know of the file")


class NetworkQuestionModel(Model):
    """What was asked."""

    network: NetworkModel = Field(description="the network")
    chip: Annotated[ChipFile, WrapValidator(as_it_is)] = Field(description="the whole chip, as in a chip file")
    objective: Literal["time", "energy"] = Field(description="objective of the searches")
    gap: Annotated[Amount, Field(lt=1)] = Field(description="relative gap at which the search of a layer may stop")
    time_limit_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(description="limit of all searches together")


class LayerAnswerModel(Model):
    """The best mapping of a layer."""

    name: Text = Field(description="name of the layer")
    best: SolutionModel | None = Field(description="the best mapping found; null: none")
    reason: str = Field(description="why there is none")


class NetworkAnswerModel(Model):
    """The mappings, and totals over all nodes with one."""

    time_s: Amount = Field(description="time of all nodes, one after the other")
    energy_J: Amount = Field(description="energy of all nodes")
    left_out_time_s: Amount = Field(description="time in which the outermost memory moves the bytes of operators without a layer")
    left_out_energy_J: Amount = Field(description="energy of these bytes")
    layers: list[LayerAnswerModel] = Field(description="by layer of the question, in its order")


class NetworkMappingFile(AnswerFile):
    """The best mappings of the layers of a network on a chip: what ``halley optimise NETWORK`` writes."""

    kind: Literal["network-mapping"] = Field(description="kind of the answer")
    question: NetworkQuestionModel = Field(description="what was asked")
    answer: NetworkAnswerModel = Field(description="the mappings")


def network_result_document(result: NetworkResult) -> Plain:
    """The content of a file."""
    question = {
        "network": _network(result.network),
        "chip": chip_document(result.chip),
        "objective": result.objective.value,
        "gap": result.gap,
        "time_limit_s": result.limit,
    }
    time, energy = result.left_out
    answer = {
        "time_s": result.time,
        "energy_J": result.energy,
        "left_out_time_s": time,
        "left_out_energy_J": energy,
        "layers": [
            {
                "name": item.layer.name,
                "best": None if item.result is None else solution_document(item.result.best),
                "reason": item.reason,
            }
            for item in result.layers
        ],
    }
    return enveloped(KIND, question, result.certificate, answer)


def _network(network: NeuralNetwork) -> Plain:
    return {
        "name": network.name,
        "source": network.source,
        "opset": network.opset,
        "dtype": network.dtype,
        "constants": network.constants,
        "layers": [
            {
                "name": layer.name,
                "operator": layer.operator,
                "nodes": list(layer.nodes),
                "workload": workload_document(layer.workload),
            }
            for layer in network.layers
        ],
        "views": dict(network.views),
        "left_out": [
            {"operator": item.operator, "reason": item.reason, "count": item.count, "bytes_B": item.bytes}
            for item in network.left_out
        ],
        "remarks": list(network.remarks),
    }


def read_network_result(saved: Saved) -> NetworkResult:
    """The mappings in a file, costed again. Raises BadInput: every fault of the file; IllegalMapping: a mapping that breaks a
    rule."""
    file, chip = with_chip(saved, NetworkMappingFile)
    asked, answer = file.question, file.answer
    network = _read_network(asked.network)
    names = [layer.name for layer in network.layers]
    if [item.name for item in answer.layers] != names:
        got = ", ".join(item.name for item in answer.layers)[:120]
        raise BadInput(Fault(f"{saved.name}: answer.layers", f"those of the question: {', '.join(names)[:120]}", got))
    objective, found = Objective(asked.objective), []
    for layer, item in zip(network.layers, answer.layers, strict=True):
        result = None
        if item.best is not None:
            problem = Problem(layer.workload, chip, objective, gap=asked.gap, baselines=False)
            result = Result(problem, rebuilt(f"{saved.name}: {layer.name}", problem, item.best), ())
        found.append(LayerResult(layer, result, item.reason))
    return NetworkResult(network, chip, objective, asked.gap, asked.time_limit_s, tuple(found))


def _read_network(model: NetworkModel) -> NeuralNetwork:
    layers = tuple(
        NetworkLayer(item.name, item.operator, build(item.workload.kind, item.workload.parameters), tuple(item.nodes))
        for item in model.layers
    )
    left_out = tuple(LeftOut(item.operator, item.reason, item.count, item.bytes_B) for item in model.left_out)
    named: dict[str, Any] = {name: getattr(model, name) for name in ("name", "source", "opset", "dtype", "constants", "views")}
    return NeuralNetwork(**named, layers=layers, left_out=left_out, remarks=tuple(model.remarks))
