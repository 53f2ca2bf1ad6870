"""The parameters of a workload on the command line: ``--m 64 --kv-heads=8 --causal``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from halley.errors import BadInput, Fault, did_you_mean
from halley.ir.workload import Workload
from halley.workloads import WORKLOADS, ParameterType, WorkloadKind, build
from halley.workloads.parameters import faults as value_faults

_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")


def workload_from(kind: str, words: Sequence[str], options: Iterable[str] = ()) -> Workload:
    """The workload of that kind with the parameters in the words; ``options`` are the command's own, for did-you-mean.

    >>> workload_from("gemm", ["--m", "4", "--n=5", "--k", "6"]).macs()
    120

    Raises BadInput: an unknown kind, and every unknown, repeated, missing and wrong parameter at once.
    """
    known = known_kind(kind)
    given: dict[str, object] = {}
    faults = list(_read(known, words, tuple(options), given))
    faults += value_faults(known, given)
    if faults:
        raise BadInput(faults)
    return build(kind, given)


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
                given[parameter.name] = parameter.choices[0] if parameter.choices else 1  # told already; not missing besides
                continue
            value = rest.pop(0)
        whole = parameter.type in (ParameterType.SIZE, ParameterType.COUNT) and _WHOLE.fullmatch(value)
        given[parameter.name] = int(value) if whole else value
