"""The time of a kernel of a GPU library, with its interval, from fits to measured tables.

>>> from halley.io.chips.kernel_fits import load_kernel_fits
>>> fits = load_kernel_fits("h100")
>>> found = kernel_time(fits, "gemm", {"m": 4096, "n": 12288, "k": 12288}, framework="vllm")
>>> bool(found.low < found.time < found.high)
True
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from halley.errors import BadInput, Fault, did_you_mean
from halley.formulas.numbers import Number
from halley.kernels.library.corrections import Correction, corrected
from halley.kernels.library.decode import DECODE
from halley.kernels.library.families import FAMILIES, family
from halley.kernels.library.family import Array, KernelFamily, Mask
from halley.kernels.library.formats import OTHER_NAMES, number_format
from halley.kernels.library.rows import Stratum
from halley.kernels.machine import Machine

FRAMEWORKS = ("vllm", "trtllm", "sglang")
"""Frameworks in the order in which one is taken where none is named; then any other of the fit."""
UNKNOWN_SPREAD = math.log(1.5)
"""Spread [logarithm] of a family among kin where none was measured."""
MAY_BE_0 = ("cached", "window", "alpha", "gated")
NOT_RESIDENT = 1e-12
"""Share of the cache in which operands stay between calls, where none do."""


@dataclass(frozen=True, slots=True)
class KernelFit:
    """The fit of one stratum. ``rows``: measured rows; ``error``: mean relative error of rows held out of a fit to the others,
    and ``baseline`` that of a roofline of three fitted numbers; None where there were too few rows. ``low``, ``high``: factors
    on a time between which 80 % of rows lie; ``on_bound``: parameters on a bound of the fit. ``head_dims``: measured rows by
    the dims of a head, by which the library chooses its kernel. ``correction``: what the formula leaves over."""

    stratum: Stratum
    parameters: Mapping[str, float]
    options: Mapping[str, float]
    rows: int
    error: float | None
    baseline: float | None
    low: float
    high: float
    on_bound: tuple[str, ...] = ()
    head_dims: Mapping[float, int] = field(default_factory=dict)
    correction: Correction | None = None


@dataclass(frozen=True, slots=True)
class KernelFits:
    """The fits of a chip. ``machine``: the chip's data sheet; ``measured``: the chip that the rows are of; ``source`` of the
    rows; ``dated``: day of the fit. ``spread``: by family, the standard deviation [logarithm] of what the fit of one chip says of
    another, which widens the interval where ``measured`` is another chip."""

    machine: Machine
    measured: str
    source: str
    dated: str
    fits: tuple[KernelFit, ...]
    spread: Mapping[str, float] = field(default_factory=dict)

    @property
    def of_kin(self) -> bool:
        """Whether the rows are of another chip, whose shares are applied to this one's data sheet."""
        return self.measured != self.machine.name


@dataclass(frozen=True, slots=True)
class KernelTime:
    """``time`` [s] and an interval of 80 % [s], of the shape that the sizes broadcast to; ``bound`` [s]: the least time at the
    data sheet's rates, with operands from memory, and ``compute`` [s] that of the products alone; ``source``: the fit, in
    words."""

    time: Array
    low: Array
    high: Array
    bound: Array
    compute: Array
    source: str


def kernel_time(
    fits: KernelFits,
    kind: str,
    sizes: Mapping[str, Number],
    dtype: str = "bf16",
    cache_dtype: str | None = None,
    framework: str | None = None,
    kernel: str | None = None,
    cold: bool = False,
) -> KernelTime:
    """Time of one kernel as the tables measured it: behind other kernels, with its launch.

    ``kind``: a family (`FAMILIES` says its sizes); ``sizes``: numbers or arrays that broadcast; ``dtype`` of the products (a
    number format, see `halley.kernels.library.formats`); ``cache_dtype`` of keys and values (as ``dtype`` where the fit has it);
    ``framework``: the first of `FRAMEWORKS` with a fit by default; ``kernel``: the name of the library's kernel, by default the
    one that the framework was measured with for such a head. ``cold``: no operand is in the cache from the call before: weights
    and keys come from memory, as they do between the layers of a model. Then no time is below ``bound``.

    Raises BadInput: no such family, size, format, framework or kernel in the fit; sizes below 0, or no numbers.
    """
    known = family(kind)
    arrays, shape = _sizes(known, sizes)
    mine = _candidates(fits, known, dtype, cache_dtype, framework, kernel)
    count = len(next(iter(arrays.values())))
    time, low, high = (np.empty(count) for _ in range(3))
    used: dict[Stratum, KernelFit] = {}
    single, others = _decoded(fits, known, mine, arrays, kernel)
    for item, at in (*_pieces(known, mine, arrays, ~single), *_pieces(DECODE, others, arrays, single)):
        its = FAMILIES[item.stratum.family]
        some = {size: arrays[size][at] for size in its.sizes}
        parameters = dict(item.parameters)
        if cold and "resident" in parameters:
            parameters["resident"] = NOT_RESIDENT
        modelled = its.time(parameters, its.features(some, item.stratum.formats, fits.machine, item.options))
        time[at] = corrected(modelled, some, item.correction)
        below, above = _factors(fits, item)
        low[at], high[at] = below * time[at], above * time[at]
        used[item.stratum] = item
    products, traffic = known.demand(arrays, mine[0].stratum.formats, fits.machine)
    kept = 0.0 if cold else fits.machine.capacity / fits.machine.memory
    least = np.maximum(products, traffic - kept)
    time = np.maximum(time, least)
    low, high, bound = np.maximum(low, least), np.maximum(high, time), np.maximum(products, traffic)
    source = _source(fits, tuple(used.values()))
    five = [value.reshape(shape) for value in (time, low, high, bound, products)]
    return KernelTime(five[0], five[1], five[2], five[3], five[4], source)


