"""`halley sweep`: what it says and writes, how it goes on, what it refuses, and what a kill costs: nothing that was found."""

from __future__ import annotations

import csv
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
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

MANY = (
    CHIP
    + """
workloads:
  g: {kind: gemm, m: 24, n: 32, k: 48}
axes:
  engines.matrix.rows: 1, 2, 3, 4, 6, 8, 12, 16
  engines.matrix.cols: 1, 2, 4, 8
  buf.capacity: 160, 200, 400 B
minimise: [time, macs, buf.capacity]
"""
)
"""96 designs, each searched in a tenth of a second: more than twenty kills leave of them."""


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


def test_the_file_of_a_sweep_is_no_answer_to_vary(swept: Path) -> None:
    assert halley("sweep", "show", str(swept / "small.yaml"), "-o", "sweep.json").code == 0
    told = halley("sensitivity", "sweep.json")
    assert told.code == 1
    assert "got a file 'halley.sweep-answer/1'; a sweep has many answers: write the chip of a design" in told.err


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
    assert "--design: expected the number of a design that keeps the constraints; got 4" in beyond.err
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


def started(study: Path, *words: str, command: str = "sweep") -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    code = "from halley.cli.start import main; main()"
    asked = [sys.executable, "-c", code, command, str(study), *words]
    return subprocess.Popen(
        asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )


def rows(store: Path) -> dict[str, tuple[float, float]]:
    """The answers in the file, by key; the keys are those of the table, so that none can be there twice."""
    if not store.exists():
        return {}
    with closing(sqlite3.connect(store)) as base:
        assert base.execute("pragma integrity_check").fetchone() == ("ok",)
        if base.execute("select count(*) from sqlite_master where name = 'answers'").fetchone() == (0,):
            return {}
        found = base.execute("select key, model, value, seconds from answers").fetchall()
    assert len({(key, model) for key, model, *_ in found}) == len(found)
    return {key: (value, seconds) for key, _, value, seconds in found}


def killed_and_resumed(folder: Path, kills: int, seed: int) -> None:
    """Kills a sweep at random times until it has had so many, then lets it end. Every kill meets a sweep that is at work on what
    is left, after an answer or two of its own. What was in the file before a kill stays as it was, to the time that its search
    took, and the front is that of a sweep that nobody killed."""
    study, store, random = folder / "s.yaml", folder / "s.db", Random(seed)
    study.write_text(MANY)
    parts = len(load_study(study).designs())
    kept: dict[str, tuple[float, float]] = {}
    for _ in range(kills):
        process = started(study, "--all")
        wanted = len(kept) + random.randint(1, 2)
        while process.poll() is None and len(rows_safe(store)) < wanted:
            time.sleep(0.01)
        time.sleep(random.uniform(0.0, 0.1))
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        now = rows(store)
        assert len(kept) < len(now) < parts
        assert {key: now.get(key) for key in kept} == kept
        kept = now
    last = started(study, "--all")
    out, err = last.communicate(timeout=600)
    assert last.returncode == 0, err
    now = rows(store)
    assert len(now) == parts
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


def copied(store: Path, folder: Path) -> Path:
    """A copy of the file alone."""
    return Path(shutil.copy(store, folder / f"copy-of-{store.name}"))


@pytest.mark.parametrize("words", [("sweep",), ("sweep", "--sample", "2"), ("codesign", "--power", "100W")])
def test_the_file_alone_has_all_answers(tmp_path: Path, words: tuple[str, ...]) -> None:
    """After a normal end of a process, nothing lies beside the file."""
    study, store = tmp_path / "s.yaml", tmp_path / "s.db"
    study.write_text(SMALL.replace("minimise: [time, buf.capacity, macs]", ""))
    process = started(study, *words[1:], command=words[0])
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert {path.name for path in tmp_path.iterdir() if path.name.startswith("s.db")} == {"s.db"}
    assert len(rows(copied(store, tmp_path))) >= 2
    shown = halley("sweep", "show", str(study), "--store", str(copied(store, tmp_path)))
    assert shown.code == 0
    assert {path.name for path in tmp_path.iterdir() if "s.db" in path.name} == {"s.db", "copy-of-s.db"}


def test_an_end_by_a_signal_closes_the_file(tmp_path: Path) -> None:
    study, store = tmp_path / "s.yaml", tmp_path / "s.db"
    study.write_text(LONGER)
    process = started(study)
    while process.poll() is None and not rows_safe(store):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert {path.name for path in tmp_path.iterdir() if path.name.startswith("s.db")} == {"s.db"}


