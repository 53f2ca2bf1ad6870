"""The loop over a suite: time each case that is not timed yet, until all are, or the limit or the user ends it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from halley.measure.suite import Case
from halley.measure.timing import Device, NotSupported, TimedCase

SAVE_EVERY = 10.0
"""Seconds between two savings of what was measured."""


@dataclass(slots=True)
class SuiteRun:
    """What was measured so far, the cases that the device cannot run with the reasons, and how many are left."""

    measured: list[TimedCase] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    left: int = 0


Saved = Callable[[SuiteRun], None]


def measure(
    cases: Sequence[Case],
    device: Device,
    before: Mapping[str, TimedCase],
    limit: float,
    save: Saved,
    progress: Callable[[str, float], None] = lambda text, share: None,
) -> SuiteRun:
    """Time the cases. ``before``: those of an earlier run, by their words; ``limit`` [s]: after it no case is begun.

    ``save`` is called from time to time and at the end, however it ends: also when a signal raises KeyboardInterrupt. A kernel
    that fails once because of its format or name is not tried with other sizes.
    """
    run, started = SuiteRun(), time.monotonic()
    refused: dict[tuple[str, str, str], str] = {}
    saved = started
    try:
        for index, case in enumerate(cases):
            known = before.get(str(case))
            if known is not None:
                run.measured.append(known)
                continue
            now = time.monotonic()
            if now - started > limit:
                run.left += 1
                continue
            progress(f"{index} of {len(cases)} kernels: {case}", index / len(cases))
            kind = (case.op, case.dtype, case.kernel)
            if kind in refused:
                run.skipped[str(case)] = refused[kind]
                continue
            try:
                run.measured.append(TimedCase(case, device.timed(case)))
            except NotSupported as error:
                run.skipped[str(case)] = str(error)
                if not any((item.case.op, item.case.dtype, item.case.kernel) == kind for item in run.measured):
                    refused[kind] = str(error)
            if now - saved > SAVE_EVERY:
                save(run)
                saved = now
    finally:
        run.left = len(cases) - len(run.measured) - len(run.skipped)
        save(run)
    return run
