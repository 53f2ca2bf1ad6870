"""The parameters of a workload on the command line: ``--m 64 --kv-heads=8 --causal``; the extents of the dims of a graph written
in place of a kind: ``'C[m,n] = A[m,k] * B[k,n]' --m 64 --n 64 --k 32``; or a layer of a model, at a number of tokens:
``config.json --layer attention --tokens 512``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from halley.errors import BadInput, Fault, did_you_mean
from halley.importers.files import is_model, is_network
from halley.ir.workload import Workload
from halley.workloads import WORKLOADS, ParameterType, WorkloadKind, build
from halley.workloads.construction.parameters import faults as value_faults
from halley.workloads.construction.parameters import size
from halley.workloads.user import GRAPH, dims_of, extents_text

if TYPE_CHECKING:
    from halley.importers.model import ImportedModel, LayerWorkload

_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
LAYER = "--layer"
DEFAULT_TOKENS = 512
"""Tokens of a layer of a model, unless --tokens sets another number."""


def workload_from(kind: str, words: Sequence[str], options: Iterable[str] = ()) -> Workload:
    """The workload of that kind with the parameters in the words; ``options`` are the command's own, for did-you-mean.

    >>> workload_from("gemm", ["--m", "4", "--n=5", "--k", "6"]).macs()
    120

    In place of the kind there may be a model, with ``--layer NAME`` among the words, or the lines of a graph, separated by
    semicolons, with the extents of their dims among the words:

    >>> workload_from("C[m,n] = A[m,k] * B[k,n]; R[m,n] = relu(C[m,n])", ["--m", "4", "--n=5", "--k", "6"]).outputs
    ('R',)

    Raises BadInput: an unknown kind, and every unknown, repeated, missing and wrong parameter at once.
    """
    if is_network(kind):
        name, rest = _layer_name(words)
        found: Workload = import_module("halley.cli.mappings.network").layer_of_network(kind, name, rest).workload
        return found  # loaded here: only networks need it
    if kind not in WORKLOADS and is_model(kind):
        from halley.importers.source import find_model  # here: it loads what reads files

        return _layer_of(find_model(kind), words, tuple(options))
    if is_graph(kind):
        return _graph(kind, words, tuple(options))
    known = known_kind(kind)
    given: dict[str, object] = {}
    faults = list(_read(known, words, tuple(options), given))
    faults += value_faults(known, given)
    if faults:
        raise BadInput(faults)
    return build(kind, given)


def is_graph(text: str) -> bool:
    """Whether the text is the lines of a graph rather than a name or a path.

    >>> is_graph("C[m,n] = A[m,k] * B[k,n]"), is_graph("gemm"), is_graph("runs[1]/config.json")
    (True, False, False)
    """
    return "[" in text and not text.endswith((".yaml", ".yml", ".json", ".onnx", ".pt2"))


def _graph(text: str, words: Sequence[str], options: tuple[str, ...]) -> Workload:
    """The workload of a graph's lines; each dim is a parameter, beside the element type and the outputs."""
    lines = text.replace(";", "\n")
    parameters = tuple(item for item in GRAPH.parameters if item.name not in ("lines", "dims"))
    dims = [dim for dim in dims_of(lines) if all(dim != item.name for item in parameters)]
    kind = replace(GRAPH, parameters=(*(size(dim, f"extent of dim {dim}") for dim in dims), *parameters))
    given: dict[str, object] = {}
    faults = list(_read(kind, words, options, given))
    faults += value_faults(kind, given)
    if faults:
        raise BadInput(faults)
    extents = {dim: int(str(given.pop(dim))) for dim in dims}
    return build(GRAPH.name, {"lines": lines, "dims": extents_text(extents), **given})


def has_layer(words: Sequence[str]) -> bool:
    """Whether the words name a layer of a model."""
    return any(word.partition("=")[0] == LAYER for word in words)


