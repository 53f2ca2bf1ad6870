"""Gradients by central differences, and a graph run by the ops of the interpreter: what derivatives are held against."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from tests.reference import graphs

from halley.execute import arithmetic
from halley.ir.workload import Workload
from halley.rewrite.backward import Differentiated
from halley.verify.plain import plain

STEP = 1e-5
"""Half the difference [1]: errors of the order of its square."""

ELEMENTS = 24
"""Tensors of more elements are stepped along random directions rather than element by element."""

DIRECTIONS = 6


def run(workload: Workload, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All tensors, with the ops as the interpreter executes them, on whole tensors."""
    known = dict(arrays)
    ranges = {dim: (0, extent) for dim, extent in workload.dims.items()}
    for op in workload.ops:
        operands = [known[name] for name in op.inputs]
        result = arithmetic.evaluate(workload, op, workload.reduced(op), ranges, operands)
        known |= dict(zip(op.outputs, result.state, strict=True))
    return known


def check(workload: Workload, found: Differentiated, arrays: Mapping[str, np.ndarray], tolerance: float = 2e-7) -> None:
    """Hold the gradients of a differentiated workload, by each of three evaluators, against differences of the plain one."""
    rng = np.random.default_rng(7)
    seeds = {name: rng.normal(size=_shape(workload, name)) for name in found.seeds}
    given = {**arrays, **{found.seeds[name]: seed for name, seed in seeds.items()}}
    results = graphs.evaluate(found.workload, given), run(found.workload, given), plain(found.workload, given)

    def value(changed: Mapping[str, np.ndarray]) -> float:
        known = graphs.evaluate(workload, {**arrays, **changed})
        return float(sum((known[name] * seed).sum() for name, seed in seeds.items()))

    for name in workload.inputs:
        if workload.tensors[name].dtype.startswith("int"):
            assert name not in found.gradients
            continue
        gradient = found.gradients.get(name, "")
        directions = _directions(arrays[name].shape, rng)
        slopes = np.array([_slope(value, name, arrays[name], direction) for direction in directions])
        for known in results:
            # a tensor without a gradient is one that no output depends on
            value_of = known[gradient] if gradient else np.zeros(arrays[name].shape)
            assert value_of.shape == arrays[name].shape, name
            mine = np.array([(value_of * direction).sum() for direction in directions])
            scale = max(1.0, float(np.abs(slopes).max()))
            np.testing.assert_allclose(mine, slopes, rtol=0, atol=tolerance * scale, err_msg=f"gradient of {name}")


def _slope(value, name: str, array: np.ndarray, direction: np.ndarray) -> float:  # type: ignore[no-untyped-def]
    step = STEP * direction
    return float((value({name: array + step}) - value({name: array - step})) / (2 * STEP))


def _directions(shape: tuple[int, ...], rng: np.random.Generator) -> list[np.ndarray]:
    size = int(np.prod(shape))
    if size <= ELEMENTS:
        return [unit.reshape(shape) for unit in np.eye(size)]
    return [rng.choice([-1.0, 1.0], size=shape) for _ in range(DIRECTIONS)]


def _shape(workload: Workload, name: str) -> tuple[int, ...]:
    return tuple(workload.dims[dim] for dim in workload.tensors[name].dims)