def _decoded(
    fits: KernelFits, known: KernelFamily, mine: Sequence[KernelFit], sizes: Mapping[str, Array], kernel: str | None
) -> tuple[Mask, list[KernelFit]]:
    """Rows that the library runs with its kernel for decoding, and the fits of that kernel; no rows where it has no fit."""
    stratum = mine[0].stratum
    wanted = (DECODE.name, stratum.framework, stratum.formats)
    others = [
        item
        for item in fits.fits
        if (item.stratum.family, item.stratum.framework, item.stratum.formats) == wanted and kernel in (None, item.stratum.kernel)
    ]
    if known.decodes is None or not others:
        return np.zeros(len(next(iter(sizes.values()))), dtype=bool), []
    return known.decodes(sizes, stratum.framework), others


def _pieces(
    known: KernelFamily, fits: Sequence[KernelFit], sizes: Mapping[str, Array], rows: Mask
) -> list[tuple[KernelFit, Mask]]:
    """Fits of a framework, each with those of ``rows`` that it times."""
    if not rows.any():
        return []
    return [
        (item, at)
        for name, mine in _kernels(fits, sizes, len(rows))
        for item, at in _variants(known, [fit for fit in fits if fit.stratum.kernel == name], sizes, rows & mine)
        if at.any()
    ]


def _sizes(known: KernelFamily, sizes: Mapping[str, Number]) -> tuple[dict[str, Array], tuple[int, ...]]:
    """All sizes as arrays of one length, and the shape of the answer."""
    faults = [
        Fault(known.name, f"the sizes {', '.join(known.sizes)}", repr(name), did_you_mean(name, known.sizes))
        for name in sizes
        if name not in known.sizes
    ]
    given = {name: np.asarray(sizes.get(name, known.defaults.get(name, np.nan)), dtype=np.float64) for name in known.sizes}
    for name, values in given.items():
        if name not in sizes and name not in known.defaults:
            faults.append(Fault(f"{known.name}: {name}", "a size", "none"))
        elif not np.isfinite(values).all() or (values < (0 if name in MAY_BE_0 else 1)).any():
            least = "0" if name in MAY_BE_0 else "1"
            faults.append(Fault(f"{known.name}: {name}", f"numbers of at least {least}", f"{float(values.min()):g}"))
    if "kv_heads" in given and not faults and np.any(given["heads"] < given["kv_heads"]):
        faults.append(Fault(f"{known.name}: kv_heads", "at most as many as heads", "more"))
    if faults:
        raise BadInput(faults)
    try:
        joined = np.broadcast_arrays(*given.values())
    except ValueError:
        raise BadInput(Fault(known.name, "sizes that broadcast", "arrays of other shapes")) from None
    return {name: values.ravel() for name, values in zip(given, joined, strict=True)}, joined[0].shape


