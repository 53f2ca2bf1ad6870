"""Every reader of files against broken, hostile and absurd files: a value or a worded refusal, never another exception, a hang or
much memory.

Each reader gets the files that no reader should choke on, and its own good file damaged in many ways.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import signal
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import halley
from tests.importers.published import CONFIGS

import halley as package
from halley import library
from halley.errors import Fault, HalleyError
from halley.importers.iterations import read_iterations
from halley.importers.onnx.load import import_onnx
from halley.importers.source import find_model
from halley.importers.torch.export import import_pt2
from halley.io.chips.fits import load_chip_fit
from halley.io.chips.kernel_fits import load_kernel_fits
from halley.io.chips.kernel_tables import read_kernel_table
from halley.io.chips.load import load_chip, load_problem
from halley.io.chips.operators import read_operators
from halley.io.chips.shape_tables import read_shape_table
from halley.io.chips.software import load_software
from halley.io.files.text import read_text_bounded
from halley.io.networks.astra import load_astra
from halley.io.networks.fits import load_fit
from halley.io.networks.nccl_tests import read_measurements
from halley.io.networks.network import load_network
from halley.io.requests import read_requests
from halley.io.software import load_software as load_serving_software
from halley.io.systems.grid import load_grid
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.launch.read import read_degrees
from halley.launch.serving import read_serving_flags
from halley.sweeps.load import load_study

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 20
"""Longest time of one file [s]: what the largest files that are read take several times over."""
MEMORY = 2 * 2**30
"""Memory beyond what the process had before [B]."""
DAMAGED = 24
"""Damaged copies of the good file of each reader."""


def of_text(read: Callable[[str, str], Any]) -> Callable[[str], Any]:
    return lambda path: read(read_text_bounded(path), path)


def mapping_of(path: str) -> Any:
    return package.estimate(
        read_text_bounded(path), package.build("gemm", {"m": 4, "n": 7, "k": 5}), str(ROOT / "examples/pencil.yaml")
    )


def iterations(path: str) -> Any:
    return read_iterations(read_text_bounded(path), path, load_software("eager"))


def log(path: str) -> Any:
    return read_measurements(read_text_bounded(path), path, ranks=8)


GEMM_TABLE = (
    "gpu,op,framework,version,kernel_source,gemm_dtype,m,n,k,latency_us\nH100 SXM,gemm,sglang,0.5.10,x,bfloat16,64,128,256,9.5\n"
)
SHAPES = "hardware,op,shape,dtype,measured_latency_s\nx,gemm,M=64;N=128;K=256,bf16,9.5e-6\n"
RUNS = "model,system,microbatch,batch,time_s\nllama-68m,1 x a100,8,32,0.15\n"
OPERATORS = "operator,dtype,m,n,k,time\ngemm,bf16,64,128,256,12.5 us\n"
LOG = """# Collective test starting: all_reduce_perf
# nThread 1 nGpus 8 minBytes 8 maxBytes 1024 step: 2(factor) warmup iters: 5 iters: 20
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
        1024           256     float     sum      -1    12.50    0.08    0.14      0    12.40    0.08    0.14      0
