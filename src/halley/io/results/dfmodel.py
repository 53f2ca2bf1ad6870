"""Plans of training in the view of DFModel: to the file of an answer and back, in SI units."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, Literal

from pydantic import Field

from halley.answer import Certificate, Status
from halley.dfmodel.plan import AxisChoice, Candidate, DFModelProblem, DFModelResult, decided_dfmodel
from halley.errors import BadInput, Fault
from halley.io.files.models import Model
from halley.io.results.envelope import Saved, enveloped
from halley.io.results.models import AnswerFile, CertificateModel
from halley.io.results.systems import AxisPartModel, system_in, whole_system
from halley.sharding.axes import Role, assignment_text
from halley.workloads.transformer import Transformer

KIND = "dfmodel-plan"


class DFModelQuestionModel(Model):
    """What was asked (`halley.dfmodel.plan.DFModelProblem`)."""

    model: Transformer = Field(description="extents of the model, as in a model file")
    system: dict[str, Any] = Field(description="the system with its whole chip, as in a system file")
    batch: int = Field(ge=1, description="sequences of an iteration")
    sequence: int = Field(ge=1, description="tokens of a sequence")
    fused: bool = Field(description="whether chips run kernels side by side")
    degrees: dict[Role, int] = Field(description="ranks that a role must have")


class PartitionModel(Model):
    """Kernels that run side by side on a chip."""

    kernels: tuple[str, ...] = Field(description="their names")
    streamed: tuple[str, ...] = Field(description="those of them whose weights are read for each sequence tile")
    tile: int = Field(description="points of a sequence tile")
    tiles: tuple[int, ...] = Field(description="compute tiles of each")
    limit: str = Field(description="what limits them: compute, memory or network")
    time: float = Field(description="time of a sample [s]")


class CandidateModel(Model):
    """An assignment with its best microbatch."""

    axes: list[AxisPartModel] = Field(description="what each axis is for")
    time: float | None = Field(description="time of an iteration [s], or a lower bound; null: impossible")
    exact: bool = Field(description="false: a lower bound ruled it out")
    reason: str = Field(description="why it does not work")


class DFModelAnswerModel(Model):
    """The best plan."""

    axes: list[AxisPartModel] = Field(description="what each axis is for")
    microbatch: int = Field(ge=1, description="sequences of a microbatch")
    partitions: list[PartitionModel] = Field(description="of a layer, in the order in which they run")
    candidates: list[CandidateModel] = Field(description="every assignment, the fastest first")
    figures: dict[str, Any] = Field(description="time with its breakdown, memory, price")


class DFModelFile(AnswerFile):
    """The best plan in the view of DFModel: what ``halley plan --view dfmodel`` writes."""

    kind: Literal["dfmodel-plan"] = Field(description="kind of the answer")
    question: DFModelQuestionModel = Field(description="what was asked")
    certificate: CertificateModel = Field(description="how good the plan is")
    answer: DFModelAnswerModel = Field(description="the best plan")


def dfmodel_document(result: DFModelResult) -> dict[str, Any]:
    """The content of a file."""
    problem = result.problem
    question = {
        "model": asdict(problem.shape),
        "system": whole_system(problem.system),
        "batch": problem.batch,
        "sequence": problem.sequence,
        "fused": problem.fused,
        "degrees": dict(problem.degrees),
    }
    answer = {
        "axes": [asdict(part) for part in result.choice.assignment],
        "microbatch": result.choice.microbatch,
        "partitions": [
            {
                "kernels": list(part.names),
                "streamed": list(part.streamed),
                "tile": part.tile,
                "tiles": list(part.tiles),
                "limit": part.bottleneck,
                "time": part.steady,
            }
            for part in result.layer.partitions
        ],
        "candidates": [
            {
                "axes": [asdict(part) for part in item.assignment],
                "time": None if math.isinf(item.time) else item.time,
                "exact": item.exact,
                "reason": item.reason,
            }
            for item in result.candidates
        ],
        "figures": {
            "time": result.time,
            "utilisation": result.utilisation,
            "work": problem.work,
            "peak": problem.peak,
            "price": result.bill.price,
            "power": result.bill.power,
            "axes": assignment_text(result.choice.assignment),
            "memory": result.memory,
            "account": result.account,
        },
    }
    return enveloped(KIND, question, dfmodel_certificate(result), answer)


def dfmodel_certificate(result: DFModelResult) -> Certificate:
    """Every choice was costed, or is no better by its lower bound."""
    return Certificate(
        result.time, result.time, Status.OPTIMAL, size=result.choices, seconds=result.seconds, closed="every choice was judged"
    )


def read_dfmodel(saved: Saved) -> DFModelResult:
    """The result in a file, its plan costed again from its decisions; other candidates are as the file claims them.

    Raises BadInput: every fault of the file, decisions that contradict each other; Infeasible: what does not fit.
    """
    file = saved.checked(DFModelFile)
    asked, answer = file.question, file.answer
    system = system_in(saved, asked.system)
    problem = DFModelProblem(asked.model, system, asked.batch, asked.sequence, asked.fused, asked.degrees)
    choice = AxisChoice(tuple(part.part() for part in answer.axes), answer.microbatch)
    chain = [(part.kernels, part.streamed, part.tile) for part in answer.partitions]
    layer, time = decided_dfmodel(problem, choice, chain)
    candidates = tuple(
        Candidate(tuple(part.part() for part in item.axes), math.inf if item.time is None else item.time, item.exact, item.reason)
        for item in answer.candidates
    )
    proof = file.certificate
    if proof.size is None:
        raise BadInput(Fault(f"{saved.name}: certificate.size", "the number of choices", "null", "plan it again"))
    return DFModelResult(problem, choice, layer, time, candidates, proof.size, proof.seconds)
