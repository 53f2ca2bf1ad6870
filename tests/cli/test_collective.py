"""``halley collective`` from end to end: what it says, what it writes, and each bad input in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.cli.running import halley

from halley.io.networks.fits import load_fit
from halley.io.networks.nccl_tests import read_measurements
from halley.io.systems.save import system_yaml
from halley.io.systems.system import load_system
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms import ALGORITHMS
from halley.network.algorithms.tables import KINDS
from halley.report.browser import browser

SVG = "{http://www.w3.org/2000/svg}"
DGX = ("--system", "dgx-h100")
FIT = ("--software", "h100-sxm-nccl-2.29.2")


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_the_command_of_the_issue() -> None:
    """256 MiB over 450 GB/s each way and two links of 500 ns: sums fetched from switches in k pieces take
    S (1 + 1/k + (1 - 1/k) / n), all other schedules 2 x 7/8 S."""
    outcome = halley("collective", "all-reduce", "--size", "256MiB", *DGX, width=160)
    assert outcome.code == 0, outcome.err
    text = flat(outcome.out)
    for words in (
        "all-reduce of 256 MiB (the vector of one rank) among 8 ranks of dgx-h100",
        "time, measured library 1.353 ms by the fit h100-sxm, nccl 2.29.2; all-reduce on 8 ranks is extrapolated",
        "its bus bandwidth 347.3 GB/s",
        "fastest algorithm pulled, 23 pieces",
        "time at link rates 717.8 us: 24 us in 24 steps, 693.8 us on links",
        "algorithm bandwidth 374 GB/s bus bandwidth 654.5 GB/s",
        "bound 597.5 us: latency (",
        "gap 20.1 %",
        "limiting link rank 0 to switch of gpu 0 (axis gpu, 450 GB/s), busy 671.1 us",
        "231.9 mJ on the links; link table of",
        "price 61,200 USD, 345.6 W with all links busy",
        "why it is slower",
        "+372.8 us: bytes on the busiest link; -22 us: start-ups and latency, 22 steps fewer; -22.69 us: idle time of that link",
    ):
        assert words in text, words


def test_json_holds_every_candidate_and_its_loss_adds_up() -> None:
    found = halley("collective", "all-reduce", "--size", "1MiB", *DGX, "--json").json["answer"]
    times = [item["time"] for item in found["candidates"]]
    assert times == sorted(times)
    assert found["chosen"]["algorithm"] == found["candidates"][0]["algorithm"]
    assert len(times) >= 15
    assert found["bound"]["value"] == pytest.approx(1e-6 + 2**20 / 450e9, rel=1e-12)
    ring = next(item for item in found["candidates"] if item["algorithm"] == "ring")
    assert ring["bytes_per_rank"] == 2 * 7 / 8 * 2**20
    assert ring["time"] == pytest.approx(14 * (1e-6 + 2**17 / 450e9), rel=1e-12)
    assert ring["busbw"] == pytest.approx(2 * 7 / 8 * 2**20 / ring["time"], rel=1e-12)
    assert all(item["time"] >= found["bound"]["value"] * (1 - 1e-9) for item in found["candidates"])
    assert found["energy_sources"].startswith("link table of")
    assert found["ranks"] == list(range(8))


def test_all_shows_what_is_left_out() -> None:
    few, every = (halley("collective", "all-reduce", "--size", "1MiB", *DGX, *more, width=160).out for more in ((), ("--all",)))
    assert "slower ones left out; --all shows them" in few
    assert "left out" not in every
    assert "one-shot" in every


def test_one_algorithm_start_ups_and_a_group() -> None:
    words = ("collective", "all-gather", "--size", "8MB", "--system", "tpu-v4-cube", "--algorithm", "ring", "--json")
    slice_ = halley(*words, "--ranks", "0-3", "--start-up", "2us").json["answer"]
    assert slice_["ranks"] == [0, 1, 2, 3]
    assert slice_["chosen"]["steps"] == 3
    assert slice_["chosen"]["waiting"] == pytest.approx(3 * (2e-6 + 1e-6))
    pod = halley("collective", "all-gather", "--size", "8MB", "--system", "hgx-pod", "--group", "node=0:4,gpu=1:3", "--json")
    assert pod.json["answer"]["ranks"] == [1, 2, 9, 10, 17, 18, 25, 26]
    text = halley("collective", "all-gather", "--size", "8MB", "--system", "hgx-pod", "--group", "gpu", "--algorithm", "ring").out
    assert "among ranks 0-7 of hgx-pod" in flat(text)
    assert "nvlink-4" in text
    assert "infiniband" not in text  # what the group does not use does not say where its energy comes from


def test_messages_may_cost_the_sender() -> None:
    """One port, 8 ranks: an all-gather posts seven messages at once, or one in each of seven steps; Bruck's three in all."""
    words = ("collective", "all-gather", "--size", "8B", *DGX, "--per-message", "2us", "--json")
    found = {item["algorithm"]: item for item in halley(*words).json["answer"]["candidates"]}
    assert found["direct"]["waiting"] == pytest.approx(7 * 2e-6 + 1e-6)
    assert found["ring"]["waiting"] == pytest.approx(7 * (2e-6 + 1e-6))
    assert found["bruck"]["waiting"] == pytest.approx(3 * (2e-6 + 1e-6))
    listed = halley("collective", "all-gather", "--size", "8B", "--system", "dgx-1", "--per-message", "2us", "--json").json
    assert listed["answer"]["chosen"]["time"] > 2e-6


