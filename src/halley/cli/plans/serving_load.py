"""Options of commands that serve: lengths of requests, how many, dtypes, software."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from halley.cli import options
from halley.errors import BadInput, Fault
from halley.importers.serving import TOKENS_LIMIT
from halley.importers.serving import lengths_of as checked_lengths
from halley.importers.source import find_model, format_remarks
from halley.serving.deployment import Load
from halley.serving.steady import Lengths

InputOption = Annotated[str | None, typer.Option("--input", help="Mean tokens of a prompt.", metavar="NUMBER")]
OutputTokensOption = Annotated[str | None, typer.Option("--output", help="Mean tokens of an answer.", metavar="NUMBER")]
PrefixOption = Annotated[
    str | None, typer.Option("--prefix", help="Tokens of a prompt that the cache has already; 0 by default.", metavar="NUMBER")
]
ConcurrencyOption = Annotated[
    str | None, typer.Option("--concurrency", help="Users, each of whom asks again at once.", metavar="NUMBER")
]
RateOption = Annotated[str | None, typer.Option("--rate", help="Requests per second, as a Poisson process.", metavar="NUMBER")]
WeightsOption = Annotated[
    str,
    typer.Option(
        "--weights", help="Dtype of matrices: bf16, fp8, int8, nvfp4; int4, mxfp4: of the weights alone.", metavar="DTYPE"
    ),
]
CacheOption = Annotated[str, typer.Option("--cache", help="Dtype of the cache: bf16, fp8 or int8.", metavar="DTYPE")]
StateOption = Annotated[
    str, typer.Option("--state", help="Dtype of the states of recurrent layers of a hybrid: bf16, fp16 or fp32.", metavar="DTYPE")
]
SoftwareOption = Annotated[
    str, typer.Option("--software", help="Serving framework: ideal, vllm, trtllm, sglang, or a path to a file.", metavar="NAME")
]
DraftOption = Annotated[
    str | None,
    typer.Option(
        "--draft",
        help="Speculative decoding with this model on the same chips; head: one layer of the model itself (EAGLE, MTP).",
        metavar="MODEL",
    ),
]
AcceptanceOption = Annotated[
    str | None,
    typer.Option(
        "--acceptance",
        help="Chance that its first token is accepted, and the decay: 0.7 or 0.7,0.95; or a measured curve by its name.",
        metavar="A,D",
    ),
]

MOST_RATE = 1e9
"""Most requests per second."""


def lengths_of(input_: str | None, output: str | None, prefix: str | None) -> Lengths:
    """Mean lengths of requests. Raises BadInput: no numbers, or more cached than the prompt has."""
    long = options.whole_number("--input", input_, most=TOKENS_LIMIT)
    answer = options.whole_number("--output", output, most=TOKENS_LIMIT, example=256)
    cached = options.whole_number("--prefix", prefix, 0, most=TOKENS_LIMIT, example=512) if prefix is not None else 0
    return checked_lengths(long, answer, cached, "--prefix")


def load_of(input_: str | None, output: str | None, prefix: str | None, concurrency: str | None, rate: str | None) -> Load:
    """The load. Raises BadInput: lengths that are none; neither users nor a rate, or both."""
    lengths = lengths_of(input_, output, prefix)
    if (concurrency is None) == (rate is None):
        got = "both" if rate is not None else "neither"
        raise BadInput(Fault("load", "--concurrency or --rate", got, "write for example '--concurrency 32'"))
    if concurrency is not None:
        return Load(lengths, concurrency=options.whole_number("--concurrency", concurrency, example=32))
    if rate is None:
        raise BadInput(Fault("load", "--concurrency or --rate", "neither"))
    return Load(lengths, rate=rate_of(rate))


def rate_of(text: str) -> float:
    """Requests per second. Raises BadInput: no number above 0."""
    found = options.number("--rate", text, MOST_RATE)
    if not found:
        raise BadInput(Fault("--rate", "a number above 0", text))
    return found


def refuse_load(given: Mapping[str, object]) -> None:
    """Raises BadInput: options that a trace replaces."""
    if faults := [Fault(name, "a trace alone", f"{name} with --trace", "leave it out") for name, value in given.items() if value]:
        raise BadInput(faults)


def say_formats(model: str, weights: str, state: str) -> None:
    """Says on stderr which formats the file of the model has that were not asked for."""
    found = find_model(model)
    asked = {"--weights": [dtype.strip() for dtype in weights.split(",")], "--state": [state]}
    for remark in format_remarks(found, asked):
        options.remark_to_stderr(f"{found.name}: {remark}")
