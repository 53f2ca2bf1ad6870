"""Search the best mapping of a GEMM-Softmax, and print it with its proof and its baselines."""

import halley


def main() -> None:
    work = halley.build("gemm-softmax", {"m": 16, "n": 512, "k": 64})
    result = halley.optimise(halley.Problem(work, halley.load_chip("edge")))
    best, proof = result.best, result.best.certificate
    print(halley.to_text(best.plan))
    print(f"{best.estimate.time * 1e6:.3f} us, {best.estimate.energy * 1e6:.2f} uJ")
    print(f"{result.status}; {proof.size:,} mappings, {proof.costed:,} costed, gap {proof.gap:.1%}")
    for other in result.baselines:
        print(f"{other.name}: {other.estimate.time / best.estimate.time:.3f} x the time")


if __name__ == "__main__":
    main()
