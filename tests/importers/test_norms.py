"""RMS norms that a program computes step by step become one call, where they are one. Their values: test_torch.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from halley.importers.torch.aten import AtenNode, TensorRef, lower_aten
from halley.importers.torch.norms import with_norms

SHAPES = {
    "x": (2, 3, 6), "s": (2, 3, 6), "v": (2, 3, 1), "e": (2, 3, 1), "r": (2, 3, 1), "y": (2, 3, 6), "c": (2, 3, 6),
    "gain": (6,), "z": (2, 3, 6), "out": (2, 3, 6), "other": (2, 3, 6),
}  # fmt: skip


def call(operator: str, output: str, **arguments: Any) -> AtenNode:
    named = {key: TensorRef(value) if isinstance(value, str) else value for key, value in arguments.items()}
    return AtenNode(output, operator, named, (output,), SHAPES)


STEPS = {
    "square": call("pow", "s", self="x", exponent=2),
    "mean": call("mean", "v", self="s", dim=[-1], keepdim=True),
    "epsilon": call("add", "e", self="v", other=1e-6),
    "root": call("rsqrt", "r", self="e"),
    "product": call("mul", "y", self="x", other="r"),
    "check": AtenNode("check", "_assert_tensor_metadata", {"a": TensorRef("y")}, (), SHAPES),
    "cast": call("to", "c", self="y"),
    "gain": call("mul", "z", self="gain", other="c"),
    "after": call("relu", "out", self="z"),
}


def operators(changed: Mapping[str, AtenNode], results: tuple[str, ...] = ("out",), more: tuple[AtenNode, ...] = ()) -> list[str]:
    return [made.operator for made in with_norms([*({**STEPS, **changed}).values(), *more], results)]


def test_the_steps_of_a_norm_are_one_call() -> None:
    check, norm, after = with_norms(list(STEPS.values()), ["out"])
    assert (check.operator, after.operator) == ("_assert_tensor_metadata", "relu")
    assert norm.operator == "rms_norm"
    assert norm.name == "z"
    assert norm.outputs == ("z",)
    given = {"input": TensorRef("x"), "normalized_shape": [6], "eps": 1e-6, "weight": TensorRef("gain")}
    assert dict(norm.arguments) == given
    made = lower_aten(norm)
    assert made.dims == {"i": 6, "n": 6}
    assert made.inputs == {"X": "x", "G": "gain"}
    assert made.outputs == {"Y": "z"}


def test_without_a_gain_the_norm_ends_at_the_product() -> None:
    assert operators({"gain": call("mul", "z", self="other", other="c")}) == [
        "rms_norm", "_assert_tensor_metadata", "to", "mul", "relu"
    ]  # fmt: skip
    assert operators({}, ("out", "c")).count("rms_norm") == 1  # the cast is returned: the gain stays a layer
    assert operators({}, ("out", "c")).count("mul") == 1


@pytest.mark.parametrize(
    ("changed", "results", "more"),
    [
        ({"square": call("pow", "s", self="x", exponent=3)}, ("out",), ()),
        ({"mean": call("mean", "v", self="s", dim=[1], keepdim=True)}, ("out",), ()),
        ({"mean": call("mean", "v", self="s", dim=[-1])}, ("out",), ()),
        ({"epsilon": call("add", "e", self="v", other="r")}, ("out",), ()),
        ({"epsilon": call("add", "e", self="v", other=1e-6, alpha=2)}, ("out",), ()),
        ({"root": call("sqrt", "r", self="e")}, ("out",), ()),
        ({"product": call("mul", "y", self="other", other="r")}, ("out",), ()),
        ({"product": replace(STEPS["product"], in_place=True)}, ("out",), ()),
        ({}, ("out", "r"), ()),
        ({}, ("out",), (call("relu", "more", self="v"),)),
    ],
)
def test_steps_that_are_no_norm_stay(changed: dict[str, AtenNode], results: tuple[str, ...], more: tuple[AtenNode, ...]) -> None:
    found = operators(changed, results, more)
    assert "rms_norm" not in found
    assert len(found) == len(STEPS) + len(more)
