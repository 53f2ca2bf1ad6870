"""Studies of systems: what may be wrong with them, what their designs are, and their answers beside single plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from halley import plan, plan_serving
from halley.errors import BadInput
from halley.io.systems.system import load_system
from halley.library import MODELS
from halley.sweeps.bases import filled
from halley.sweeps.explore import Standing
from halley.sweeps.figures import figures_of, left_out
from halley.sweeps.load import load_study, parse_study
from halley.sweeps.plans import PlanQuestion
from halley.sweeps.run import DesignSweep
from halley.sweeps.study import Question, problem_key

PLANS = """
plans:
  small: {model: gpt2-xl, batch: 16}
system: "{chips} x {chip}, nvlink"
axes:
  chips: 4, 8
  chip: [a100, h100]
minimise: [time, price]
"""
DEPLOYMENTS = """
deployments:
  chat: {model: llama3-8b, input: 512, output: 64, slo: "tpot {tpot}"}
system: "{chips} x h100, nvlink"
axes:
  chips: 1, 2
  tpot: 20, 40 ms
minimise: [time, chips]
"""
FILE = """
plans:
  small: {model: gpt2-xl, batch: "{batch}", fix: "tp=1"}
system:
  name: pair
  chip: h100
  axes: [{name: gpu, size: 2, topology: full, link: {technology: nvlink-4, count: 6}}]
axes:
  gpu.size: 2, 4
  gpu.link.count: 2, 6
  chip.dram.capacity: 60, 80 GB
  batch: [8]
