"""`halley.optimise_network`: a whole network on one chip."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from halley.errors import BadInput, Fault
from halley.importers.fusing import fused
from halley.importers.network import ImportedNetwork
from halley.importers.onnx.load import import_onnx
from halley.importers.torch.export import import_pt2
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip
from halley.mapping.network import NetworkResult, optimise_layers, searched
from halley.mapping.problem import Objective, Problem, gap_faults, objective_faults
from halley.mapping.result import Result
from halley.products.arguments import checked, limit_of

Progress = Callable[[str, float], None]


def load_network(path: str, dims: Mapping[str, int] | None = None, dtype: str | None = None) -> ImportedNetwork:
    """The network in a file. ``dims``: extents of dims that a file of ONNX only names; ``dtype``: the type of all elements,
    by default that of the first input. Raises BadInput: no such file, every fault of it, dims of a program of torch.export."""
    if not path.lower().endswith(".pt2"):
        return import_onnx(path, dims, dtype)
    if dims:
        expected = "none for a program of torch.export, whose example sets all dims"
        raise BadInput(Fault("--dim", expected, "one", "export it again"))
    return import_pt2(path, dtype)


@checked
def optimise_network(
    network: ImportedNetwork | str | Path,
    chip: Chip | str | Path,
    objective: str = "time",
    gap: float = 0.0,
    time_limit: float | str | None = None,
    separate: bool = False,
    dims: Mapping[str, int] | None = None,
    dtype: str | None = None,
    progress: Progress | None = None,
) -> NetworkResult:
    """The best mapping of every distinct layer of a network on a chip, each layer searched by itself.

    ``network``: an ONNX file, a program of torch.export, or what `halley.from_torch` returns; ``objective``: time or energy;
    ``gap`` of each layer; ``time_limit`` of all searches in seconds or as text, 300 s unless given; ``separate``: no elementwise
    operators as part of the layer before them; ``dims``, ``dtype``: as ``--dim`` and ``--dtype`` of ``halley optimise``.

    Raises BadInput: a file that is none, an objective that does not add up, an element type that the chip lacks.
    """
    found = network if isinstance(network, ImportedNetwork) else load_network(str(network), dims, dtype)
    machine = chip if isinstance(chip, Chip) else load_chip(chip)
    if not separate:
        found = fused(found)
    if faults := [
        *objective_faults("optimise_network, objective", objective),
        *gap_faults("optimise_network, gap", gap, f"{gap}"),
    ]:
        raise BadInput(faults)
    limit, begun = limit_of("optimise_network", time_limit), 0

    def search(problem: Problem, label: str) -> tuple[Result, bool]:
        nonlocal begun
        begun += 1
        return searched(problem, label, None if progress is None else partial(report, label, begun - 1))

    def report(label: str, done: int, text: str, share: float) -> None:
        assert progress is not None
        progress(f"{label}: {text}", min((done + share) / len(found.layers), 1.0))

    return optimise_layers(found, machine, Objective(objective), gap, limit, search)
