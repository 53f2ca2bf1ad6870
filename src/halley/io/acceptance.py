"""Measured acceptance of proposed tokens, by name: two numbers a curve, as YAML."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from halley.errors import BadInput, Fault, did_you_mean
from halley.io.files.text import read_yaml
from halley.library import acceptance_text
from halley.serving.speculation import Acceptance

Chance = Annotated[float, Field(gt=0, le=1)]


class Curve(BaseModel):
    """Acceptance of the first token of a round, and its decay; ``source``: a name of the table's sources."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    first: Chance
    decay: Chance
    source: str


class AcceptanceFile(BaseModel):
    """The table of curves, by model, draft and task."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    format: Literal["halley.acceptance/1"]
    sources: dict[str, str]
    curves: dict[str, Curve]


@cache
def acceptance_table() -> AcceptanceFile:
    """The shipped table."""
    return AcceptanceFile.model_validate(read_yaml(acceptance_text(), "acceptance.yaml").data)


def load_acceptance(name: str) -> Acceptance:
    """The measured curve of that name.

    >>> load_acceptance("llama-3.1-8b/eagle3/humaneval")
    Acceptance(first=0.838, decay=0.967)

    Raises BadInput: no such curve; the message names those of the same model, or the models.
    """
    curves = acceptance_table().curves
    if name not in curves:
        model = name.split("/")[0]
        same = sorted(each for each in curves if each.startswith(model + "/"))
        models = sorted({each.split("/")[0] + "/..." for each in curves})
        expected = f"one or two numbers such as 0.7,0.95, or a measured curve: {', '.join(same or models)}"
        raise BadInput(Fault("--acceptance", expected, repr(name), did_you_mean(name, curves)))
    return Acceptance(curves[name].first, curves[name].decay)
