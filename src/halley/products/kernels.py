"""`halley.time`: the time of one kernel of a library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from halley.formulas.numbers import Number
from halley.io.chips.kernel_fits import load_kernel_fits
from halley.kernels.library.times import KernelTime, kernel_time
from halley.products.arguments import checked


@checked
def time(
    kernel: str,
    sizes: Mapping[str, Number],
    chip: str | Path,
    dtype: str = "bf16",
    cache_dtype: str | None = None,
    framework: str | None = None,
    name: str | None = None,
    fit: str | Path | None = None,
    cold: bool = False,
) -> KernelTime:
    """Time of a library's kernel on a chip, with an interval of 80 % and the bound of the roofline [s].

    ``kernel``: a family, ``sizes``: its sizes by name, numbers or arrays; ``chip``: one with measured kernels or its kin, or
    a file with ``fit``, the measured chip that is most like it; ``dtype`` of the products, ``cache_dtype`` of keys and values;
    ``framework`` and ``name``: whose kernel; ``cold``: no operand is in the cache.

    >>> found = time("gemm", {"m": 4096, "n": 12288, "k": 12288}, "h100")
    >>> float(found.bound) < float(found.low) < float(found.time) < float(found.high)
    True

    Raises BadInput: an unknown name, sizes that the kernel lacks or that are missing, a chip without measured kernels.
    """
    fits = load_kernel_fits(chip) if fit is None else load_kernel_fits(fit, chip)
    return kernel_time(fits, kernel, sizes, dtype, cache_dtype, framework, name, cold)