"""
ASTRA = "topology: [ Ring, Switch ]\nnpus_count: [ 4, 8 ]\nbandwidth: [ 50.0, 25.0 ]\nlatency: [ 500.0, 1000.0 ]\n"

READERS: dict[str, tuple[str, Callable[[str], Any], Callable[[], str | bytes]]] = {
    "chip": ("chip.yaml", load_chip, lambda: library.CHIPS.text("edge")),
    "problem": ("problem.yaml", load_problem, lambda: "workload: {kind: gemm, m: 4, n: 4, k: 4}\nchip: edge\ntime_limit: 60 s\n"),
    "system": ("system.yaml", load_system, lambda: library.SYSTEMS.text("dgx-h100-pod")),
    "grid": ("grid.yaml", load_grid, lambda: library.GRIDS.text("dfmodel")),
    "network": ("network.yaml", load_network, lambda: library.NETWORKS.text("dgx-1")),
    "network of ASTRA-sim": ("astra.yml", load_astra, lambda: ASTRA),
    "network fit": ("fit.yaml", load_fit, lambda: library.NETWORK_FITS.text(library.NETWORK_FITS.names()[0])),
    "chip fit": ("fit.yaml", load_chip_fit, lambda: library.CHIP_FITS.text("a100")),
    "kernel fits": ("fits.yaml", load_kernel_fits, lambda: library.KERNEL_FITS.text("l40s")),
    "software": ("software.yaml", load_software, lambda: library.SOFTWARE.text("eager")),
    "serving software": ("software.yaml", load_serving_software, lambda: library.SERVING_SOFTWARE.text("vllm")),
    "model": ("model.yaml", load_model, lambda: library.MODELS.text("llama3-8b")),
    "configuration": ("config.json", find_model, lambda: json.dumps(CONFIGS["deepseek-ai/DeepSeek-V3"], indent=1)),
    "study": ("study.yaml", load_study, lambda: (ROOT / "examples/sweep.yaml").read_text()),
    "study of systems": ("cluster.yaml", load_study, lambda: (ROOT / "examples/cluster-sweep.yaml").read_text()),
    "mapping": ("plan.txt", mapping_of, lambda: (ROOT / "examples/split-k.txt").read_text()),
    "answer": ("mapping.json", package.load, lambda: answers()["mapping"]),
    "answer of estimate": ("estimate.json", package.load, lambda: answers()["estimate"]),
    "answer of collective": ("collective.json", package.load, lambda: answers()["collective"]),
    "answer of serving": ("serving.json", package.load, lambda: answers()["serving"]),
    "log of nccl-tests": ("log.txt", log, lambda: LOG),
    "table of kernels": ("table.csv", of_text(read_kernel_table), lambda: GEMM_TABLE),
    "table of shapes": ("table.csv", of_text(read_shape_table), lambda: SHAPES),
    "measured iterations": ("runs.csv", iterations, lambda: RUNS),
    "table of operators": ("table.csv", of_text(read_operators), lambda: OPERATORS),
    "requests": ("trace.csv", lambda path: list(read_requests(path)), lambda: "arrival,input,output\n0.0,128,16\n0.5,64,8\n"),
    "launch flags": (
        "flags.txt",
        lambda path: read_degrees(read_text_bounded(path), 64, path),
        lambda: (ROOT / "examples/megatron-flags.txt").read_text(),
    ),
    "serving flags": (
        "flags.txt",
        lambda path: read_serving_flags(read_text_bounded(path), path),
        lambda: (ROOT / "examples/vllm-flags.txt").read_text(),
    ),
    "PyTorch program": ("block.pt2", import_pt2, lambda: program()),
}
"""By what is read: the name of a file of it, its reader, and a good file."""
if find_spec("onnx"):
    READERS["ONNX network"] = ("net.onnx", import_onnx, lambda: onnx_network())


def onnx_network() -> bytes:
    from onnx import TensorProto, helper

    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", (4, 8)), ("w", (8, 2)))]
    made = helper.make_graph(nodes, "net", inputs, [helper.make_empty_tensor_value_info("y")])
    return bytes(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())


def program() -> bytes:
    import io
    import zipfile

    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.write(ROOT / "tests/importers/programs/block.json", "block/models/model.json")
    return made.getvalue()


@cache
def answers() -> dict[str, str]:
    """Small answers of commands, by kind."""
    gemm = ("gemm", "--m", "4", "--n", "7", "--k", "5", "--chip", str(ROOT / "examples/pencil.yaml"))
    words = {
        "mapping": ("optimise", "gemm", "--m", "4", "--n", "4", "--k", "4", "--chip", "edge", "--no-baselines", "--no-save"),
        "estimate": ("estimate", str(ROOT / "examples/split-k.txt"), *gemm),
        "collective": ("collective", "all-reduce", "--size", "1MiB", "--system", "dgx-1"),
        "serving": (
            "serve",
            "llama-68m",
            "--system",
            "2 x h100, nvlink 2",
            "--input",
            "64",
            "--output",
            "8",
            "--concurrency",
            "2",
        ),
    }
    return {kind: halley(*each, "--json").out for kind, each in words.items()}


# --- files that no reader should choke on ---------------------------------------------------------------------------------------

HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "spaces": b" \n\t\n  ",
    "a NUL": b"name: a\x00b\n",
    "zeros": bytes(5000),
    "noise": random.Random(1).randbytes(5000),
    "an image": b"\x89PNG\r\n\x1a\n" + random.Random(2).randbytes(500),
    "gzip": b"\x1f\x8b\x08\x00" + random.Random(3).randbytes(500),
    "an archive that is cut": b"PK\x03\x04" + random.Random(4).randbytes(500),
    "no UTF-8": b"name: caf\xe9\n",
    "UTF-16": "name: x\n".encode("utf-16"),
    "a mark alone": b"\xef\xbb\xbf",
    "escapes": b"name: \x1b[31mred\x1b[0m\x07\n",
    "a number": b"7",
    "null": b"null",
    "a list": b"[1, 2, 3]",
    "text": b"hello, world",
    "an empty map": b"{}",
    "deep lists": b"[" * 100_000,
    "deep maps": b'{"a":' * 50_000,
    "deep blocks": b"".join(b" " * place + b"a:\n" for place in range(1200)),
    "aliases": b"a: &a [x, x, x, x, x, x, x, x]\n"
    + b"".join(b"%c: &%c [%s]\n" % (98 + i, 98 + i, b", ".join([b"*%c" % (97 + i)] * 9)) for i in range(9)),
    "a tag": b"!!python/object/apply:os.system ['true']\n",
    "keys twice": b'{"name": 1, "name": 2}',
    "not finite": b'{"name": NaN, "clock": Infinity}',
    "a huge number": b'{"name": ' + b"9" * 100_000 + b"}",
    "a huge exponent": b'{"name": 1e999999999}',
    "a surrogate": b'{"name": "\\ud800"}',
    "a long line": b"x" * 900_000,
    "many lines": b"a\n" * 400_000,
    "many keys": b"".join(b"k%d: 1\n" % place for place in range(20_000)),
    "many columns": b",".join(b"c%d" % place for place in range(50_000)) + b"\n",
    "another kind": b"first,second\n1,2\n",
    "options": b"--x " * 20_000,
    "too much": b"# \n" * 12_000_000,
}


def damaged(good: bytes, seed: int) -> bytes:
    """The good file with a few changes: of bytes, lines, numbers or words."""
    draw = random.Random(seed)
    lines = good.split(b"\n")
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(lines))
        numbers = list(re.finditer(rb"\d+(\.\d+)?", lines[place]))
        match draw.randrange(9):
            case 0:
                del lines[place:]
                lines.append(b"")
            case 1:
                lines.insert(place, lines[place])
            case 2:
                del lines[place]
                lines = lines or [b""]
            case 3 | 4 if numbers:
                found = draw.choice(numbers)
                new = draw.choice(
                    [
                        b"0",
                        b"-1",
                        b"1e999",
                        b"9" * 5000,
                        b"nan",
                        b"9" * 40,
                        b"1.5",
                        b"x",
                        b"2147483648",
                        b"true",
                        b"",
                        b"[]",
                        b"{}",
                    ]
                )
                lines[place] = lines[place][: found.start()] + new + lines[place][found.end() :]
            case 5:
                other = draw.randrange(len(lines))
                lines[place], lines[other] = lines[other], lines[place]
            case 6:
                words = lines[place].split(b" ")
                words[draw.randrange(len(words))] = draw.choice(
                    [b"null", b"~", b"\xf0\x9f\x92\xa5", b"'", b"\x1b[2J", b"../../x", b"a" * 5000]
                )
                lines[place] = b" ".join(words)
            case _:
                content = bytearray(lines[place] or b" ")
                content[draw.randrange(len(content))] = draw.randrange(256)
                lines[place] = bytes(content)
    return b"\n".join(lines)


def said_well(fault: Fault) -> bool:
    """Whether a message has its parts, and none that floods the terminal."""
    return bool(fault.where and fault.expected and fault.got) and len(str(fault)) < 2000


class TooLongError(Exception):
    pass


def too_long(*_: object) -> None:
    raise TooLongError


def tried(read: Callable[[str], Any], path: str) -> str:
    """What is wrong with what the reader makes of a file; "" if nothing is."""
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LIMIT)
    try:
        read(path)
    except HalleyError as error:
        if not error.faults or not all(map(said_well, error.faults)):
            return f"a message without its parts: {str(error)[:200]!r}"
        if error.exit_code == 70:
            return f"a fault of Halley's own: {error}"
    except TooLongError:
        return f"more than {LIMIT} s"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.alarm(0)
    return ""


def cases(name: str) -> Iterator[tuple[str, bytes]]:
    made = READERS[name][2]()
    good = made.encode() if isinstance(made, str) else made
    yield from HOSTILE.items()
    yield "with returns", good.replace(b"\n", b"\r\n")
    yield "with tabs", good.replace(b"  ", b"\t")
    yield "twice", good + good
    yield from ((f"damaged {seed}", damaged(good, seed)) for seed in range(DAMAGED))


@pytest.mark.medium
@pytest.mark.parametrize("name", READERS)
def test_readers_survive(name: str, tmp_path: Path) -> None:
    file, read, _ = READERS[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wrong = {}
    for case, content in cases(name):
        (tmp_path / file).write_bytes(content)
        wrong[case] = tried(read, str(tmp_path / file))
    assert {case: said for case, said in wrong.items() if said} == {}
    assert 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < MEMORY


@pytest.mark.parametrize("name", READERS)
def test_good_files_are_read(name: str, tmp_path: Path) -> None:
    """The files that are damaged above are good before."""
    file, read, good = READERS[name]
    content = good()
    (tmp_path / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert read(str(tmp_path / file)) is not None


@pytest.mark.parametrize("name", READERS)
def test_what_is_no_file(name: str, tmp_path: Path) -> None:
    """Folders, missing files, devices without an end, pipes that nobody writes to, names that no file can have."""
    file, read, _ = READERS[name]
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    places = [tmp_path / "folder", tmp_path / "none" / file, *map(Path, ("/dev/zero", "/dev/null")), tmp_path / "pipe"]
    wrong = {str(place): tried(read, str(place)) for place in places}
    wrong |= {text[:20]: tried(read, text) for text in (f"./{'x' * 400}", "./a\0b", f"{tmp_path}/\udcff")}
    for place in places[:1] + places[4:]:  # the same by a link, with the name that the reader looks for
        link = tmp_path / file
        link.symlink_to(place)
        wrong[f"link to {place}"] = tried(read, str(link))
        link.unlink()
    assert {place: said for place, said in wrong.items() if said} == {}


def test_there_are_hundreds_of_cases() -> None:
    assert len(READERS) * (len(HOSTILE) + 3 + DAMAGED + 9) > 1500
