"""MeasuredKernel rows of kernels, strata of them, and halves of strata."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from halley.kernels.library.decode import DECODE
from halley.kernels.library.families import FAMILIES
from halley.kernels.library.family import Array, Formats, KernelFamily, Mask, Sizes


@dataclass(frozen=True, slots=True)
class MeasuredKernel:
    """One timed kernel: ``sizes`` of its ``family``, number formats, the software, the name of its kernel; ``time`` [s]."""

    family: str
    sizes: Mapping[str, float]
    dtype: str
    cache: str
    framework: str
    kernel: str
    time: float


@dataclass(frozen=True, slots=True, order=True)
class Stratum:
    """Rows that one fit explains. ``variant``: of the kernels that share a name, the one that the library takes for a shape."""

    family: str
    framework: str
    kernel: str
    dtype: str
    cache: str
    variant: str

    @property
    def formats(self) -> Formats:
        """Number formats of its rows."""
        return Formats(self.dtype, self.cache)

    def __str__(self) -> str:
        said = (self.framework, self.kernel, self.dtype, self.cache and f"{self.cache} cache", self.variant)
        return f"{self.family} ({', '.join(filter(None, said))})"


def strata(rows: Iterable[MeasuredKernel]) -> dict[Stratum, tuple[MeasuredKernel, ...]]:
    """The rows by stratum, in the order of their names."""
    found: dict[Stratum, list[MeasuredKernel]] = {}
    by_name: dict[tuple[str, str], list[MeasuredKernel]] = {}
    for row in rows:
        by_name.setdefault((row.family, row.framework), []).append(row)
    for (name, framework), same in by_name.items():
        known = FAMILIES[name]
        variants = known.variant(columns(same, known), framework) if known.variant else np.full(len(same), "")
        for row, variant in zip(same, variants, strict=True):
            key = Stratum(name, framework, row.kernel, row.dtype, row.cache, str(variant))
            found.setdefault(key, []).append(row)
    return {key: tuple(found[key]) for key in sorted(found)}


def decoding(known: KernelFamily, sizes: Sizes, stratum: Stratum) -> Iterator[tuple[Stratum, Mask]]:
    """Rows of a stratum that its library decodes (`KernelFamily.decodes`), by the stratum of the kernel that does."""
    if known.decodes is None or DECODE.variant is None:
        return
    single, variants = known.decodes(sizes, stratum.framework), DECODE.variant(sizes, stratum.framework)
    for variant in sorted({str(name) for name in variants[single]}):
        yield replace(stratum, family=DECODE.name, variant=variant), single & (variants == variant)


def halves(rows: Sequence[MeasuredKernel]) -> tuple[tuple[MeasuredKernel, ...], tuple[MeasuredKernel, ...]]:
    """Every second row of a stratum in the order of its sizes, then the rows between."""
    names = FAMILIES[rows[0].family].sizes if rows else ()
    ordered = sorted(rows, key=lambda row: (tuple(row.sizes.get(name, 0.0) for name in names), row.time))
    return tuple(ordered[::2]), tuple(ordered[1::2])


def columns(rows: Sequence[MeasuredKernel], known: KernelFamily) -> dict[str, Array]:
    """Sizes as arrays of shape [rows], with defaults."""
    return {
        name: np.array([row.sizes.get(name, known.defaults.get(name, np.nan)) for row in rows], dtype=np.float64)
        for name in known.sizes
    }


def times(rows: Sequence[MeasuredKernel]) -> Array:
    """MeasuredKernel times [s]."""
    return np.array([row.time for row in rows], dtype=np.float64)
