"""Launch flags by framework."""

from __future__ import annotations

from collections.abc import Callable

from halley.errors import BadInput, Fault, did_you_mean
from halley.launch.decisions import LaunchDecisions, decisions
from halley.launch.deepspeed import deepspeed
from halley.launch.maxtext import maxtext
from halley.launch.megatron import bridge, megatron
from halley.launch.settings import Emitted
from halley.launch.torchtitan import torchtitan
from halley.training.plan import TrainingResult

FRAMEWORKS: dict[str, Callable[[LaunchDecisions], Emitted]] = {
    "megatron": megatron,
    "megatron-bridge": bridge,
    "torchtitan": torchtitan,
    "deepspeed": deepspeed,
    "maxtext": maxtext,
}
"""By name, what makes the settings of a framework."""


def known_framework(name: str, where: str = "--emit") -> str:
    """The name itself. Raises BadInput: no such framework."""
    if name not in FRAMEWORKS:
        raise BadInput(Fault(where, f"one of {', '.join(FRAMEWORKS)}", repr(name), did_you_mean(name, FRAMEWORKS)))
    return name


def emit(result: TrainingResult, framework: str) -> Emitted:
    """The best plan of a result as settings of a framework. Raises BadInput: no such framework."""
    return FRAMEWORKS[known_framework(framework)](decisions(result))


def emitted_text(made: Emitted) -> str:
    """The text of a file: the settings, with version and remarks as comments where the form has comments (JSON has none)."""
    if made.text.startswith("{"):
        return made.text
    comments = [f"# {made.version}", *(f"# {remark}" for remark in made.remarks)]
    return "\n".join([*comments, made.text])
