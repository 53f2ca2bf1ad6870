"""``halley serve`` and ``halley plan --serve`` from end to end."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.cli.running import halley

from halley import plan_serving
from halley.answers.load import load
from halley.units import format_time

SERVE = ("serve", "llama3-8b", "--system", "1 x h100", "--input", "2048", "--output", "256")
HYBRID = ("serve", "nemotron-h-8b", "--system", "1 x h100", "--input", "512", "--output", "64", "--concurrency", "8")
PLAN = ("plan", "llama3-8b", "--serve", "--system", "2 x h100, nvlink 2", "--input", "1024", "--output", "128", "--together")


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.medium
def test_one_deployment(tmp_path: Path) -> None:
    """Weights of 15 GiB, a file that shows, checks and reports."""
    file = tmp_path / "served.json"
    outcome = halley(*SERVE, "--concurrency", "32", "-o", str(file), width=140)
    assert outcome.code == 0, outcome.err
    text = flat(outcome.out)
    for words in (
        "llama3-8b (bf16, cache bf16) on 1 x h100, 32 users",
        "weights 14.96 GiB",
        "no schedule of requests serves more",
    ):
        assert words in text, words
    answer = json.loads(file.read_text())["answer"]
    assert answer["output_tokens_per_s"] == pytest.approx(256 * answer["requests_per_s"])
    assert sum(answer["parts_s"].values()) == pytest.approx(answer["step_s"])
    for command in ("check", "show", "explain"):
        outcome = halley(command, str(file))
        assert outcome.code == 0, outcome.out + outcome.err
    assert halley("report", str(file), "-o", str(tmp_path / "page.html")).code == 0


def test_a_saved_answer_keeps_its_bounds(tmp_path: Path) -> None:
    """Long prompts and few output tokens, where the closed form exceeds the bound of steps."""
    file = tmp_path / "served.json"
    words = ("serve", "llama3-8b", "--system", "1 x h100", "--input", "8000", "--output", "2", "--concurrency", "4")
    assert halley(*words, "-o", str(file)).code == 0
    outcome = halley("check", str(file))
    assert outcome.code == 0, outcome.out
    assert "ok deployment: bound: steps" in flat(outcome.out)


@pytest.mark.medium
def test_arrivals_and_events() -> None:
    outcome = halley(*SERVE, "--rate", "2", "--software", "ideal", "--events", "50", "--json")
    assert outcome.code == 0, outcome.err
    answer = json.loads(outcome.out)["answer"]
    assert answer["requests_per_s"] == 2
    assert answer["limit"] == "arrivals"
    assert answer["events"]["requests"] == 50
    assert "By events: 50 requests" in flat(halley(*SERVE, "--rate", "2", "--events", "50", width=140).out)


@pytest.mark.medium
def test_all_requests_are_simulated_with_fewer_users_than_replicas(tmp_path: Path) -> None:
    """One user on two replicas: none of the requests waits for an engine without users."""
    words = ("serve", "llama3-8b", "--system", "2 x h100, nvlink 2", "--tp", "1", "--input", "64", "--output", "8")
    outcome = halley(*words, "--concurrency", "1", "--events", "30", "--json")
    assert json.loads(outcome.out)["answer"]["events"]["requests"] == 30


@pytest.mark.medium
def test_speculation_is_in_the_file_and_needs_memory(tmp_path: Path) -> None:
    file = tmp_path / "served.json"
    words = (*SERVE, "--concurrency", "4", "--draft", "llama-68m", "--acceptance", "0.7,0.9")
    assert halley(*words, "-o", str(file)).code == 0
    rounds = json.loads(file.read_text())["answer"]["speculation"]
    assert [item["window"] for item in rounds] == list(range(1, 9))
    for command in ("check", "show"):
        outcome = halley(command, str(file))
        assert outcome.code == 0, outcome.out + outcome.err
    outcome = halley(*SERVE, "--concurrency", "4", "--draft", "llama3-70b", "--acceptance", "0.7")
    assert outcome.code == 2
    assert "weights of the draft 131.4" in flat(outcome.err)


@pytest.mark.parametrize("load", [("--rate", "4"), ("--concurrency", "6")])
def test_the_page_of_simulated_requests(tmp_path: Path, load: tuple[str, str]) -> None:
    """Requests and the cache over time, and where the times to first and next token go: the parts add up to both."""
    page = tmp_path / "page.html"
    outcome = halley(*SERVE, *load, "--events", "60", "--page", str(page), "--json")
    assert outcome.code == 0, outcome.err
    events, text = json.loads(outcome.out)["answer"]["events"], page.read_text()
    for words in ("Requests by what they do", "Cache on a chip", "capacity: ", "queue until the prompt is scheduled"):
        assert words in text
    assert format_time(events["ttft_s"]["mean"]) in text
    assert format_time(events["tpot_s"]["mean"]) in text
    outcome = halley(*SERVE, *load, "--page", str(tmp_path / "other.html"))
    assert outcome.code == 1
    assert "--trace or --events" in flat(outcome.err)


def test_a_measured_curve_of_acceptance() -> None:
    """A head that proposes tokens with the acceptance that was measured on it; a wrong name says which there are."""
    words = (*SERVE, "--concurrency", "4", "--draft", "head", "--json")
    outcome = halley(*words, "--acceptance", "llama-3.1-8b/eagle3/humaneval")
    assert outcome.code == 0, outcome.err
    rounds = json.loads(outcome.out)["answer"]["speculation"]
    assert rounds[2]["tokens"] == pytest.approx(3.05, rel=0.01)
    outcome = halley(*words, "--acceptance", "llama-3.1-8b/eagle3/human")
    assert outcome.code == 1
    assert "llama-3.1-8b/eagle3-specforge/gpqa" in flat(outcome.err)


def test_a_trace(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival,input,output\n0,512,64\n0.1,600,32\n0.1,20,5\n")
    outcome = halley("serve", "llama3-8b", "--system", "1 x h100", "--trace", str(trace), "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert found["requests"] == 3
    assert found["output_tokens"] == 101


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("arrival,input,output\n1,5,5\n0.5,5,5\n", "trace.csv:3, arrival: expected at least 1 s"),
        ("arrival,input,output\n1,5,-5\n", "trace.csv:2, output: expected a whole number of tokens"),
        ("arrival,input\n1,5\n", "trace.csv:1: expected a column output"),
        ("arrival,input,output\n1,9000000,5\n", "tokens of the cache"),
        ("arrival,input,output\n", "trace.csv: expected at least one request; got none"),
    ],
)
def test_bad_traces(tmp_path: Path, rows: str, message: str) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(rows)
    outcome = halley("serve", "llama3-8b", "--system", "1 x h100", "--trace", str(trace))
    assert outcome.code in (1, 2)
    assert message in flat(outcome.err)
    assert "Traceback" not in outcome.err


@pytest.mark.medium
def test_cost_of_a_million_tokens() -> None:
    """Parts over their years, and energy, over the tokens of that time."""
    words = (*SERVE, "--concurrency", "32", "--years", "4", "--power-price", "0.1", "--json")
    answer = json.loads(halley(*words).out)["answer"]
    without = json.loads(halley(*words[:-3], "--json").out)["answer"]["cost"]["usd_per_million_output_tokens"]
    cost = answer["cost"]["usd_per_million_output_tokens"]
    text = flat(halley(*words[:-1], width=140).out)
    energy = float(text.split("kWh per million output tokens")[0].split()[-1])
    assert cost - without == pytest.approx(0.1 * energy, rel=0.03)  # two digits
    price = float(text.split(" USD of stated parts")[0].split()[-1].replace(",", ""))
    made = answer["output_tokens_per_s"] * 4 * 365.25 * 86400 / 1e6
    assert without == pytest.approx(price / made, rel=0.01)


def test_no_cost_without_a_stated_price() -> None:
    """Nobody publishes a price of an H20. Its memory has a price of 0, as it is in the package."""
    words = ("serve", "llama3-8b", "--system", "2 x h20, nvlink 2", "--rate", "1", "--input", "500", "--output", "100")
    answer = halley(*words)
    assert answer.code == 0
    assert "USD" not in answer.out
    refused = halley(*words, "--years", "4")
    assert (refused.code, "expected stated prices" in refused.err) == (1, True)


def test_options_that_a_trace_refuses(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival,input,output\n1,20,5\n2,4,5\n")
    words = ("serve", "llama3-8b", "--system", "1 x h100", "--trace", str(trace))
    outcome = halley(*words, "--prefix", "4")
    assert outcome.code == 1
    assert "trace.csv:3, input: expected more than the 4 cached tokens" in flat(outcome.err)
    outcome = halley(*words, "--concurrency", "7")
    assert outcome.code == 1
    assert "--concurrency with --trace" in flat(outcome.err)


def test_a_trace_with_a_draft(tmp_path: Path) -> None:
    """Requests are simulated with one window; a draft makes a lone request faster."""
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival,input,output\n0,200,400\n")
    words = ("serve", "llama3-8b", "--system", "1 x h100", "--trace", str(trace), "--json")
    draft = ("--draft", "head", "--acceptance", "0.9")
    plain, quick = halley(*words), halley(*words, *draft, "--window", "3")
    assert quick.code == 0, quick.err
    assert json.loads(quick.out)["time_s"] < 0.6 * json.loads(plain.out)["time_s"]
    outcome = halley(*words, *draft)
    assert outcome.code == 1
    assert "--draft: expected --window beside it where requests are simulated; got none" in flat(outcome.err)


@pytest.mark.medium
def test_a_window_and_swapping(tmp_path: Path) -> None:
    """The deployment itself speculates: its figures, the events and the saved answer; what is preempted can be swapped."""
    file = tmp_path / "served.json"
    words = (*SERVE, "--concurrency", "8", "--draft", "head", "--acceptance", "0.8,0.9", "--window", "3")
    outcome = halley(*words, "--events", "40", "--preempt", "swap", "-o", str(file), width=140)
    assert outcome.code == 0, outcome.err
    assert "window 3, 2.75 tokens a round" in outcome.out
    assert "By events: 40 requests" in outcome.out
    assert "the draft of speculative decoding" in outcome.out
    saved = json.loads(file.read_text())
    assert saved["question"]["speculation"]["window"] == 3
    assert saved["question"]["software"]["preempt"] == "swap"
    assert halley("check", str(file)).code == 0


def test_formats_that_a_chip_lacks() -> None:
    for system in ("1 x h100", "1 x a100"):
        words = ("serve", "llama3-8b", "--system", system, "--input", "64", "--output", "8", "--concurrency", "1")
        outcome = halley(*words, "--weights", "nvfp4")
        assert outcome.code == 1
        assert "expected a type that its matrix engine has; got nvfp4" in flat(outcome.err)


def test_a_cache_in_a_format_that_the_chip_lacks(tmp_path: Path) -> None:
    """It is converted: the answer says so, unlike weights whose products would have that format."""
    remark, file = "a100 has no fp8 products: attention computes in bf16", tmp_path / "served.json"
    words = ("serve", "llama3-8b", "--input", "64", "--output", "8", "--concurrency", "1", "--cache", "fp8")
    outcome = halley(*words, "--system", "1 x a100", "-o", str(file), width=140)
    assert outcome.code == 0, outcome.err
    assert remark in flat(outcome.out)
    assert remark in json.loads(file.read_text())["answer"]["remarks"][0]
    assert halley("check", str(file)).code == 0
    assert "products" not in halley(*words, "--system", "1 x h100").out
    assert halley(*words, "--system", "1 x a100", "--weights", "fp8").code == 1


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((*SERVE, "--concurrency", "4", "--rate", "3"), 1, "expected --concurrency or --rate; got both"),
        ((*SERVE,), 1, "got neither"),
        ((*SERVE, "--concurrency", "0"), 1, "write for example '--concurrency 32'"),
        ((*SERVE, "--concurrency", "4", "--tp", "0"), 1, "write for example '--tp 2'"),
        ((*SERVE, "--rate", "0"), 1, "--rate: expected a number above 0"),
        ((*SERVE, "--rate", "1", "--power-price", "1"), 1, "expected --years beside it"),
        ((*SERVE, "--rate", "1", "--years", "0"), 1, "--years: expected a number above 0"),
        ((*PLAN, "--rate", "0"), 1, "--rate: expected a number above 0"),
        ((*PLAN, "--rate", "100000"), 2, "rate: expected at most"),
        ((*SERVE, "--concurrency", "4", "--weights", "fp9"), 1, "did you mean"),
        ((*SERVE, "--concurrency", "4", "--software", "vlm"), 1, "did you mean 'vllm'"),
        ((*SERVE, "--rate", "1000"), 2, "limited by"),
        (("serve", "llama3-70b", *SERVE[2:], "--concurrency", "4"), 2, "weights 131.4"),
        (
            ("serve", "llama3-8b", "--system", "1 x h100", "--input", "9000000", "--output", "2", "--concurrency", "1"),
            2,
            "cache of one",
        ),
        ((*PLAN, "--slo", "ttft 1 s, tpot 1 us"), 2, "at the nearest"),
        ((*PLAN, "--slo", "tpt 1 s"), 1, "limits such as 'ttft 1 s, tpot 30 ms'; got 'tpt 1 s'; did you mean 'tpot'?"),
        ((*PLAN, "--batch", "8", "--whole"), 1, "--batch: expected no option of training"),
        (("plan", "llama3-8b", "--system", "2 x h100, nvlink 2", "--batch", "8", "--slo", "ttft 1 s"), 1, "add --serve"),
        (
            ("plan", "llama3-8b", "--system", "2 x h100, nvlink 2", "--batch", "8", "--draft", "head"),
            1,
            "--draft: expected --serve",
        ),
        ((*PLAN, "--draft", "head"), 1, "expected --draft and --acceptance; got one of them alone"),
        ((*SERVE, "--rate", "1", "--window", "3"), 1, "--window: expected --draft and --acceptance beside it; got neither"),
        (
            (*SERVE, "--rate", "1", "--draft", "head", "--acceptance", "0.7", "--window", "65"),
            1,
            "--window: expected a whole number from 1 to 64",
        ),
        ((*SERVE, "--rate", "1", "--preempt", "swap"), 1, "--preempt: expected --trace or --events beside it"),
        ((*SERVE, "--rate", "1", "--events", "9", "--preempt", "swop"), 1, "did you mean 'swap'?"),
        (
            ("serve", "llama3-8b", "--system", "sn40l-torus", *SERVE[4:], "--rate", "1", "--events", "9", "--preempt", "swap"),
            1,
            "swapping on sn40l-torus: expected a host with memory and a link to it; got none",
        ),
        ((*PLAN, "--draft", "head", "--acceptance", "0.7,a"), 1, "one or two numbers, or the name of a measured curve"),
        ((*PLAN, "--draft", "head", "--acceptance", "1.7"), 1, "acceptance: expected a chance from 0 to 1"),
        ((*PLAN, "--draft", "hed", "--acceptance", "0.7"), 1, "--draft: expected head (one layer of the model itself)"),
        ((*PLAN, "--draft", "hed", "--acceptance", "0.7"), 1, "got 'hed'; did you mean 'head'?"),
        ((*SERVE, "--concurrency", "4", "--draft", "lama-68m", "--acceptance", "0.7"), 1, "did you mean 'llama-68m'?"),
        ((*HYBRID, "--state", "fp8"), 1, "state: expected one of bf16, fp16, fp32; got 'fp8'"),
        ((*HYBRID, "--tp", "3"), 1, "a layout whose chips divide 1; got TP 3"),
        ((*HYBRID[:1], "jamba-v0.1", *HYBRID[2:]), 2, "at most 70.8 GiB on a chip"),
        (("plan", "nemotron-h-8b", "--train", "--system", "2 x h100, nvlink 2", "--batch", "2"), 1, "'halley serve' and 'halley"),
    ],
)
def test_bad_input(words: tuple[str, ...], code: int, message: str) -> None:
    outcome = halley(*words)
    assert outcome.code == code, outcome.err
    assert message in flat(outcome.err)


def test_the_best_deployment_that_speculates(tmp_path: Path) -> None:
    """The window is in words, in the file, on the front, in comparisons and beside launch flags; the file is searched again."""
    plain, file = tmp_path / "plain.json", tmp_path / "plan.json"
    words = (*PLAN, "--slo", "tpot 6 ms")
    assert halley(*words, "-o", str(plain)).code == 0
    outcome = halley(*words, "--draft", "head", "--acceptance", "0.8,0.95", "--front", "-o", str(file), width=140)
    assert outcome.code == 0, outcome.err
    answer, other = (json.loads(each.read_text())["answer"] for each in (file, plain))
    window = answer["window"]
    assert 1 <= window <= 8
    assert 1 < answer["tokens_per_round"] < window + 1
    assert answer["figures"]["requests_per_s"] > other["figures"]["requests_per_s"]
    assert "window" not in other
    assert f"speculation with head of llama3-8b (window {window}, " in flat(outcome.out)
    assert {point["window"] for point in answer["front"]} > {window}
    assert "the draft of speculative decoding" in outcome.out
    assert "weights of the draft" in outcome.out
    assert "9 windows" in outcome.out
    outcome = halley("check", str(file))
    assert outcome.code == 0, outcome.out + outcome.err
    assert "head of llama3-8b" in halley("compare", str(plain), str(file)).out
    assert f"{window} proposed tokens a round by head of llama3-8b" in halley("show", str(file), "--emit", "vllm").out
    broken = json.loads(file.read_text())
    broken["question"]["drafts"]["models"] *= 2
    file.write_text(json.dumps(broken))
    assert "question.drafts.models: expected 1 model, as question.models has; got 2" in flat(halley("check", str(file)).out)


def test_no_acceptance_proposes_nothing() -> None:
    outcome = halley(*PLAN, "--draft", "head", "--acceptance", "0", "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["answer"]["window"] == 0


def test_the_deployment_of_a_plan_that_speculates_is_saved(tmp_path: Path) -> None:
    plan = plan_serving("llama3-8b", "1 x h100", 500, 100, slo="tpot 4 ms", draft="head", acceptance="0.9")
    assert plan.served.deployment.speculation is not None
    file = tmp_path / "served.json"
    plan.served.save(file)
    again = load(file)
    assert again.value.deployment.speculation == plan.served.deployment.speculation
    assert [finding for finding in again.check() if not finding.passed] == []


@pytest.mark.medium
def test_the_best_deployment(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    outcome = halley(*PLAN, "--slo", "ttft 1 s, tpot 15 ms", "--weights", "bf16,fp8", "-o", str(file), width=140)
    assert outcome.code == 0, outcome.err
    text = flat(outcome.out)
    assert "best of" in text
    assert "no schedule on any of them serves more than" in text
    outcome = halley("check", str(file))
    assert outcome.code == 0, outcome.out + outcome.err
    assert "limits" in outcome.out
    figure = tmp_path / "front.svg"
    assert halley("figure", str(file), "front", "-o", str(figure)).code == 0
    front = json.loads(file.read_text())["answer"]["front"]
    drawn = figure.read_text()
    marks = {float(mark.replace(",", "")) for mark in re.findall(r">([\d,]+)<", drawn)}
    for name in ("tokens_per_s_user", "tokens_per_s_chip"):  # a round mark in the upper half of each axis
        most = max(point[name] for point in front)
        assert any(most / 2 < mark <= most and mark % 10 == 0 for mark in marks), name
    assert f"{max(point['tokens_per_s_user'] for point in front):,.1f} tokens/s a user" in drawn


def test_a_hybrid(tmp_path: Path) -> None:
    """A file that states the recurrent layers, shows and checks; states of fp32 take more memory and time."""
    times = []
    for state in ("bf16", "fp32"):
        file = tmp_path / f"{state}.json"
        outcome = halley(*HYBRID, "--state", state, "--events", "30", "-o", str(file), width=160)
        assert outcome.code == 0, outcome.err
        text = flat(outcome.out)
        assert f"of state of a sequence, whatever its context, in {state}; bf16 is assumed unless --state is given" in text
        assert "cache and states in use" in text
        saved = json.loads(file.read_text())
        assert (saved["question"]["model"]["state"], saved["question"]["model"]["hybrid"]["layers"]) == (state, 24)
        assert saved["answer"]["events"]["requests"] == 30
        times.append((saved["answer"]["tpot_s"], saved["answer"]["memory_B"]["cache"], saved["answer"]["parts_s"]["recurrence"]))
        assert halley("check", str(file)).code == 0
    assert times[0] < times[1]
    assert times[1][2] > 1.5 * times[0][2]
    assert "states of recurrent layers" in flat(halley("explain", str(tmp_path / "bf16.json"), "recurrence").out)
    assert "hybrid" not in json.loads(halley(*SERVE, "--concurrency", "2", "--json").out)["question"]["model"]


@pytest.mark.medium
def test_the_best_deployment_of_a_hybrid(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    words = ("plan", "nemotron-h-8b", "--serve", "--system", "2 x h100, nvlink 2", "--input", "512", "--output", "64")
    outcome = halley(*words, "--slo", "tpot 15 ms", "--state", "fp32", "-o", str(file))
    assert outcome.code == 0, outcome.err
    assert halley("check", str(file)).code == 0
    found = plan_serving("nemotron-h-8b", "2 x h100, nvlink 2", input=512, output=64, slo="tpot 15 ms", state="fp32")
    again = load(file).value
    assert again.best.rate == found.best.rate
    assert again.problem.models[0].state == "fp32"
