"""Equal plans come out in one order, whatever the process: the same answer under every seed of the hashes of words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

COMMAND = ("plan", "gpt3-6.7b", "--train", "--system", "8 x h100, nvlink 4, ib", "--batch", "16", "--json")
TIMINGS = ("seconds", "provenance")
"""What differs from run to run."""


def told(seed: str) -> Any:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"}
    program = "from halley.cli.start import main; main()"
    done = subprocess.run([sys.executable, "-c", program, *COMMAND], env=environment, check=True, capture_output=True, text=True)
    return untimed(json.loads(done.stdout))


def untimed(answer: Any) -> Any:
    match answer:
        case dict():
            return {key: untimed(value) for key, value in answer.items() if key not in TIMINGS}
        case list():
            return [untimed(value) for value in answer]
        case _:
            return answer


def test_the_plan_does_not_depend_on_how_words_are_hashed() -> None:
    assert told("1") == told("2")
