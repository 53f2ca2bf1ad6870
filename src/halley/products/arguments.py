"""Arguments of products: their types are those of the signature, or it is BadInput that says which."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, wraps
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from halley.errors import BadInput, Fault
from halley.ir.mapping import Node
from halley.mapping.problem import WALL_TIME
from halley.units import parse

P = ParamSpec("P")
R = TypeVar("R")

WORDS: Mapping[type, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    Path: "a path",
    NoneType: "None",
    Callable: "a function",  # type: ignore[dict-item]
    Iterable: "a sequence",
    Sequence: "a sequence",
    Mapping: "a map",
    **dict.fromkeys(get_args(Node), "a tree of a mapping"),
}
"""What users call the types of arguments; others have their names."""


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function with arguments that are checked against its annotations: numbers of NumPy are numbers, truth values are none.

    >>> @checked
    ... def twice(number: int) -> int:
    ...     return 2 * number
    >>> twice("3")
    Traceback (most recent call last):
    halley.errors.BadInput: twice, number: expected a whole number; got '3'
    """
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        given = signature.bind(*args, **kwargs).arguments
        if faults := list(argument_faults(function, given)):
            raise BadInput(faults)
        return function(*args, **kwargs)

    return call


def argument_faults(function: Callable[..., Any], given: Mapping[str, object]) -> Iterator[Fault]:
    """Faults of arguments by name that are not of the types that the function states."""
    hints = _hints(function)
    for name, value in given.items():
        kinds = _kinds(hints[name])
        if not any(_is(value, kind) for kind in kinds):
            expected = " or ".join(dict.fromkeys(WORDS.get(kind, f"a {kind.__name__}") for kind in kinds))
            yield Fault(f"{function.__name__}, {name}", expected, repr(value)[:60])


@lru_cache(maxsize=64)
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(function)


def _kinds(hint: Any) -> tuple[type, ...]:
    """The classes of which values are: parameters of generic types are left to what uses them."""
    if get_origin(hint) in (Union, UnionType):
        return tuple(kind for part in get_args(hint) for kind in _kinds(part))
    return (get_origin(hint) or hint,)


def _is(value: object, kind: type) -> bool:
    if kind in (int, float):
        return isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    if kind in (Iterable, Sequence):
        return isinstance(value, kind) and not isinstance(value, str)
    return isinstance(value, kind)


def at_least(where: str, least: int, **numbers: int | None) -> None:
    """Raises BadInput: some number is given and less."""
    if faults := [
        Fault(f"{where}, {name}", f"a whole number from {least}", f"{number}")
        for name, number in numbers.items()
        if number is not None and number < least
    ]:
        raise BadInput(faults)


def limit_of(where: str, time_limit: float | str | None) -> float | None:
    """A time limit [s], which may be text such as "60 s". Raises BadInput, UnitError: no time."""
    limit = parse(time_limit, WALL_TIME, where=f"{where}, time_limit") if isinstance(time_limit, str) else time_limit
    if limit is not None and not limit >= 0:
        raise BadInput(Fault(f"{where}, time_limit", "seconds, at least 0", f"{limit}"))
    return limit
