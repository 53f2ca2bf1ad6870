"""Cost a mapping from a file, execute it on real arrays, and compare what was counted with what the formulas say."""

from pathlib import Path

import numpy as np

import halley

HERE = Path(__file__).parent


def main() -> None:
    chip = halley.load_chip(HERE / "pencil.yaml")
    work = halley.build("gemm", {"m": 4, "n": 7, "k": 5})
    plan = halley.parse((HERE / "split-k.txt").read_text(encoding="utf-8"))
    halley.check(plan, work, chip)

    estimate = halley.evaluate(work, chip, plan)
    print(f"time {estimate.time * 1e9:g} ns, energy {estimate.energy * 1e12:g} pJ, footprint {dict(estimate.footprint)}")

    arrays = halley.random_inputs(work, seed=1)
    execution = halley.run(work, chip, plan, arrays)
    error = np.abs(execution.outputs["C"] - arrays["A"] @ arrays["B"]).max()
    print(f"largest difference from NumPy: {error:.1e}")
    for (memory, tensor, cause), counted in sorted(execution.counters.reads.items()):
        print(f"{memory} reads {counted} B of {tensor} ({cause}); the formula says {estimate.reads()[memory, tensor, cause]}")


if __name__ == "__main__":
    main()