def _layer_of(model: ImportedModel, words: Sequence[str], options: tuple[str, ...]) -> Workload:
    """A layer of a model. ``--tokens`` sets all parameters that count tokens, each of which may be given by itself."""
    name, rest = _layer_name(words)
    if name not in model.layers:
        got = repr(name) if name else "nothing"
        remedy = did_you_mean(name, model.layers)
        raise BadInput(Fault(f"model {model.name}, option {LAYER}", "the name of a layer", got, remedy))
    layer = model.layers[name]
    native = known_kind(layer.kind)
    own = tuple(
        replace(item, default=cast(Any, layer.parameters.get(item.name, 1 if item.name in _counted(layer) else item.default)))
        for item in native.parameters
    )
    if native.parameter("tokens") is None:
        own = (*own, size("tokens", "tokens that the layer processes", DEFAULT_TOKENS))
    kind = replace(native, name=f"{model.name} {name}", parameters=own, rules=())
    given: dict[str, object] = {}
    faults = list(_read(kind, rest, (*options, LAYER), given))
    faults += value_faults(kind, given)
    if faults:
        raise BadInput(faults)
    tokens = given.pop("tokens", DEFAULT_TOKENS)
    if isinstance(tokens, int) and tokens % layer.unit:
        raise BadInput(Fault(f"workload {kind.name}, option --tokens", f"a multiple of {layer.unit}", str(tokens)))
    counted = {parameter: int(str(tokens)) // layer.unit for parameter in layer.tokens}
    attended = given.get(layer.tokens[0], counted[layer.tokens[0]]) if layer.tokens else tokens
    return build(layer.kind, {**layer.parameters, **counted, **dict.fromkeys(layer.keys, attended), **given})


def _counted(layer: LayerWorkload) -> tuple[str, ...]:
    return (*layer.tokens, *layer.keys)


def _layer_name(words: Sequence[str]) -> tuple[str, list[str]]:
    """The value of --layer, "" if there is none, and the other words."""
    rest = list(words)
    for place, word in enumerate(rest):
        option, equals, value = word.partition("=")
        if option == LAYER:
            end = place + 1 if equals else place + 2
            name = value if equals else "".join(rest[place + 1 : end])
            return ("" if name.startswith("--") else name), rest[:place] + rest[end:]
    return "", rest


def refuse_beside(path: str, words: Sequence[str]) -> None:
    """Raises BadInput: parameters beside a file that has them."""
    if words:
        got, remedy = f"{words[0]!r} beside it", "remove it, or name a kind of workload"
        raise BadInput(Fault(path, "the workload's parameters in the file", got, remedy))


def known_kind(kind: str) -> WorkloadKind:
    """The kind of that name. Raises BadInput: there is none."""
    if kind.startswith("-"):
        raise BadInput(Fault("workload", "its kind before its parameters", repr(kind), "write for example 'gemm --m 64 ...'"))
    if kind not in WORKLOADS:
        raise BadInput(Fault("workload", "a known kind", repr(kind), did_you_mean(kind, WORKLOADS)))
    return WORKLOADS[kind]


def _read(kind: WorkloadKind, words: Sequence[str], options: tuple[str, ...], given: dict[str, object]) -> Iterator[Fault]:
    """Fill ``given``; yield what is wrong with the words themselves."""
    where = f"workload {kind.name}"
    flags = {f"--no-{p.name.replace('_', '-')}" for p in kind.parameters if p.type is ParameterType.FLAG}
    names = {f"--{p.name.replace('_', '-')}" for p in kind.parameters} | flags | set(options)
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            yield Fault(where, "options such as --m 64", repr(word), f"see 'halley workloads {kind.name}'")
            continue
        option, equals, value = word.partition("=")
        off = option in flags
        parameter = kind.parameter(option.removeprefix("--no-" if off else "--").replace("-", "_"))
        if parameter is None:
            yield Fault(where, "a known option", repr(option), did_you_mean(option, names))
            if not equals and rest and not rest[0].startswith("--"):
                rest.pop(0)
            continue
        if parameter.name in given:
            yield Fault(f"{where}, option {option}", "each parameter once", "it again", "remove one")
        if parameter.type is ParameterType.FLAG:
            given[parameter.name] = {"": not off, "true": True, "false": False}.get(value, value)
            continue
        if not equals:
            if not rest or rest[0].startswith("--"):
                yield Fault(f"{where}, option {option}", parameter.meaning, "no value", f"write for example '{option} 64'")
                given[parameter.name] = parameter.choices[0] if parameter.choices else 1  # not reported as missing, too
                continue
            value = rest.pop(0)
        whole = parameter.type in (ParameterType.SIZE, ParameterType.COUNT) and _WHOLE.fullmatch(value)
        given[parameter.name] = int(value) if whole else value
