"""`halley.calibrate_training`: software fitted to measured iterations of training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from halley.errors import BadInput, Fault
from halley.importers.iterations import TEXT_LIMIT, read_iterations
from halley.io.chips.software import NO_SOFTWARE, load_software
from halley.io.files.text import read_text_bounded
from halley.products.arguments import checked
from halley.training.fit.calibrate import TrainingCalibration, calibrate_software

START = "eager"
"""The software from which a fit starts unless another is named."""


@checked
def calibrate_training(
    log: str | Path,
    software: str | Path = START,
    name: str = "calibrated",
    source: str | None = None,
    efficiency: str | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> TrainingCalibration:
    """Software called ``name`` whose host time and share of the kernel rates are fitted to the measured iterations of a CSV.

    ``software``: where the fit starts, by name or path; what the rows do not determine keeps its numbers. ``source``: origin of
    the rows, the name of the file unless given. ``efficiency``: fit of the chips' kernels, that of each chip unless given.

    Raises BadInput: the software or the table cannot be read, with every fault of every row.
    """
    if str(software) == NO_SOFTWARE:
        raise BadInput(Fault("software", "software from which the fit starts", NO_SOFTWARE, f"leave it out, for {START}"))
    start = load_software(software)
    report = progress or (lambda text, share: None)
    text = read_text_bounded(log, TEXT_LIMIT)
    rows = read_iterations(text, str(log), start, efficiency, lambda said, share: report(said, 0.3 * share))
    said = source or f"measured iterations of {Path(log).name}"
    return calibrate_software(rows, start, name, said, lambda what, share: report(what, 0.3 + 0.7 * share))