"""


def faults(text: str) -> str:
    with pytest.raises(BadInput) as error:
        first_question(text)
    return str(error.value)


def first_question(text: str) -> Question:
    study = parse_study(text)
    return study.problem(study.designs()[0], 0)


def test_designs_of_a_short_form() -> None:
    study = parse_study(PLANS)
    designs = study.designs()
    assert [design.label for design in designs] == [f"{n} x {chip}, nvlink" for n in (4, 8) for chip in ("a100", "h100")]
    assert all(design.figures["price"] == figures_of(load_system(design.label))["price"] for design in designs)
    assert designs[0].figures["chips"] == 4
    assert left_out(designs[0].subject, "price") == ("nodes",)


def test_designs_of_a_system_file() -> None:
    study = parse_study(FILE)
    designs = study.designs()
    assert len(designs) == 8
    for design in designs:
        system = design.subject
        assert system == load_system("2 x h100, nvlink") or system.axes[0].size == design.figures["gpu.size"]
        assert system.chip.memory("dram").capacity == design.figures["chip.dram.capacity"]
    links = {(d.figures["gpu.link.count"], d.subject.axes[0].link.bandwidth) for d in designs}
    assert len(links) == 2
    question = study.problem(designs[-1], 0)
    assert isinstance(question, PlanQuestion)
    assert (question.problem.batch, question.problem.fixed.model, question.problem.system) == (8, 1, designs[-1].subject)


def test_a_shipped_system_is_a_base() -> None:
    text = PLANS.replace('"{chips} x {chip}, nvlink"', "dgx-h100-pod").replace(
        "chips: 4, 8\n  chip: [a100, h100]", "node.size: 1, 2"
    )
    assert [design.subject.chips for design in parse_study(text).designs()] == [8, 16]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("gpt2-xl", "gpt2-xll", "plans.small: model: expected the name of a shipped model"),
        ("batch: 16", "batch: none", "plans.small: batch: expected a whole number"),
        ("batch: 16", "batches: 16", "expected a known key; got 'batches'"),
        ("{chip},", "{chop},", "system: expected the name of an axis in braces; got 'chop'; did you mean 'chip'?"),
        ("[a100, h100]", "[a100, h101]", "axes.chip: expected system, chip: a shipped chip"),
        ("chips: 4, 8", "chips: 4, 8\n  nodes: 1, 2", "axes.nodes: expected an axis that the text of the system or a plan names"),
        ("[time, price]", "[energy, price]", "minimise: expected time, which the searches minimise"),
        ("[time, price]", "[time, prices]", "did you mean 'price'?"),
        ("plans:", "chip: edge\nplans:", "expected a study of chips or of systems; got chip and system"),
        (
            'system: "{chips} x {chip}, nvlink"\n',
            "",
            "expected a chip and workloads, or a system and plans or deployments; got plans",
        ),
        ("minimise:", "weights: {smal: 2}\nminimise:", "did you mean 'small'?"),
        ("minimise:", "figures: {a: chip * 2}\nminimise:", "chip, whose values are words"),
    ],
)
def test_faults(before: str, after: str, told: str) -> None:
    assert before in PLANS
    assert told in faults(PLANS.replace(before, after))


def test_a_fault_of_all_combinations_is_told_once() -> None:
    told = faults(PLANS.replace("nvlink", "nvlink 8"))
    assert told.count("expected system: sizes whose product is 4 chips") == 1


def test_a_price_that_is_not_stated() -> None:
    assert "a price of every chip of the study" in faults(
        PLANS.replace("[a100, h100]", "[mi210]").replace("nvlink", "infiniband-hdr")
    )


def test_names_in_braces() -> None:
    assert filled("tpot {tpot}, {n}{n}", {"tpot": "20 ms", "n": "1"}) == "tpot 20 ms, 11"
    with pytest.raises(BadInput, match="did you mean 'tpot'"):
        filled("{tpt}", {"tpot": "20 ms"})


def test_the_key_of_a_plan_is_its_content() -> None:
    study = parse_study(PLANS)
    one, other = study.designs()[:2]
    keys = [problem_key(study.problem(design, 0)) for design in (one, one, other)]
    assert keys[0] == keys[1] != keys[2]
    again = parse_study(PLANS)
    assert problem_key(again.problem(again.designs()[0], 0)) == keys[0]
    longer = parse_study(PLANS.replace("batch: 16", "batch: 32"))
    assert problem_key(longer.problem(longer.designs()[0], 0)) != keys[0]


@pytest.mark.medium
def test_the_front_is_that_of_single_plans() -> None:
    study = parse_study(PLANS)
    result = DesignSweep(study, workers=0).run()
    points = []
    for design in study.designs():
        best = plan("gpt2-xl", design.label, batch=16).certificate
        points.append((best.value, design.figures["price"]))
        outcome = result.outcomes[design.number]
        assert outcome.bound <= best.value * (1 + 1e-9)
        if outcome.standing is Standing.SEARCHED:
            assert outcome.value == best.value
    front = {i for i, (t, p) in enumerate(points) if not any(u <= t and q <= p and (u, q) != (t, p) for u, q in points)}
    assert set(result.front) == front
    assert result.done
    assert result.system().name.startswith("study-")
    with pytest.raises(BadInput, match="a study of chips"):
        result.chip()


@pytest.mark.medium
def test_deployments_are_those_of_single_searches() -> None:
    study = parse_study(DEPLOYMENTS)
    result = DesignSweep(study, workers=0, everything=True).run()
    for design in study.designs():
        found = plan_serving("llama3-8b", design.label, input=512, output=64, slo=f"tpot {design.setting['tpot']}")
        answer = result.outcomes[design.number].answers["chat"]
        assert answer.value == pytest.approx(found.certificate.value / design.subject.chips, rel=1e-12)
        rate = found.pools.rate if found.pools else found.best.rate
        assert answer.value == pytest.approx(1 / (rate * 64), rel=1e-9)
        assert answer.bound <= answer.value


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf")])
def test_a_rate_is_above_zero(rate: float) -> None:
    with pytest.raises(BadInput, match="rate: expected a number of requests per second above 0"):
        plan_serving("llama3-8b", "2 x h100, nvlink", input=512, output=64, rate=rate)


@pytest.mark.parametrize(("chip", "able"), [("a100", ["bf16", "int4"]), ("b200", ["bf16", "fp8", "nvfp4", "int4"])])
def test_chips_without_a_dtype_take_the_others(chip: str, able: list[str]) -> None:
    """Formats of the weights alone need no rate."""
    words = 'slo: "tpot {tpot}", weights: "bf16,fp8,nvfp4,int4"'
    study = parse_study(DEPLOYMENTS.replace("h100", chip).replace('slo: "tpot {tpot}"', words))
    question = study.problem(study.designs()[0], 0)
    assert [model.weights for model in question.problem.models] == able


def test_states_of_a_hybrid_have_a_dtype() -> None:
    for words, state in (("", "bf16"), (", state: fp32", "fp32")):
        text = DEPLOYMENTS.replace("llama3-8b", "nemotron-h-8b").replace('slo: "tpot {tpot}"', f'slo: "tpot {{tpot}}"{words}')
        study = parse_study(text)
        question = study.problem(study.designs()[0], 0)
        assert [(model.state, model.recurrent_layers) for model in question.problem.models] == [(state, 24)]


@pytest.mark.medium
def test_what_does_not_fit_is_told_with_its_reason() -> None:
    text = PLANS.replace("gpt2-xl", "llama3-70b").replace("4, 8", "4").replace("time, price", "time")
    result = DesignSweep(parse_study(text), workers=0).run()
    assert {outcome.standing for outcome in result.outcomes} == {Standing.INFEASIBLE}
    assert "expected at most" in result.outcomes[0].reason


def test_paths_start_at_the_folder_of_the_study(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(MODELS.text("gpt2-xl"), encoding="utf-8")
    (tmp_path / "study.yaml").write_text(PLANS.replace("gpt2-xl", "mine.yaml"), encoding="utf-8")
    study = load_study(tmp_path / "study.yaml")
    question = study.problem(study.designs()[0], 0)
    assert isinstance(question, PlanQuestion)
    assert question.problem.shape.layers == 48


def test_the_example_is_read() -> None:
    study = load_study(Path(__file__).parents[2] / "examples" / "cluster-sweep.yaml")
    assert len(study.designs()) == 8
