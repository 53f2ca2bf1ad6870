"""Answers about collectives: the question in a file, and back. The costs are computed anew when a file is read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import yaml
from pydantic import Field

from halley.errors import BadInput, Fault, did_you_mean
from halley.io.files.entries import Text
from halley.io.files.models import Model
from halley.io.networks.collectives import CollectiveAnswer, CollectiveQuestion, answered
from halley.io.networks.jobs import kind_of
from halley.io.networks.network import parse_network
from halley.io.networks.save import network_document
from halley.io.results.envelope import Saved
from halley.io.results.models import AnswerFile, CertificateModel

KIND = "collective"


class CollectiveQuestionModel(Model):
    """What was asked (`halley.io.networks.collectives.CollectiveQuestion`)."""

    collective: Text = Field(description="kind of collective")
    network: dict[str, Any] = Field(description="the network, as in a network file")
    size: int | None = Field(ge=0, description="size [B]; null: sizes alone")
    ranks: tuple[int, ...] | None = Field(description="ranks that take part; null: all")
    algorithm: Text | None = Field(description="the only algorithm; null: all are compared")
    startup: float = Field(ge=0, allow_inf_nan=False, description="time before every step [s]")
    software: Text | None = Field(description="fit of a communication library, by name or path")
    sizes: tuple[int, ...] = Field(max_length=128, description="many sizes [B]")
    beside: tuple[str, ...] = Field(description="sentences about what runs at once")
    optimum: bool = Field(description="whether the optimal routing was asked for")
    limit: float = Field(gt=0, allow_inf_nan=False, description="longest time of the search for it [s]")


class CollectiveFile(AnswerFile):
    """The cost of a collective: what ``halley collective`` writes."""

    kind: Literal["collective"] = Field(description="kind of the answer")
    question: CollectiveQuestionModel = Field(description="what was asked")
    certificate: CertificateModel | None = Field(description="how far the time is from the bound; null with sizes alone")
    answer: dict[str, Any] = Field(description="the chosen algorithm, the candidates, what runs beside, times over sizes")


def question_document(question: CollectiveQuestion) -> dict[str, Any]:
    """The question as plain data. Raises BadInput: a network that a file cannot hold."""
    return {
        "collective": str(question.kind),
        "network": network_document(question.fabric),
        "size": question.size,
        "ranks": None if question.ranks is None else list(question.ranks),
        "algorithm": question.algorithm,
        "startup": question.startup,
        "software": question.software,
        "sizes": list(question.sizes),
        "beside": list(question.beside),
        "optimum": question.optimum,
        "limit": question.limit,
    }


def read_collective(saved: Saved) -> CollectiveAnswer:
    """The answer to the question in a file, computed anew, with the algorithm that the file has chosen.

    Raises BadInput: every fault of the file; an algorithm that is no candidate.
    """
    file = saved.checked(CollectiveFile)
    asked, where = file.question, f"{saved.name}: question.network"
    try:
        fabric = parse_network(yaml.safe_dump(asked.network, sort_keys=False, allow_unicode=True), where)
    except yaml.YAMLError:
        raise BadInput(Fault(where, "the content of a network file", "text that YAML cannot hold")) from None
    question = CollectiveQuestion(
        kind_of(asked.collective, f"{saved.name}: question.collective"),
        fabric,
        asked.size,
        asked.ranks,
        asked.algorithm,
        asked.startup,
        asked.software,
        asked.sizes,
        asked.beside,
        asked.optimum,
        asked.limit,
    )
    answer = answered(question)
    if answer.single is None:
        return answer
    match file.answer.get("chosen"):
        case {"algorithm": str(name)}:
            known = {item.algorithm: item for item in answer.single.candidates}
            if name not in known:
                where = f"{saved.name}: answer.chosen.algorithm"
                raise BadInput(Fault(where, "a candidate", repr(name), did_you_mean(name, known)))
            return replace(answer, single=replace(answer.single, cost=known[name]))
    raise BadInput(Fault(f"{saved.name}: answer.chosen", "the chosen algorithm by its name", "none"))