def test_what_is_not_tried_is_said() -> None:
    text = flat(halley("collective", "all-reduce", "--size", "1MiB", *DGX, width=160).out)
    assert "not tried in-network: needs a switch that gives a sum to several" in text
    found = halley("collective", "all-reduce", "--size", "1MiB", "--system", "dgx-1", "--json").json["answer"]
    assert found["not_tried"] == dict.fromkeys(("in-network", "pulled"), "switches that multicast and add")


def test_a_fitted_library_lies_over_it() -> None:
    name = "h100-sxm-nccl-2.29.2"
    outcome = halley("collective", "all-reduce", "--size", "64MiB", *DGX, "--ranks", "0-3", "--software", name, "--json")
    assert outcome.json["answer"]["software"]["time"] == load_fit(name).time(CollectiveKind.ALL_REDUCE, 4, 64 * 2**20)
    assert outcome.err == ""
    far = halley("collective", "all-reduce", "--size", "64MiB", *DGX, "--software", name, "-o", "far.svg")
    assert (far.out + far.err).count("extrapolated") == 2  # beside the time, and for the times over sizes
    default = halley("collective", "all-reduce", "--size", "64MiB", *DGX)
    assert "time, measured library" in default.out
    for plain in (("--software", "none"), ("--algorithm", "ring")):
        assert "measured" not in halley("collective", "all-reduce", "--size", "64MiB", *DGX, *plain).out


def test_systems_have_networks(tmp_path: Path) -> None:
    pod = ("--system", "16 x h100, nvlink 8, ib")
    whole = halley("collective", "all-reduce", "--size", "64MiB", *pod, "--json").json["answer"]
    assert whole["software"] is None  # measured in a node alone
    assert len(whole["ranks"]) == 16
    node = halley("collective", "all-reduce", "--size", "64MiB", *pod, "--group", "nvlink", "--json").json["answer"]
    assert node["software"]["time"] == load_fit("h100-sxm-nccl-2.29.2").time(CollectiveKind.ALL_REDUCE, 8, 64 * 2**20)
    (tmp_path / "mine.yaml").write_text(system_yaml(load_system("4 x a100, nvlink")))
    file = halley("collective", "all-reduce", "--size", "64MiB", "--system", str(tmp_path / "mine.yaml"), "--json")
    assert len(file.json["answer"]["ranks"]) == 4
    assert "expected at least 2 chips" in halley("collective", "all-reduce", "--size", "1MiB", "--system", "1 x h100").err


