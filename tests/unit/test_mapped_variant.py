"""Which variant of a workload a mapping computes."""

from __future__ import annotations

import pytest

from halley.ir.mapping import Compute, Hold, Sequence
from halley.workloads import build
from halley.workloads.registry import mapped_variant

SIZES = {"batch": 1, "heads": 2, "kv_heads": 2, "queries": 4, "keys": 4, "head_dim": 2}


@pytest.mark.parametrize("variant", ["plain", "deferred", "online"])
def test_the_tensors_tell_variants_with_the_same_ops_apart(variant: str) -> None:
    work = build("attention", SIZES | {"variant": variant})
    tree = Hold("dram", tuple((name,) for name in work.tensors), Sequence(tuple(Compute(op.name) for op in work.ops)))
    assert mapped_variant(build("attention", SIZES), tree).variant == variant


def test_a_mapping_of_no_variant() -> None:
    work = build("attention", SIZES)
    assert mapped_variant(work, Compute("strange")) == work
