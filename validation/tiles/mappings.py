"""The mappings of `cases` in Halley's language.

What L2 holds is not the kernel's choice: it is a cache. So a case has several texts, which differ in what L2 keeps for how long,
and the fastest of those that fit counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from validation.tiles.cases import ATTENTION, CAUSAL, COLUMNS, DECODE, FLAT, GEMM, GROUP, HEADS, ROWS, SOFTMAX, SPLIT, Case

from halley.ir.workload import Workload
from halley.workloads.registry import build

SOFTMAX_OF_A_TILE = """sequence
  compute scores
  compute scale
  compute running_max
  compute exp
  compute running_sum
  hold smem: E
    compute values"""


def workload(case: Case) -> Workload:
    """What the case computes."""
    if case.kind in (ATTENTION, CAUSAL, DECODE):
        tokens, head = case.sizes
        one = case.kind == DECODE
        sizes = {"heads": HEADS * GROUP if one else HEADS, "kv_heads": HEADS, "queries": 1 if one else tokens, "keys": tokens}
        given = {"head_dim": head, "causal": case.kind == CAUSAL, "variant": "online", "dtype": "bf16"}
        return build("attention", sizes | given)
    m, n, k = case.sizes
    found = build("gemm-softmax" if case.kind == SOFTMAX else "gemm", {"m": m, "n": n, "k": k, "dtype": "bf16"})
    if case.kind != SPLIT:
        return found
    # cores exchange sums in fp32; the formulas move them in the type of the result
    return replace(found, tensors={**found.tensors, "C": replace(found.tensors["C"], dtype="fp32")})


def _inside(*parts: str) -> str:
    """Each part inside the one before; a part may have several lines, and empty parts are left out."""
    lines = list[str]()
    for depth, part in enumerate(filter(None, parts)):
        lines += ["  " * depth + line for line in part.split("\n")]
    return "\n".join(lines)


def _sequence(*children: str) -> str:
    return "\n".join(["sequence", *("  " + line for child in children for line in child.split("\n"))])


def _under_way(case: Case) -> int:
    """Loads under way. A kernel with so many stages issues the next load after it has waited for the present one, so that a
    stage less is being filled (measured: the time of a step is in proportion to 1 / (stages - 1))."""
    return case.buffers - 1


def _product(case: Case, kept: str = "") -> str:
    """The loop over the contraction; ``kept``: what L2 keeps around it, so that only the rest is loaded into it here."""
    stages, rest = _under_way(case), " ".join(name for name in "AB" if name not in kept)
    return _inside(
        f"for k by {case.tile[2]}",
        f"hold l2 x{stages}: {rest}" if rest else "",
        f"hold smem x{stages}: A B",
        "compute gemm",
    )


def _gemm(case: Case) -> Iterator[str]:
    (m, n, _), (bm, bn, _) = case.sizes, case.tile
    spread = f"spread m by {m // ROWS} over sm.x", f"spread n by {n // COLUMNS} over sm.y"
    rows, columns = f"for m by {bm}", f"for n by {bn}"
    for whole in ("", "B", "A B"):
        keep = f"hold l2: {whole}" if whole else ""
        yield _inside("hold dram: A B C", keep, *spread, rows, columns, "hold rf: C", _product(case, whole))
    for buffers in ("", " x2"):
        yield _inside("hold dram: A B C", *spread, rows, f"hold l2{buffers}: A", columns, "hold rf: C", _product(case, "A"))


def _flat(case: Case) -> Iterator[str]:
    (_, n, _), (bm, bn, _) = case.sizes, case.tile
    spread = f"spread n by {n // COLUMNS} over sm.y", f"spread n by {n // COLUMNS // ROWS} over sm.x"
    tiles = f"for m by {bm}", f"for n by {bn}", "hold rf: C"
    yield _inside("hold dram: A B C", "hold l2: A", *spread, *tiles, _product(case, "A"))


def _split(case: Case) -> Iterator[str]:
    (_, n, k), (bm, bn, _) = case.sizes, case.tile
    spread = f"spread k by {k // ROWS} over sm.x", f"spread n by {n // COLUMNS} over sm.y"
    for keep, kept in (("", ""), ("hold l2 x2: A", "A"), ("hold l2: A B", "A B")):
        steps = _sequence(_product(case, kept), "reduce-scatter C over sm.x to m with direct")
        yield _inside("hold dram: A B C", *spread, f"for m by {bm}", keep, f"for n by {bn}", "hold rf: C", steps)


def _softmax(case: Case) -> Iterator[str]:
    m, n, _ = case.sizes
    spread = f"spread m by {m // ROWS} over sm.x", f"spread n by {n // COLUMNS} over sm.y"
    for kept in ("", "B", "A B"):
        steps = _sequence(
            _product(case, kept),
            "compute max",
            "all-reduce mx over sm.y with one-shot",
            "compute exp",
            "compute sum",
            "all-reduce z over sm.y with one-shot",
            _inside("hold rf: P", "compute divide"),
        )
        keep = f"hold l2: {kept}" if kept else ""
        yield _inside("hold dram: A B P", keep, *spread, f"for m by {case.tile[0]}", "hold rf: S|E mx z", steps)


def _keys(case: Case, kept: str = "") -> str:
    """The loop over the keys; ``kept``: whether L2 has all of them already."""
    stages, loads = _under_way(case), "K V"
    return _inside(
        f"for n by {case.tile[1]}",
        "" if kept else f"hold l2 x{stages}: {loads}",
        f"hold smem x{stages}: {loads}",
        "hold rf: S|S2|E",
        SOFTMAX_OF_A_TILE,
    )


def _attention(case: Case) -> Iterator[str]:
    spread = f"spread m by {case.sizes[0] // ROWS} over sm.x", "spread h by 1 over sm.y", f"for m by {case.tile[0]}"
    inside = "hold smem: Q", "hold rf: mx z U"
    last = _inside("hold rf: O", "compute divide")
    yield _inside("hold dram: Q K V O", "hold l2: Q K V", *spread, *inside, _sequence(_keys(case, "K V"), last))
    yield _inside("hold dram: Q K V O", *spread, "hold l2: Q", *inside, _sequence(_keys(case), last))


def _decode(case: Case) -> Iterator[str]:
    tokens, head = case.sizes
    steps = _sequence(
        _inside(f"spread n by {tokens // ROWS} over sm.x", _keys(case)),
        "all-reduce mx over sm.x with one-shot",
        "all-reduce z over sm.x with one-shot",
        "reduce-scatter U over sm.x to e with direct",
        _inside(f"spread e by {-(-head // ROWS)} over sm.x", "hold rf: O", "compute divide"),
    )
    yield _inside("hold dram: Q K V O", "spread h by 1 over sm.y", "hold l2: Q", "hold smem: Q", "hold rf: mx z U", steps)


_TEXTS: dict[str, Callable[[Case], Iterator[str]]] = {
    GEMM: _gemm,
    FLAT: _flat,
    SPLIT: _split,
    SOFTMAX: _softmax,
    ATTENTION: _attention,
    CAUSAL: _attention,
    DECODE: _decode,
}


def texts(case: Case) -> Iterator[str]:
    """Mappings of the case, which differ in what L2 keeps."""
    return _TEXTS[case.kind](case)