def _candidates(
    fits: KernelFits, known: KernelFamily, dtype: str, cache_dtype: str | None, framework: str | None, kernel: str | None
) -> list[KernelFit]:
    """The fits of one framework, format and, if named, kernel."""
    number_format(dtype)
    where = f"{known.name} on {fits.machine.name}"
    mine = [item for item in fits.fits if item.stratum.family == known.name]
    if not mine:
        kinds = sorted({item.stratum.family for item in fits.fits})
        remedy = "measure it and run 'halley calibrate chip'"
        raise BadInput(Fault(where, f"a kernel that the fit has ({', '.join(kinds)})", known.name, remedy))
    wanted = OTHER_NAMES.get(dtype, dtype)
    cache = OTHER_NAMES.get(cache_dtype, cache_dtype) if cache_dtype else None
    steps = (
        ("framework", framework.lower() if framework else None),
        ("dtype", "bf16" if wanted == "fp16" and not any(item.stratum.dtype == "fp16" for item in mine) else wanted),
        ("cache", cache if any(item.stratum.cache for item in mine) else None),
        ("kernel", kernel),
    )
    for name, value in steps:
        if value is None:
            continue
        found = [item for item in mine if getattr(item.stratum, name) == value]
        if not found:
            have = sorted({str(getattr(item.stratum, name)) for item in mine})
            expected, remedy = f"one that was measured ({', '.join(have)})", did_you_mean(value, have)
            raise BadInput(Fault(f"{where}: {name}", expected, repr(value), remedy))
        mine = found
    if framework is None:
        mine = _first(mine, "framework", FRAMEWORKS)
    if cache is None:
        mine = _first(mine, "cache", (wanted, "bf16"))
    return mine


def _first(fits: Sequence[KernelFit], name: str, order: Sequence[str]) -> list[KernelFit]:
    """Those with the first value of the order that one of them has."""
    have = sorted({str(getattr(item.stratum, name)) for item in fits})
    value = next((value for value in order if value in have), have[0])
    return [item for item in fits if getattr(item.stratum, name) == value]


def _kernels(fits: Sequence[KernelFit], sizes: Mapping[str, Array], count: int) -> list[tuple[str, Mask]]:
    """Kernels, each with the rows that it runs: the kernel most often measured with such a head."""
    rows: dict[str, int] = {}
    dims: dict[str, dict[float, int]] = {}
    for item in fits:
        name = item.stratum.kernel
        rows[name] = rows.get(name, 0) + item.rows
        mine = dims.setdefault(name, {})
        for dim, number in item.head_dims.items():
            mine[dim] = mine.get(dim, 0) + number
    every = np.ones(count, dtype=bool)
    most = max(rows, key=lambda name: rows[name])
    if len(rows) == 1 or "head_dim" not in sizes or not any(dims.values()):
        return [(most, every)]
    distinct = np.unique(sizes["head_dim"])
    measured = sorted({dim for mine in dims.values() for dim in mine})
    chosen: dict[str, list[float]] = {}
    for dim in distinct:
        near = min(measured, key=lambda other, at=dim: (abs(math.log(other / at)), other))  # type: ignore[misc]
        name = max(rows, key=lambda name, at=near: (dims[name].get(at, 0), rows[name]))  # type: ignore[misc]
        chosen.setdefault(name, []).append(float(dim))
    if len(chosen) == 1:
        return [(next(iter(chosen)), every)]
    return [(name, np.isin(sizes["head_dim"], values)) for name, values in chosen.items()]


def _variants(
    known: KernelFamily, fits: Sequence[KernelFit], sizes: Mapping[str, Array], rows: Mask
) -> list[tuple[KernelFit, Mask]]:
    """Fits of one kernel, each with the rows of its variant; rows of a variant that was not measured go to the largest fit."""
    largest = max(fits, key=lambda item: item.rows)
    if known.variant is None or len(fits) == 1:
        return [(largest, rows)]
    names = known.variant(sizes, fits[0].stratum.framework)
    have = {item.stratum.variant: item for item in fits}
    found = [(item, rows & (names == name)) for name, item in have.items()]
    rest = rows & ~np.isin(names, list(have))
    found.append((largest, rest))
    return [(item, at) for item, at in found if at.any()]


def _factors(fits: KernelFits, item: KernelFit) -> tuple[float, float]:
    """Factors of the interval, wider by the spread among kin where the rows are of another chip."""
    if not fits.of_kin:
        return item.low, item.high
    spread = 1.2816 * fits.spread.get(item.stratum.family, UNKNOWN_SPREAD)  # 80 % of a normal distribution
    return math.exp(-math.hypot(math.log(item.low), spread)), math.exp(math.hypot(math.log(item.high), spread))


def _source(fits: KernelFits, used: Sequence[KernelFit]) -> str:
    said = []
    for item in used:
        held = "no rows held out" if item.error is None else f"held-out error {100 * item.error:.1f} %"
        if fits.of_kin:
            spread = fits.spread.get(item.stratum.family, UNKNOWN_SPREAD)
            held += f" on {fits.measured}; that on {fits.machine.name} is not known, so the interval is for a deviation of "
            held += f"{100 * math.expm1(spread):.0f} %"
        said.append(f"{item.stratum}: {item.rows} rows, {held}")
    kin = f", shares of {fits.measured} on the data sheet of {fits.machine.name}" if fits.of_kin else ""
    return f"fit of {fits.measured}{kin}: {'; '.join(said)}"


def kinds() -> tuple[str, ...]:
    """Names of the families."""
    return tuple(FAMILIES)
