"""`halley sweep`: what it says and writes, how it goes on, what it refuses, and what a kill costs: nothing that was found."""

from __future__ import annotations

import csv
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from tests.cli.running import halley
from tests.unit.sweep_studies import CHIP, SMALL

from halley.io.chips.load import load_chip
from halley.sweeps.load import load_study
from halley.sweeps.run import DesignSweep

LONGER = (
    CHIP
    + """
workloads:
  g: {kind: gemm, m: 12, n: 16, k: 16}
axes:
  engines.matrix.rows: 1, 2, 4, 8
  buf.capacity: 96, 192, 384, 768 B
minimise: [time, macs, buf.capacity]
"""
)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study that was swept, by a process of its own."""
    folder = tmp_path_factory.mktemp("swept")
    (folder / "small.yaml").write_text(SMALL)
    for _ in DesignSweep(load_study(folder / "small.yaml"), folder / "small.db", workers=0):
        pass
    return folder


def test_it_shows_the_front_and_its_proof(swept: Path) -> None:
    shown = halley("sweep", "show", str(swept / "small.yaml"), "--best", "2")
    assert shown.code == 0
    assert "small: 4 designs, g; minimised: time, buf.capacity, macs" in shown.out
    assert re.search(r"exact: a front of \d designs; no other design is better in everything", shown.out)
    assert re.search(r"\d searches of 4 in ", shown.out)
    assert "The 2 best known" in shown.out


def test_a_second_run_searches_nothing(swept: Path) -> None:
    before = (swept / "small.db").read_bytes()
    again = halley("sweep", str(swept / "small.yaml"))
    assert again.code == 0
    assert again.out == halley("sweep", "show", str(swept / "small.yaml")).out
    assert before == (swept / "small.db").read_bytes()


def test_csv_has_every_design(swept: Path, tmp_path: Path) -> None:
    assert halley("sweep", "show", str(swept / "small.yaml"), "--csv", "out.csv").code == 0
    with (tmp_path / "out.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["design"] for row in rows] == ["0", "1", "2", "3"]
    assert {row["buf.capacity"] for row in rows} == {"128.0", "512.0"}
    assert all(float(row["time_s"]) >= float(row["bound_s"]) > 0 for row in rows if row["time_s"])
    assert sum(row["front"] == "1" for row in rows) >= 1


def test_the_chip_of_a_design_is_a_file(swept: Path, tmp_path: Path) -> None:
    assert halley("sweep", "show", str(swept / "small.yaml"), "--chip", "third.yaml", "--design", "2").code == 0
    study = load_study(swept / "small.yaml")
    chip = load_chip(tmp_path / "third.yaml")
    assert replace(chip, name="", description="", sources={}) == replace(
        study.designs()[2].chip, name="", description="", sources={}
    )
    assert chip.name == "small-2"
    assert "engines.matrix.rows 2" in chip.description
    best = halley("sweep", "show", str(swept / "small.yaml"), "--chip", "best.yaml")
    assert best.code == 0
    first = halley("sweep", "show", str(swept / "small.yaml"), "--json").json["front"][0]
    assert load_chip(tmp_path / "best.yaml").name == f"small-{first}"
    assert halley("optimise", "gemm", "--m", "4", "--n", "8", "--k", "8", "--chip", "best.yaml").code == 0


def test_a_chip_file_of_no_design(swept: Path) -> None:
    beyond = halley("sweep", "show", str(swept / "small.yaml"), "--chip", "no.yaml", "--design", "4")
    assert beyond.code == 1
    assert "--design: expected a number from 0 to 3; got 4" in beyond.err
    alone = halley("sweep", "show", str(swept / "small.yaml"), "--design", "1")
    assert alone.code == 1
    assert "--design: expected --chip FILE or --system FILE beside it" in alone.err
    assert not Path("no.yaml").exists()


def test_a_study_under_a_budget_names_the_best_and_what_is_limited(tmp_path: Path) -> None:
    (tmp_path / "budget.yaml").write_text(
        SMALL.replace("minimise: [time, buf.capacity, macs]", "figures: {area: 2 * macs}\nwhere: [area <= 16]")
    )
    told = halley("sweep", "budget.yaml")
    assert told.code == 0
    assert "exact: no design has less time than the best" in told.out
    assert re.search(r"#.*area.*time", told.out)


def test_json_has_the_mappings_of_the_front(swept: Path) -> None:
    found = halley("sweep", "show", str(swept / "small.yaml"), "--json").json
    assert found["schema"] == "halley.sweep-answer/1"
    assert found["certificate"]["gap"] == 0
    for index in found["front"]:
        source = str(found["designs"][index]["mappings_of"]["g"])
        assert "compute" in found["mappings"][source]["g"]["mapping"]


def test_the_page_is_one_file_that_loads_nothing(swept: Path, tmp_path: Path) -> None:
    assert halley("sweep", "show", str(swept / "small.yaml"), "--page", "out.html").code == 0
    page = (tmp_path / "out.html").read_text()
    assert not re.search(r'(src|href)="(?!#)', page)
    assert page.count("<circle") >= 2
    assert 'class="sortable"' in page
    assert "default-src 'none'" in page


def test_parquet_needs_its_extra(swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refused = halley("sweep", "show", str(swept / "small.yaml"), "--parquet", "out.parquet")
    assert refused.code == 1
    assert "pip install 'halley[parquet]'" in refused.err
    assert "small: 4 designs" in refused.out


def test_parquet_has_what_csv_has(swept: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert halley("sweep", "show", str(swept / "small.yaml"), "--parquet", "out.parquet").code == 0
    table = parquet.read_table(tmp_path / "out.parquet").to_pydict()
    assert table["design"] == [0, 1, 2, 3]
    assert all(isinstance(each, float) for each in table["bound_s"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no.yaml"], "no.yaml: expected a file; got no such file"),
        (["show", "small.yaml"], "small.db: expected a store of a sweep; got no file; run 'halley sweep small.yaml' first"),
        (["small.yaml", "-j", "0"], "--workers: expected a whole number from 1"),
        (["small.yaml", "--store", "none/s.db"], "none/s.db: expected a folder that exists"),
        (["small.yaml", "--csv", "small.yaml"], "small.yaml: expected a new file"),
        (["small.yaml", "--foo"], "expected a known option; got '--foo'"),
    ],
)
def test_bad_input(words: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    refused = halley("sweep", *words)
    assert (refused.code, refused.out) == (1, "")
    assert said in refused.err


def started(study: Path, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    code = "from halley.cli.start import main; main()"
    command = [sys.executable, "-c", code, "sweep", str(study), *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )


def rows(store: Path) -> dict[str, tuple[float, float]]:
    """The answers in the file, by key; the keys are those of the table, so that none can be there twice."""
    if not store.exists():
        return {}
    base = sqlite3.connect(store)
    assert base.execute("pragma integrity_check").fetchone() == ("ok",)
    if base.execute("select count(*) from sqlite_master where name = 'answers'").fetchone() == (0,):
        return {}
    found = base.execute("select key, model, value, seconds from answers").fetchall()
    assert len({(key, model) for key, model, *_ in found}) == len(found)
    return {key: (value, seconds) for key, _, value, seconds in found}


def killed_and_resumed(folder: Path, kills: int, seed: int) -> None:
    """Kills a sweep at random times until it has had so many, then lets it end: what was in the file before each kill stays as it
    was, to the second that its search took, and the front is that of a sweep that nobody killed."""
    study, store, random = folder / "s.yaml", folder / "s.db", Random(seed)
    study.write_text(LONGER)
    kept: dict[str, tuple[float, float]] = {}
    for _ in range(kills):
        process = started(study)
        before = time.monotonic()
        patience = random.uniform(0.3, 6.0)
        while process.poll() is None and time.monotonic() - before < patience:
            time.sleep(0.02)
        process.kill()
        process.wait()
        now = rows(store)
        assert {key: now.get(key) for key in kept} == kept
        kept = now
    last = started(study)
    out, err = last.communicate(timeout=600)
    assert last.returncode == 0, err
    now = rows(store)
    assert {key: now.get(key) for key in kept} == kept
    undisturbed = DesignSweep(load_study(study), workers=0).run()
    killed = DesignSweep(load_study(study), store, workers=0, read_only=True).result()
    fronts = [
        {(o.value, o.design.figures["macs"]) for o in (each.outcomes[i] for i in each.front)} for each in (killed, undisturbed)
    ]
    assert fronts[0] == fronts[1]
    assert "exact" in out


@pytest.mark.medium
def test_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path, 3, 1)


@pytest.mark.slow
def test_twenty_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path, 20, 2)


def children(process: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[1]) == process:
            found.append(int(path.parent.name))
    return found


@pytest.mark.medium
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_workers_end_with_their_owner(tmp_path: Path, sent: signal.Signals) -> None:
    """By a kill, at once; by Ctrl-C, after what is known has been shown."""
    study = tmp_path / "s.yaml"
    study.write_text(LONGER)
    process = started(study)
    while process.poll() is None and not rows_safe(tmp_path / "s.db"):
        time.sleep(0.05)
    workers = children(process.pid)
    assert workers
    process.send_signal(sent)
    out, err = process.communicate(timeout=60)
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{worker}").exists() for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)
    if sent is not signal.SIGKILL:
        assert process.returncode == 3
        assert "interrupted; what was found is kept" in err
        assert "not finished" in out


@pytest.mark.medium
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")
def test_a_killed_worker_costs_what_it_was_at(tmp_path: Path) -> None:
    study, store = tmp_path / "s.yaml", tmp_path / "s.db"
    study.write_text(LONGER)
    process = started(study)
    while process.poll() is None and not rows_safe(store):
        time.sleep(0.05)
    kept = rows(store)
    for worker in children(process.pid):
        if b"spawn_main" in Path(f"/proc/{worker}/cmdline").read_bytes():
            os.kill(worker, signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "worker processes; got one that was ended from outside" in err
    assert kept.items() <= rows(store).items()


def rows_safe(store: Path) -> dict[str, tuple[float, float]]:
    try:
        return rows(store)
    except sqlite3.Error:
        return {}


@pytest.mark.medium
def test_two_sweeps_into_one_store_at_a_time(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(LONGER)
    both = [started(tmp_path / name, "--store", str(tmp_path / "one.db")) for name in ("a.yaml", "b.yaml")]
    said = [process.communicate(timeout=600) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    fronts = [out.partition("Front")[2].partition("What became")[0] for out, _ in said]
    assert fronts[0] == fronts[1]
    assert rows(tmp_path / "one.db")


def test_the_file_of_the_other_kind_is_refused_before_the_work(swept: Path) -> None:
    told = halley("sweep", str(swept / "small.yaml"), "--system", "no.yaml", "--sample", "2")
    assert told.code == 1
    assert "--system: expected a study of systems; got one of chips; use --chip" in told.err


@pytest.mark.medium
def test_an_interrupted_sample_says_so(tmp_path: Path) -> None:
    axes = "{buf.capacity: 'range(128..100000, 1) B', dram.read_bandwidth: 'range(1..50000, 1) MB/s'}"
    (tmp_path / "huge.yaml").write_text(f"{CHIP}\nworkloads: {{g: {{kind: gemm, m: 4, n: 8, k: 8}}}}\naxes: {axes}\n")
    command = [sys.executable, "-m", "halley", "sweep", "huge.yaml", "--sample", "90000"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "huge.db").exists() or len(rows(tmp_path / "huge.db")) < 2:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "interrupted" in err
    assert "that were chosen" in out