def test_sizes_as_a_table_and_a_plot(empty_folder: Path) -> None:
    outcome = halley("collective", "all-reduce", *DGX, "--sizes", "1KiB:1MiB:4", *FIT, "--figure", "made.svg", width=160)
    assert outcome.code == 0, outcome.err
    assert "fastest by size" in outcome.out
    assert [f"{size} KiB" in outcome.out for size in (1, 4, 16, 64, 256)] == [True] * 5
    root = ElementTree.parse(empty_folder / "made.svg").getroot()
    text = "".join(root.itertext())
    assert "all-reduce among 8 ranks of dgx-h100" in text
    assert "thick: fastest; dashed: bound; dotted: h100-sxm, nccl 2.29.2" in text
    curves = {line.findtext(f"{SVG}title"): line.get("points", "") for line in root.findall(f"{SVG}polyline")}
    drawn = {name for names in curves for name in (names or "").split(", ")}
    assert {"ring", "pulled", "bound", "fastest"} <= drawn
    assert len(curves["bound"].split()) == 2 * 6
    lows, highs = ([float(y) for y in curves[name].split()[1::2]] for name in ("bound", "fastest"))
    assert all(low >= high - 0.1 for low, high in zip(lows, highs, strict=True))  # y points down


def test_sizes_as_json() -> None:
    outcome = halley("collective", "all-gather", *DGX, "--sizes", "1kB:8kB", "--algorithm", "ring", "--json")
    found = outcome.json["answer"]["sweep"]
    assert found["sizes"] == [1000, 2000, 4000, 8000]
    assert list(found["times"]) == ["ring"]
    assert found["times"]["ring"] == pytest.approx([7 * (1e-6 + size / 8 / 450e9) for size in found["sizes"]])


@pytest.mark.skipif(browser() is None, reason="needs a Chromium")
def test_png(empty_folder: Path) -> None:
    assert halley("collective", "all-gather", *DGX, "--algorithm", "ring", "-o", "made.png").code == 0
    assert (empty_folder / "made.png").read_bytes().startswith(b"\x89PNG")


def test_predictions_become_a_fit(empty_folder: Path) -> None:
    """What `--nccl` writes, `halley calibrate network` reads, and finds latency and bandwidth of the links in."""
    for name in ("all-reduce", "all-gather"):
        made = halley("collective", name, *DGX, "--algorithm", "ring", "--sizes", "1KiB:1GiB", "--nccl", f"{name}.txt")
        assert made.code == 0, made.err
        (row, *_) = read_measurements((empty_folder / f"{name}.txt").read_text(), "made")
        steps = 14 if name == "all-reduce" else 7
        assert row.time == pytest.approx(steps * (1e-6 + 128 / 450e9), rel=1e-5)
    outcome = halley("calibrate", "network", "all-reduce.txt", "all-gather.txt", "--json")
    assert outcome.code == 0, outcome.err
    overlay = load_fit(empty_folder / "network.yaml")
    for kind, steps in ((CollectiveKind.ALL_REDUCE, 14), (CollectiveKind.ALL_GATHER, 7)):
        for size in (2**12, 2**20, 2**28):
            assert overlay.time(kind, 8, size) == pytest.approx(steps * (1e-6 + size / 8 / 450e9), rel=0.02)


def test_a_chakra_trace_per_rank_and_as_json(empty_folder: Path) -> None:
    words = ("collective", "all-reduce", "--size", "1MiB", *DGX, "--algorithm", "ring", "--chakra")
    outcome = halley(*words, "trace")
    assert "written to trace.0.et and 7 more" in outcome.err
    assert sorted(path.name for path in empty_folder.iterdir()) == [f"trace.{rank}.et" for rank in range(8)]
    assert halley(*words, "trace").code == 1  # they are there already
    assert halley(*words, "trace.json").code == 0
    document = json.loads((empty_folder / "trace.json").read_text())
    assert [len(item["nodes"]) for item in document] == [2 * 14] * 8
    inside = halley("collective", "all-reduce", "--size", "1MiB", *DGX, "--algorithm", "pulled", "--chakra", "inside")
    assert inside.code == 1
    assert "choose an algorithm that works without switches, such as ring" in inside.err


def test_beside_others(empty_folder: Path) -> None:
    words = ("collective", "all-reduce", "--size", "64MiB", *DGX, "--algorithm", "ring")
    (empty_folder / "jobs.yaml").write_text("beside:\n  - all-reduce 64MiB by ring\n  - 50 % load\n")
    twice = halley(*words, "--beside", "jobs.yaml", "--json").json["answer"]
    first, second = twice["beside"]["executions"]
    assert first["time"] == pytest.approx(second["time"])
    assert first["alone"] == pytest.approx(twice["chosen"]["time"])
    moving = first["alone"] - 14e-6
    assert first["time"] == pytest.approx(14e-6 + 4 * moving)  # two share half
    assert len(first["shared_links"]) == 16
    text = flat(halley(*words, "--beside", "all-reduce 1MiB by ring after 1 s", width=160).out)
    assert "1.00 x" in text
    assert "nowhere" in text
    assert "no sharing ends them before 1 s" in text


