"""Halley predicts and optimises how workloads run on accelerators, and proves it.

    import halley

    work = halley.build("gemm-softmax", {"m": 512, "n": 1024, "k": 64})
    result = halley.optimise(halley.Problem(work, halley.load_chip("edge")))
    print(halley.to_text(result.best.plan), result.best.estimate.time)

The names below are the public ones; each is imported when it is first used.
"""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # as in `typing`, which takes as long to load as all else that the command needs before it can take Ctrl-C

if TYPE_CHECKING:
    from typing import Any

    from halley.answer import Certificate, Status
    from halley.answers.base import Answer
    from halley.answers.load import as_answer, load
    from halley.cost.estimate import Estimate
    from halley.cost.evaluate import evaluate
    from halley.errors import BadInput, HalleyError, IllegalMapping, Infeasible, InternalError, UnitError
    from halley.execute.interpreter import Execution, random_inputs, run
    from halley.importers.torch.export import from_torch
    from halley.io.chips.load import load_chip, load_problem
    from halley.io.results.result import load_result, save_result
    from halley.ir.hardware import Chip
    from halley.ir.text import parse, to_text
    from halley.ir.workload import Op, OpKind, Tensor, Workload
    from halley.library import chip_names
    from halley.mapping.optimise import optimise
    from halley.mapping.problem import Objective, Problem
    from halley.mapping.result import MappingCertificate, Point, Result, Solution
    from halley.products.calibration import calibrate_training
    from halley.products.collective import collective
    from halley.products.deployment import plan_serving, serve
    from halley.products.estimate import estimate
    from halley.products.kernels import time
    from halley.products.listing import chips, models
    from halley.products.network import optimise_network
    from halley.products.plan import plan
    from halley.products.sensitivity import sensitivity
    from halley.products.shard import shard
    from halley.report.mapping.html import result_html
    from halley.report.progress import ProgressBar
    from halley.rewrite.legality import check
    from halley.sweeps.codesign import CodesignResult, codesign
    from halley.sweeps.run import DesignSweep, SweepResult, sweep
    from halley.training.uncertainty.plans import uncertainty
    from halley.workloads import build, graph, shapes, variants

_HOME = {
    "halley.answer": ("Certificate", "Status"),
    "halley.answers.base": ("Answer",),
    "halley.answers.load": ("as_answer", "load"),
    "halley.cost.estimate": ("Estimate",),
    "halley.cost.evaluate": ("evaluate",),
    "halley.errors": ("BadInput", "HalleyError", "IllegalMapping", "Infeasible", "InternalError", "SearchStopped", "UnitError"),
    "halley.execute.interpreter": ("Execution", "random_inputs", "run"),
    "halley.importers.torch.export": ("from_torch",),
    "halley.io.chips.load": ("load_chip", "load_problem"),
    "halley.io.results.result": ("load_result", "save_result"),
    "halley.ir.hardware": ("Chip",),
    "halley.ir.text": ("parse", "to_text"),
    "halley.ir.workload": ("Op", "OpKind", "Tensor", "Workload"),
    "halley.library": ("chip_names",),
    "halley.mapping.optimise": ("optimise",),
    "halley.mapping.problem": ("Objective", "Problem"),
    "halley.mapping.result": ("MappingCertificate", "Point", "Result", "Solution"),
    "halley.products.calibration": ("calibrate_training",),
    "halley.products.collective": ("collective",),
    "halley.products.deployment": ("plan_serving", "serve"),
    "halley.products.estimate": ("estimate",),
    "halley.products.kernels": ("time",),
    "halley.products.listing": ("chips", "models"),
    "halley.products.network": ("optimise_network",),
    "halley.products.plan": ("plan",),
    "halley.products.sensitivity": ("sensitivity",),
    "halley.products.shard": ("shard",),
    "halley.report.mapping.html": ("result_html",),
    "halley.report.progress": ("ProgressBar",),
    "halley.rewrite.legality": ("check",),
    "halley.sweeps.codesign": ("CodesignResult", "codesign"),
    "halley.sweeps.run": ("DesignSweep", "SweepResult", "sweep"),
    "halley.training.uncertainty.plans": ("uncertainty",),
    "halley.workloads": ("build", "graph", "shapes", "variants"),
}
"""Public names by the module that defines them."""

_MODULE = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "Answer",
    "BadInput",
    "Certificate",
    "Chip",
    "CodesignResult",
    "DesignSweep",
    "Estimate",
    "Execution",
    "HalleyError",
    "IllegalMapping",
    "Infeasible",
    "InternalError",
    "MappingCertificate",
    "Objective",
    "Op",
    "OpKind",
    "Point",
    "Problem",
    "ProgressBar",
    "Result",
    "Solution",
    "Status",
    "SweepResult",
    "Tensor",
    "UnitError",
    "Workload",
    "as_answer",
    "build",
    "calibrate_training",
    "check",
    "chip_names",
    "chips",
    "codesign",
    "collective",
    "estimate",
    "evaluate",
    "from_torch",
    "graph",
    "load",
    "load_chip",
    "load_problem",
    "load_result",
    "models",
    "optimise",
    "optimise_network",
    "parse",
    "plan",
    "plan_serving",
    "random_inputs",
    "result_html",
    "run",
    "save_result",
    "sensitivity",
    "serve",
    "shapes",
    "shard",
    "sweep",
    "time",
    "to_text",
    "uncertainty",
    "variants",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("halley.version").halley_version()
    if name not in _MODULE:
        raise AttributeError(f"module 'halley' has no attribute {name!r}")
    value = getattr(import_module(_MODULE[name]), name)
    if "IPython" in sys.modules:
        import_module("halley.report.mapping.html").attach()  # notebooks show results as tables
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
