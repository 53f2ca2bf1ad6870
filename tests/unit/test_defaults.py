"""Parameters of workloads that are left out."""

from __future__ import annotations

import pytest

from halley.errors import BadInput
from halley.workloads import build

SIZES = {"heads": 4, "queries": 8, "keys": 8, "head_dim": 2}


def test_as_many_key_heads_as_query_heads() -> None:
    assert build("attention", SIZES) == build("attention", {"batch": 1, "kv_heads": 4, **SIZES})
    layer = {"tokens": 4, "model": 8, "heads": 4, "head_dim": 2, "hidden": 16}
    assert build("transformer-layer", layer) == build("transformer-layer", {**layer, "kv_heads": 4})


def test_a_faulty_parameter_is_named_once() -> None:
    with pytest.raises(BadInput) as raised:
        build("attention", {**SIZES, "heads": 0})
    assert len(raised.value.faults) == 1
    assert "parameter heads" in str(raised.value)
