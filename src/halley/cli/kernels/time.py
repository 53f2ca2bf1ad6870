"""``halley time``: the time of one kernel of a library on a chip, with its interval."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Annotated

import typer

from halley.cli import options
from halley.cli.options import JsonOption
from halley.errors import BadInput, Fault, did_you_mean
from halley.io.chips.kernel_fits import load_kernel_fits
from halley.io.files.shelf import is_path
from halley.kernels.library.families import family
from halley.kernels.library.family import KernelFamily
from halley.kernels.library.times import KernelTime, kernel_time
from halley.report.table import Table, percent
from halley.report.terminal import show
from halley.units import format_time

_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,6})?")


def time(
    context: typer.Context,
    kernel: Annotated[str, typer.Argument(metavar="KERNEL", help="Family of kernels; its sizes follow as options.")],
    chip: Annotated[
        str, typer.Option("--chip", help="A chip with a fit of its kernels, or its kin; or a chip file.", metavar="CHIP")
    ],
    dtype: Annotated[str, typer.Option("--dtype", help="Number format of the products.", metavar="NAME")] = "bf16",
    cache_dtype: Annotated[
        str | None, typer.Option("--cache-dtype", help="Number format of keys and values.", metavar="NAME")
    ] = None,
    framework: Annotated[
        str | None, typer.Option("--framework", help="Software: vllm, trtllm, sglang, ...", metavar="NAME")
    ] = None,
    name: Annotated[str | None, typer.Option("--kernel", help="The library's name of its kernel.", metavar="NAME")] = None,
    fit: Annotated[
        str | None, typer.Option("--fit", help="Fit of kernels: a shipped name or a file; by default the chip's.", metavar="FIT")
    ] = None,
    cold: Annotated[bool, typer.Option("--cold", help="No operand is in the cache from the call before.")] = False,
    json: JsonOption = False,
) -> None:
    """Time of one kernel of a library, with an interval of 80 %, the roofline's bound and the share of it that is reached.

    Example: halley time gemm --m 4096 --n 12288 --k 12288 --chip h100
    """
    sizes = _sizes(family(kernel), context.args, options.own_options(context))
    if fit is None and is_path(chip):
        remedy = f"add --fit h100, or another measured chip that is most like it; 'halley optimise {kernel}' searches a mapping"
        raise BadInput(Fault("--fit", "the fit of measured kernels to apply to a chip file", "none", remedy))
    fits = load_kernel_fits(chip) if fit is None else load_kernel_fits(fit, chip)
    found = kernel_time(fits, kernel, sizes, dtype, cache_dtype, framework, name, cold)
    if json:
        options.print_json(_document(found))
        return
    time, low, high, bound = (float(value) for value in (found.time, found.low, found.high, found.bound))
    by = "products" if float(found.compute) >= bound else "memory"
    head = ("library", "80 % of times", "bound", "share of the roofline")
    row = (format_time(time), f"{format_time(low)} to {format_time(high)}", f"{format_time(bound)} ({by})", percent(bound, time))
    said = " ".join(f"{key}={value:g}" for key, value in sizes.items())
    show(options.output(), [Table(f"{kernel} {said}, {dtype} on {fits.machine.name}", head, (row,), frozenset(range(4)))])
    options.output().print(found.source, markup=False, highlight=False)
    if bound > time:
        options.output().print("The time is below the bound because operands stay in the cache; --cold leaves them out.")


def _document(found: KernelTime) -> dict[str, object]:
    names = ("time", "low", "high", "bound", "compute")
    return {**{f"{key}_s": float(getattr(found, key)) for key in names}, "source": found.source}


def _sizes(known: KernelFamily, words: Sequence[str], own: Sequence[str]) -> dict[str, float]:
    """Sizes from ``--m 64 --kv-heads=8``. Raises BadInput: unknown, repeated or missing sizes, and those that are no numbers."""
    where, faults = f"kernel {known.name}", []
    given: dict[str, float] = {}
    rest = list(words)
    names = {f"--{size.replace('_', '-')}": size for size in known.sizes}
    while rest:
        word, equals, value = rest.pop(0).partition("=")
        if not equals and word.startswith("--") and rest and not rest[0].startswith("--"):
            value = rest.pop(0)
        if word not in names:
            faults.append(Fault(where, "its sizes as options", repr(word[:40]), did_you_mean(word[:40], [*names, *own])))
        elif names[word] in given:
            faults.append(Fault(f"{where}, option {word}", "each size once", "it again", "remove one"))
        elif not _NUMBER.fullmatch(value) or not math.isfinite(float(value)):
            faults.append(Fault(f"{where}, option {word}", "a number", repr(value[:40]), f"write for example '{word} 64'"))
        else:
            given[names[word]] = float(value)
    missing = [name for name, size in names.items() if size not in given and size not in known.defaults]
    faults += [Fault(where, f"the size {name}", "none", f"write for example '{name} 64'") for name in missing if not faults]
    if faults:
        raise BadInput(faults)
    return given