def test_the_optimum_of_an_all_to_all() -> None:
    """DGX-1: 2.667 times S / 8 over a link of 25 GB/s (DFModel's table; an LP gives the same)."""
    found = halley("collective", "all-to-all", "--size", "8MB", "--system", "dgx-1", "--optimum", "--json").json["answer"]
    assert found["optimum"]["time"] == pytest.approx(8 / 3 * 1e6 / 25e9, rel=0.03)
    assert found["optimum"]["bound"] <= found["optimum"]["time"] <= found["chosen"]["time"]


def test_what_there_is() -> None:
    outcome = halley("collective", "--list", width=200)
    text = flat(outcome.out)
    assert [str(kind) for kind in KINDS if str(kind) not in text] == []
    assert [name for name in ALGORITHMS if name not in text] == []
    assert "Patarasuk and Yuan" in text


def test_one_rank_and_a_barrier_have_answers() -> None:
    alone = halley("collective", "all-reduce", "--size", "1MiB", *DGX, "--ranks", "3", "--json")
    assert alone.json["answer"]["chosen"]["time"] == 0
    assert halley("collective", "all-reduce", "--size", "1MiB", *DGX, "--ranks", "3", *FIT).code == 0
    barrier = halley("collective", "barrier", *DGX)
    assert barrier.code == 0, barrier.err
    assert "dissemination" in barrier.out


LINK = "bandwidth: 1 GB/s, latency: 1 us, energy: 1 pJ/bit"
PART = f"name: part\nranks: 4\nlinks:\n  - {{{LINK}, between: [[0, 1], [2, 3]]}}\n"
ONE_WAY = f"name: way\nranks: 3\nlinks:\n  - {{{LINK}, from_to: [[0, 1], [1, 2], [2, 0]]}}\n"

