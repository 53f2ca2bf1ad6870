"""Derivatives of the elementwise functions, expressed in functions of `halley.ir.workload`.

`DERIVATIVES` gives the gradient of each argument of a function, for the gradient d of its result:

    y = x0 * x1        x0: d * x1        x1: d * x0

In a rule, "d" is the gradient of the result, "y" the result, and a digit the argument with that index. None: the argument only
selects (a threshold), so its derivative is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

Constants: TypeAlias = Callable[[Mapping[str, float]], Mapping[str, float]]
"""The constants of the derivative from those of the function."""


def _none(given: Mapping[str, float]) -> Mapping[str, float]:
    return {}


def _same(given: Mapping[str, float]) -> Mapping[str, float]:
    return given


@dataclass(frozen=True, slots=True)
class Derivative:
    """Gradient of one argument: ``function`` of ``arguments``."""

    function: str
    arguments: tuple[str, ...]
    constants: Constants = _none


def _rule(function: str, arguments: str, constants: Constants = _none) -> Derivative:
    return Derivative(function, tuple(arguments.split()), constants)


def _scaled(function: str, arguments: str, scale: float) -> Derivative:
    return _rule(function, arguments, lambda given: {"scale": scale})


PASS_THROUGH = _rule("identity", "d")
"""The gradient of the argument is d."""

NEGATED = _scaled("scale", "d", -1.0)

DERIVATIVES: Mapping[str, tuple[Derivative | None, ...]] = {
    "identity": (PASS_THROUGH,),
    "add": (PASS_THROUGH, PASS_THROUGH),
    "mul": (_rule("mul", "d 1"), _rule("mul", "d 0")),
    "square": (_scaled("scaled_product", "d 0", 2.0),),
    "subtract": (PASS_THROUGH, NEGATED),
    "divide": (_rule("divide", "d 1"), _rule("quotient_gradient", "d y 1")),
    "reciprocal": (_rule("negative_product", "d y y"),),
    # if both arguments are equal, the first one gets the gradient
    "maximum": (_rule("select_not_below", "d 0 1"), _rule("select_above", "d 1 0")),
    "minimum": (_rule("select_not_below", "d 1 0"), _rule("select_above", "d 0 1")),
    "multiply_add": (_rule("mul", "d 1"), _rule("mul", "d 0"), PASS_THROUGH),
    "exp": (_rule("mul", "d y"),),
    "log": (_rule("divide", "d 0"),),
    "rsqrt": (_scaled("cube_product", "d y", -0.5),),
    "sqrt": (_scaled("scaled_quotient", "d y", 0.5),),
    "relu": (_rule("relu_gradient", "d 0"),),
    "sigmoid": (_rule("sigmoid_gradient", "d y"),),
    "tanh": (_rule("tanh_gradient", "d y"),),
    "scale": (_rule("scale", "d", _same),),
    "scale_mask": (_rule("scale_visible", "d", _same),),
    "scale_visible": (_rule("scale_visible", "d", _same),),
    "scale_window": (_rule("scale_in_window", "d", _same),),
    "scale_in_window": (_rule("scale_in_window", "d", _same),),
    "exp_difference": (_rule("mul", "d y"), _scaled("scaled_product", "d y", -1.0)),
    "below": (_rule("select_above", "d 1 0"), None),
    "exp_selected": (_rule("mul", "d y"), _scaled("scaled_product", "d y", -1.0), None),
    "square_difference": (_scaled("scaled_difference", "d 0 1", 2.0), _scaled("scaled_difference", "d 0 1", -2.0)),
    "softmax_from_stats": (
        _rule("mul", "d y"),
        _scaled("scaled_product", "d y", -1.0),
        _rule("quotient_gradient", "d y 2"),
    ),
    # y = (x / count + epsilon)^(-1/2), so dy/dx = -y^3 / (2 count)
    "rsqrt_mean": (_rule("cube_product", "d y", lambda given: {"scale": -0.5 / given["count"]}),),
    "normalise": (_rule("mul", "d 2"), _scaled("scaled_product", "d 2", -1.0), _scaled("scaled_difference", "d 0 1", 1.0)),
    "affine": (_rule("mul", "d 1"), _rule("mul", "d 0"), PASS_THROUGH),
    "normalise_gain": (_rule("product", "d 1 2"), _rule("product", "d 0 2"), _rule("product", "d 0 1")),
    "normalise_affine": (
        _rule("product", "d 2 3"),
        _rule("negative_product", "d 2 3"),
        _rule("difference_product", "d 0 1 3"),
        _rule("difference_product", "d 0 1 2"),
        PASS_THROUGH,
    ),
    "silu": (_rule("silu_gradient", "d 0"),),
    "silu_bias": (_rule("silu_bias_gradient", "d 0 1"), _rule("silu_bias_gradient", "d 0 1")),
    "softplus_bias": (_rule("softplus_bias_gradient", "d 0 1"), _rule("softplus_bias_gradient", "d 0 1")),
    "exp_product": (_rule("product", "d y 1"), _rule("product", "d y 0")),
    "product": (_rule("product", "d 1 2"), _rule("product", "d 0 2"), _rule("product", "d 0 1")),
    "product_difference": (
        _rule("mul", "d 1"),
        _rule("mul", "d 0"),
        _scaled("scaled_product", "d 3", -1.0),
        _scaled("scaled_product", "d 2", -1.0),
    ),
    "product_sum": (_rule("mul", "d 1"), _rule("mul", "d 0"), _rule("mul", "d 3"), _rule("mul", "d 2")),
    "decay_mask": (_rule("decay_mask", "d 1 2"), _rule("mul", "d y"), _scaled("scaled_product", "d y", -1.0)),
    "add_decayed": (PASS_THROUGH, _rule("mul_exp", "d 2"), _rule("product_exp", "d 1 2")),
    "silu_mul": (_rule("silu_mul_gradient", "d 0 1"), _rule("silu_mul", "0 d")),
    "gelu": (_rule("gelu_gradient", "d 0"),),
    "gelu_erf": (_rule("gelu_erf_gradient", "d 0"),),
    "scaled_product": (
        _rule("scaled_product", "d 1", _same),
        _rule("scaled_product", "d 0", _same),
    ),
}
"""By function, the gradient of each argument. Functions that occur only in derivatives have no entry."""

POSITIONAL = ("decay_mask", "scale_mask", "scale_visible", "scale_window", "scale_in_window")
"""Functions that depend on an element's position: the last two dims of the op are its row and its column."""