def test_a_design_has_one_number_everywhere(tmp_path: Path) -> None:
    """In a study under a constraint, under budgets, and in a sample of it, each number names the same setting."""
    study = tmp_path / "s.yaml"
    text = SMALL.replace("minimise: [time, buf.capacity, macs]", "")
    settings = []
    for rest, words in (
        ("", ("sweep",)),
        ("where: [macs >= 12]", ("sweep",)),
        ("", ("sweep", "--sample", "3", "--seed", "5")),
    ):
        study.write_text(text + rest)
        found = halley(words[0], str(study), *words[1:], "--json").json
        settings.append({design["index"]: design["setting"] for design in found["designs"]})
        assert all(index in settings[-1] for index in found["front"])
    assert list(settings[0]) == [0, 1, 2, 3]
    assert list(settings[1]) == [1, 3]
    assert all(each.items() <= settings[0].items() for each in settings[1:])
    study.write_text(text)
    best = halley("codesign", str(study), "--power", "100W", "--json", "--chip", "best.yaml").json["best"]
    assert settings[0][best["index"]] == best["setting"]
    assert load_chip("best.yaml").name == f"s-{best['index']}"
    for index in settings[1]:
        study.write_text(text + "where: [macs >= 12]")
        assert halley("sweep", "show", str(study), "--chip", f"{index}.yaml", "--design", f"{index}").code == 0
        rows_of = load_chip(f"{index}.yaml").matrix
        assert rows_of is not None
        assert f"{rows_of.rows}" == settings[0][index]["engines.matrix.rows"]


def test_show_computes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a store that lacks some bounds, it says so."""
    study = tmp_path / "s.yaml"
    study.write_text(SMALL.replace("128, 512 B", "128 B"))
    assert halley("sweep", str(study)).code == 0
    study.write_text(SMALL)
    monkeypatch.setattr("halley.sweeps.run.lower_bounds", None)
    shown = halley("sweep", "show", str(study))
    assert shown.code == 0
    assert "2 of 4 lower bounds are not known yet: 'halley sweep" in shown.err
    assert re.search("not finished: .*; 2 open designs", shown.out)


def test_answers_of_another_version_are_mentioned(swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Path(shutil.copy(swept / "small.yaml", tmp_path))
    shutil.copy(swept / "small.db", tmp_path)
    monkeypatch.setattr("halley.sweeps.store.model_key", lambda: "another")
    shown = halley("sweep", "show", str(study))
    assert re.search(r"small\.db: \d answers of another version of the model, not used", shown.err)
    assert "nothing is known yet; 4 open designs" in shown.out
    assert "Front" not in shown.out


def test_ctrl_c_among_the_bounds_says_that_they_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = tmp_path / "s.yaml"
    study.write_text(SMALL)

    def interrupted(self: DesignSweep) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DesignSweep, "run", interrupted)
    told = halley("sweep", str(study))
    assert told.code == 130
    assert "expected 4 lower bounds before the first search; got Ctrl-C after 0, which are kept; run it again" in told.err


def test_one_design_is_no_designs(tmp_path: Path) -> None:
    study = tmp_path / "s.yaml"
    study.write_text(SMALL.replace("128, 512 B", "512 B").replace("2, 4", "4"))
    out = halley("sweep", str(study)).out
    assert "s: 1 design, g" in out
    assert "1 search of 1 in" in out
    assert "1 of 1 design searched" in out
    study.write_text(SMALL)
    assert "s: 2 designs of 4, g" in halley("sweep", str(study), "--sample", "2").out


@pytest.mark.slow
def test_progress_says_what_is_done_and_what_is_left(tmp_path: Path) -> None:
    """In both phases: how much is done, how much is left, and, once there is a pace, for how long."""
    told: list[tuple[str, float]] = []
    study = load_study(write(tmp_path / "s.yaml", LONGER))
    DesignSweep(study, workers=0, everything=True, progress=lambda text, share: told.append((text, share))).run()
    bounds = [(text, share) for text, share in told if text.startswith("lower bounds")]
    assert re.fullmatch(r"lower bounds: 8 of 16, \d+ s left", bounds[0][0])
    assert bounds[-1] == ("lower bounds: 16 of 16", 1.0)
    searches = [(text, share) for text, share in told if "searches made" in text]
    assert searches[0] == ("0 searches made, at most 16 left", 0.0)
    assert re.fullmatch(r"4 searches made, at most 12 left, at most \d+ s at this pace", searches[4][0])
    assert [share for _, share in searches[:-1]] == [made / 16 for made in range(17)]
    assert searches[-1] == ("16 searches made, at most 0 left", 1.0)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


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