SIZED = ("all-reduce", "--size", "1MB")
ON = ("all-reduce", *DGX)
BAD = {
    "a disconnected graph": (
        (*SIZED, "--system", "part.yaml"),
        "links: expected a way from rank 0 to every rank; got none for rank 2, 3",
    ),
    "bandwidth zero": ((*SIZED, "--system", "zero.yaml"), "links.0.bandwidth: expected a bandwidth above zero; got '0 GB/s'"),
    "a group that leaves the axis": (
        (*SIZED, *DGX, "--group", "gpu=4:12"),
        "expected a part of axis gpu, 0 <= START < STOP <= 8",
    ),
    "an axis that is not there": (
        (*SIZED, *DGX, "--group", "gpus"),
        "expected an axis of dgx-h100; got 'gpus'; did you mean 'gpu'?",
    ),
    "a rank that is not there": ((*SIZED, *DGX, "--ranks", "4-8"), "--ranks: expected ranks from 0 to 7 of dgx-h100; got 8"),
    "a rank twice": ((*SIZED, *DGX, "--ranks", "0-4,2"), "--ranks: expected each rank once; got rank 2 again"),
    "axes of a list of links": ((*SIZED, "--system", "way.yaml", "--group", "x"), "list the ranks with --ranks"),
    "both": ((*SIZED, *DGX, "--ranks", "0", "--group", "gpu"), "--ranks and --group: expected one of them; got both"),
    "size zero": ((*ON, "--size", "0B"), "--size: expected a size above zero; got '0B'"),
    "size without a unit": ((*ON, "--size", "256"), "--size: expected a size; got '256', without a unit"),
    "half a byte": ((*ON, "--size", "0.5B"), "--size: expected a whole number of bytes, at most 1 EiB; got '0.5B'"),
    "no size": (ON, "--size: expected a size; got none; write for example 256MiB"),
    "an unknown algorithm": (
        (*SIZED, *DGX, "--algorithm", "rign"),
        "expected a known algorithm; got 'rign'; did you mean 'ring'?",
    ),
    "an unfit algorithm": ((*SIZED, *DGX, "--ranks", "0-2", "--algorithm", "halving"), "expected a power of two; got 3"),
    "an unknown collective": (("all-redcue", "--size", "1MB", *DGX), "got 'all-redcue'; did you mean 'all-reduce'?"),
    "an unknown network": ((*SIZED, "--system", "dgx-h10"), "got 'dgx-h10'; did you mean 'dgx-h100'?"),
    "no network": (SIZED, "--system: expected a network; got none"),
    "no collective": ((), "collective: expected a collective; got none; 'halley collective --list' lists them"),
    "an unknown fit": ((*SIZED, *DGX, "--software", "h100-nccl"), "did you mean 'h100-sxm-nccl"),
    "a fit for a barrier": (("barrier", *DGX, *FIT), "of which no library was measured"),
    "neighbours at many sizes": ((*ON, "--sizes", "1kB:1MB", "--beside", "10% load"), "--size: expected a size; got none"),
    "sizes that shrink": ((*ON, "--sizes", "1MB:1kB"), "--sizes: expected sizes that grow"),
    "sizes of one part": ((*ON, "--sizes", "1MB"), "--sizes: expected two sizes and perhaps a factor"),
    "sizes by a factor of one": ((*ON, "--sizes", "1kB:1MB:1"), "by a whole factor of at least 2"),
    "sizes of a barrier": (("barrier", *DGX, "--figure", "x.svg"), "expected a collective among at least 2 ranks; got a barrier"),
    "an optimum of what is none": ((*SIZED, *DGX, "--optimum"), "--optimum: expected an all-to-all"),
    "a plot of no kind": ((*SIZED, *DGX, "--figure", "x.pdf"), "--figure: expected a name that ends in .svg or .png; got"),
    "an answer that is no JSON": ((*SIZED, *DGX, "-o", "x.pdf"), "a picture of times over sizes is --figure FILE"),
    "neighbours in no words": ((*SIZED, *DGX, "--beside", "noise"), "--beside: expected a collective; got 'noise'"),
    "a table of what nccl-tests lack": (("point-to-point", *DGX, "--nccl", "x"), "expected a collective that they have"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_said_in_one_line(name: str, empty_folder: Path) -> None:
    (empty_folder / "part.yaml").write_text(PART)
    (empty_folder / "way.yaml").write_text(ONE_WAY)
    (empty_folder / "zero.yaml").write_text(ONE_WAY.replace("1 GB/s", "0 GB/s"))
    words, message = BAD[name]
    before = {path.name for path in empty_folder.iterdir()}
    outcome = halley("collective", *words)
    assert outcome.code == 1, outcome
    assert message in outcome.err, outcome.err
    assert outcome.err.count("\n") <= 2  # a network in pieces has a line for each direction
    assert outcome.out == ""
    assert {path.name for path in empty_folder.iterdir()} == before


def test_a_list_of_links_is_a_network_too(empty_folder: Path) -> None:
    (empty_folder / "way.yaml").write_text(ONE_WAY)
    outcome = halley("collective", "all-gather", "--size", "3MB", "--system", "way.yaml", "--algorithm", "ring", "--json")
    assert outcome.json["answer"]["chosen"]["time"] == pytest.approx(2 * (1e-6 + 1e-3))
    assert halley("collective", "all-gather", "--size", "3MB", "--system", "way.yaml", "--ranks", "0,2").code == 0


def test_an_astra_network_comes_in(empty_folder: Path) -> None:
    (empty_folder / "a.yml").write_text("topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 100 ]\nlatency: [ 1000 ]\n")
    assert halley("topology", "import", "a.yml", "-o", "a.yaml").code == 0
    assert halley("topology", "import", "a.yml", "-o", "a.yaml").code == 1
    outcome = halley("collective", "all-gather", "--size", "4GiB", "--system", "a.yaml", "--algorithm", "ring", "--json")
    found = outcome.json["answer"]
    assert found["chosen"]["time"] == pytest.approx(3 * (1e-6 + 1 / 100), rel=1e-12)  # shares of 1 GiB over 100 GiB/s
    assert "ASTRA-sim networks state none" in found["energy_sources"]
