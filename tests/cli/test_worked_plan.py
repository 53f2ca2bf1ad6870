"""docs/worked-plan.md: its commands run, and every figure on the page is recomputed from the plan that they write.

Each row with a formula is computed by that function of `halley.formulas` and compared with the plan's own figure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path

import pytest
from tests.cli.running import halley

from halley.answers.load import load
from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.formulas.collectives import collective_time, gather_bound
from halley.formulas.engines import systolic_cycles
from halley.formulas.pipeline import flow_shop_time
from halley.formulas.tiling import Split, folds, visits
from halley.formulas.timing import busy_time, phase_time, total, transfer_time
from halley.formulas.training import drained_time, optimizer_traffic, sharded_bytes
from halley.ir.hardware import Axis, MatrixEngine
from halley.ir.mapping import Node, Spatial, Temporal, walk
from halley.ir.text import parse
from halley.kernels.searched import Product, shape_of
from halley.pipeline.iteration import EXTRA_OPTIMIZER_BYTES_PER_PARAMETER
from halley.training.op_mapping import OpMapping, op_mapping
from halley.training.part_costs import PartCosts, training_graphs
from halley.training.plan import TrainingResult
from halley.units import format_bytes, format_frequency, format_rate, format_time

PAGE = (Path(__file__).parents[2] / "docs" / "worked-plan.md").read_text(encoding="utf-8")
WORD = 2
"""Bytes of an element of bf16."""
HOPS = 2
"""From a chip to a switch, and on to another chip."""


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def close(value: float) -> object:
    return pytest.approx(value, rel=1e-9)


def row(*cells: object) -> str:
    return "| " + " | ".join(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells) + " |"


def step(what: str, formula: Callable[..., object], numbers: str, value: str) -> str:
    return row(what, f"`{formula.__name__}`", numbers, value)


@dataclass(frozen=True)
class Worked:
    """The plan of the page; ``shown``: what `halley show` printed of the op."""

    result: TrainingResult
    shown: str

    @cached_property
    def up(self) -> OpMapping:
        return op_mapping(self.result, "up")

    @cached_property
    def product(self) -> Product:
        shape = shape_of(self.up.kernel)
        assert isinstance(shape, Product)
        return shape

    @cached_property
    def tree(self) -> Node:
        assert self.up.cost is not None
        return parse(self.up.cost.mapping)

    @cached_property
    def estimate(self) -> Estimate:
        return evaluate(self.product.workload, self.result.problem.chip, self.tree)

    @property
    def parts(self) -> tuple[PartCosts, PartCosts, PartCosts]:
        embedding, layer, head = self.result.cost.parts.parts
        return embedding, layer, head

    @property
    def rail(self) -> Axis:
        return self.result.problem.system.axes[0]

    @property
    def node(self) -> Axis:
        return self.result.problem.system.axes[1]

    @property
    def layers(self) -> int:
        (each,) = set(self.result.plan.layers)
        return each

    def iteration(self) -> list[str]:
        """What the parts of an iteration are computed from; the stage that finishes last is the first one."""
        plan, account, recipe = self.result.plan, self.result.cost.account, self.result.problem.recipe
        embedding, layer, head = self.parts
        ranks, microbatches, crossings = plan.data, plan.pipeline.microbatches, 2 * (plan.pipeline.stages - 1)
        link = self.rail.link
        delay = HOPS * link.latency

        all_stages, slowest = self.microbatch()
        passes = flow_shop_time(all_stages, slowest, microbatches)
        assert passes == close(account["forward"] + account["recompute"] + account["backward"] + account["bubble"])

        sent = self.product.rows * self.product.depth * WORD // plan.model
        transfer = transfer_time(delay, busy_time(sent, link.bandwidth))
        assert crossings * transfer == close(account["transfers"])

        def over_rail(part: PartCosts, word: int) -> float:
            return float(collective_time(HOPS, link.latency, ranks - 1, word * part.parameters / ranks, link.bandwidth))

        scatter, scatter_embedding = (over_rail(part, recipe.gradient) for part in (layer, embedding))
        work = self.layers * layer.backward + embedding.backward
        drained = drained_time(0, layer.backward, layer.backward, scatter, self.layers)
        exposed = float(drained_time(drained, work, embedding.backward, scatter_embedding, 1)) - work
        half = sharded_bytes(head.parameters, recipe.gradient, ranks) / 2
        tied = 2 * transfer_time(delay, busy_time(half, link.bandwidth))
        assert exposed + tied == close(account["reduction"])

        parameters = self.layers * layer.parameters + embedding.parameters
        memory = self.result.problem.chip.levels[0].memories[0].read_bandwidth
        own = sharded_bytes(parameters, recipe.gradient, ranks)
        reduced = [
            collective_time(HOPS, axis.link.latency, count - 1, 4, axis.link.bandwidth)
            for axis, count in ((self.rail, ranks), (self.node, plan.model))
        ]
        norm = busy_time(own, memory) + total(reduced)
        assert norm == close(account["norm"])

        extra, updated = EXTRA_OPTIMIZER_BYTES_PER_PARAMETER, parameters / ranks
        moved = optimizer_traffic(updated, recipe.gradient, recipe.state, recipe.weight) + extra * updated
        assert busy_time(moved, memory) == close(account["step"])
        gather, gather_embedding = (over_rail(part, recipe.weight) for part in (layer, embedding))
        gathers = self.layers * gather + gather_embedding
        assert gathers == close(account["gather"])

        time = total([passes, crossings * transfer, exposed, tied, norm, busy_time(moved, memory), gathers])
        assert time == close(self.result.cost.time)
        t, fast = format_time, f"{format_rate(link.bandwidth)}"
        return [
            step(
                "passes, with the bubble", flow_shop_time, f"W = {t(all_stages)}, w = {t(slowest)}, n = {microbatches}", t(passes)
            ),
            step(
                "transfers between stages",
                transfer_time,
                f"{crossings} x ({t(delay)} + {format_bytes(sent)} / {fast})",
                t(crossings * transfer),
            ),
            step(
                "exposed sum of gradients",
                drained_time,
                f"{self.layers} layers: r = w = {t(layer.backward)}, c = {t(scatter)}; "
                f"then the embedding: c = {t(scatter_embedding)}; less {t(work)} of work",
                t(exposed),
            ),
            step(
                "gradients of the tied table",
                transfer_time,
                f"2 x ({t(delay)} + {format_bytes(half)} / {fast})",
                t(tied),
            ),
            step(
                "norm of the gradients",
                busy_time,
                f"{format_bytes(own)} / {format_rate(memory)}, and {t(total(reduced))} for two all-reduces",
                t(norm),
            ),
            step(
                "optimizer step",
                optimizer_traffic,
                f"{updated:,.0f} x ({recipe.gradient} + 2 x {recipe.state} + {recipe.weight} + {extra}) B / "
                f"{format_rate(memory)}",
                t(busy_time(moved, memory)),
            ),
            step(
                "gathering updated parameters",
                collective_time,
                f"{self.layers} x {t(gather)} for layers, {t(gather_embedding)} for the embedding",
                t(gathers),
            ),
            step("iteration", total, "the sum", t(time)),
        ]

    def microbatch(self) -> tuple[float, float]:
        """Forward and backward pass of one microbatch through all stages, and through the last, which is the slowest [s]."""
        embedding, layer, head = self.parts
        stages = self.result.plan.pipeline.stages
        last = self.layers * layer.time + head.time
        assert head.time > embedding.time
        return embedding.time + stages * self.layers * layer.time + head.time, last

    def stage(self) -> list[str]:
        embedding, layer, head = self.parts
        all_stages, slowest = self.microbatch()
        t, count = format_time, self.layers * self.result.plan.pipeline.stages
        return [
            step("a layer", total, f"{t(layer.forward)} forward + {t(layer.backward)} backward", t(layer.time)),
            step("w, the last stage", total, f"{self.layers} x {t(layer.time)} + {t(head.time)} for the head", t(slowest)),
            step(
                "W, all stages",
                total,
                f"{t(embedding.time)} for the embedding + {count} x {t(layer.time)} + {t(head.time)}",
                t(all_stages),
            ),
        ]

    def layer(self) -> list[str]:
        """The forward pass of a layer as a sum over kernels and collectives."""
        plan, problem, part = self.result.plan, self.result.problem, self.parts[1]
        graph = training_graphs(problem.shape, plan.microbatch, problem.sequence, plan.recompute, plan.fused)[1]
        times = {item.op: item.time for item in part.sharding.ops if graph.found.passes[item.op] == "forward"}
        searched = ("queries", "values", "output", "up", "down")
        assert all(op_mapping(self.result, name).cost is not None for name in searched)
        others = total([time for name, time in times.items() if name not in (*searched, "activate")])
        gathers = [
            move for name in ("queries", "up") for move in op_mapping(self.result, name).movements if "before" in move.when
        ]
        sums = [move for name in ("output", "down") for move in op_mapping(self.result, name).movements if "after" in move.when]
        assert [move.kind for move in (*gathers, *sums)] == ["all-gather"] * 2 + ["reduce-scatter"] * 2
        moved = total([move.time for move in (*gathers, *sums)])
        time = total([*times.values(), moved])
        assert time == close(part.forward)
        t, best, formula = format_time, "its best mapping", "formula, at data sheet rates"
        return [
            row("`queries`, with keys and values", best, t(times["queries"])),
            row("`values`, the attention core", best, t(times["values"])),
            row("`output`", best, t(times["output"])),
            row("**`up`**", best, f"**{t(times['up'])}**"),
            row("`activate`", formula, t(times["activate"])),
            row("`down`", best, t(times["down"])),
            row("norms, dropout, residuals, copies", formula, t(others)),
            row("two all-gathers, two reduce-scatters", f"{len(gathers + sums)} x {t(gathers[0].time)}", t(moved)),
            row("forward pass of a layer", "the sum", t(time)),
        ]

    def share(self) -> list[str]:
        plan, shape, product = self.result.plan, self.result.problem.shape, self.product
        tokens, ranks, rounds = self.result.cost.tokens, plan.data, plan.pipeline.microbatches
        assert (product.rows, product.columns) == (tokens // (ranks * rounds), shape.hidden // plan.model)
        assert (product.depth, self.layers) == (shape.model, shape.layers // plan.pipeline.stages)
        return [
            row("m, tokens", tokens, f"{ranks} data-parallel ranks x {rounds} microbatches", product.rows),
            row("n, hidden width", shape.hidden, f"{plan.model} chips of a node", product.columns),
            row("k, model width", shape.model, "none", product.depth),
            row("layers", shape.layers, f"{plan.pipeline.stages} stages", self.layers),
        ]

    def collective(self) -> list[str]:
        (move,) = (move for move in self.up.movements if move.when == "before")
        ranks, link = self.node.size, self.node.link
        assert move.bytes == self.product.rows * self.product.depth * WORD
        chunk = move.bytes / ranks
        time = collective_time(HOPS, link.latency, ranks - 1, chunk, link.bandwidth)
        assert time == close(move.time)
        bound = gather_bound(ranks, move.bytes, link.bandwidth)
        each, fast = format_time(link.latency), format_rate(link.bandwidth)
        numbers = f"h = {HOPS}, lambda = {each}, q = {ranks - 1}, c = {format_bytes(chunk)}, b = {fast}"
        return [
            step("all-gather", collective_time, numbers, format_time(time)),
            step("its lower bound", gather_bound, f"n = {ranks}, S = {format_bytes(move.bytes)}, B = {fast}", format_time(bound)),
        ]

    @cached_property
    def tiles(self) -> dict[str, list[tuple[int, int]]]:
        """By dim, extent and tile of each loop inside the splits over clusters."""
        now = {"m": self.product.rows, "n": self.product.columns, "k": self.product.depth}
        found: dict[str, list[tuple[int, int]]] = {}
        for _, each in walk(self.tree):
            if isinstance(each, Temporal):
                found.setdefault(each.dim, []).append((now[each.dim], each.tile))
            if isinstance(each, Temporal | Spatial):
                now[each.dim] = each.tile
        return found

    def cut(self, dim: str) -> tuple[int, int]:
        ((extent, tile),) = self.tiles[dim]
        return extent, tile

    @property
    def rounds(self) -> int:
        return prod(int(visits(extent, [Split(tile, True)])) for extent, tile in map(self.cut, "nmk"))

    @property
    def engine(self) -> MatrixEngine:
        engine = self.result.problem.chip.matrix
        assert engine is not None
        return engine

    @property
    def clusters(self) -> int:
        return prod(axis.size for level in self.result.problem.chip.levels if level.network for axis in level.network.axes)

    def loops(self) -> list[str]:
        found = []
        for dim in "nmk":
            extent, tile = self.cut(dim)
            found.append(
                step(f"`for {dim} by {tile}`", visits, f"e = {extent:,}, t = {tile:,}", f"{visits(extent, [Split(tile, True)])}")
            )
        return [*found, row("rounds", "", "the product", self.rounds)]

    def resources(self) -> list[str]:
        busy, chip, t = self.estimate.busy, self.result.problem.chip, format_time
        (rows, m), (columns, n), (_, k) = (self.cut(dim) for dim in "mnk")
        a, b, c = m * k * WORD, k * n * WORD, m * n * WORD
        port = next(level.network.port for level in chip.levels if level.network)
        memory, inputs, outputs = chip.memory("dram"), chip.memory("ibuf"), chip.memory("obuf")
        assert port is not None
        drained = self.clusters * rows * columns * WORD
        through_bus = self.rounds * (a + self.clusters * b) + drained
        assert busy_time(self.rounds * (a + b), port.bandwidth) == close(busy["port", "cluster", "down"])
        assert busy_time(through_bus, memory.read_bandwidth) == close(busy["bus", "dram"])
        assert busy_time(self.rounds * a, inputs.write_bandwidth) == close(busy["write", "ibuf"])
        assert busy_time(self.rounds * c, outputs.write_bandwidth) == close(busy["write", "obuf"])
        assert max(busy, key=lambda each: busy[each]) == ("engine", "matrix")
        size, rate, times = format_bytes, format_rate, f"{self.rounds} x"
        return [
            step(
                "port of a cluster",
                busy_time,
                f"{times} ({size(a)} of A + {size(b)} of B) / {rate(port.bandwidth)}",
                t(busy["port", "cluster", "down"]),
            ),
            step(
                "bus of the DRAM",
                busy_time,
                f"({times} ({size(a)} of A + {self.clusters} x {size(b)} of B) + {size(drained)} of C) / "
                f"{rate(memory.read_bandwidth)}",
                t(busy["bus", "dram"]),
            ),
            step(
                "writes to `ibuf`",
                busy_time,
                f"{times} {size(a)} of A / {rate(inputs.write_bandwidth)}",
                t(busy["write", "ibuf"]),
            ),
            step(
                "writes to `obuf`",
                busy_time,
                f"{times} {size(c)} of C / {rate(outputs.write_bandwidth)}",
                t(busy["write", "obuf"]),
            ),
        ]

    def phase(self) -> list[str]:
        chip, t, size = self.result.problem.chip, format_time, format_bytes
        (_, m), (_, n), (_, k) = (self.cut(dim) for dim in "mnk")
        port = next(level.network.port for level in chip.levels if level.network)
        assert port is not None
        first, last = (m + n) * k * WORD, m * n * WORD
        bandwidth = chip.memory("dram").write_bandwidth
        up, down = busy_time(first, port.bandwidth), busy_time(self.clusters * last, bandwidth)
        work = self.estimate.busy["engine", "matrix"]
        longest = max(float(time) for resource, time in self.estimate.busy.items() if resource[0] != "engine")
        time = phase_time(1, up, down, work, [longest])
        assert time == close(float(self.estimate.time)) == close(self.up.time)
        return [
            step("U, first fills", busy_time, f"{size(first)} / {format_rate(port.bandwidth)}", t(up)),
            step("V, last drains", busy_time, f"{self.clusters} x {size(last)} / {format_rate(bandwidth)}", t(down)),
            step("the product", phase_time, f"n = 1, W = {t(work)}, b = {t(longest)}", t(time)),
        ]

    def array(self) -> list[str]:
        engine = self.engine
        (rows, m), (columns, n), (depth, k) = (self.cut(dim) for dim in "mnk")
        down = folds(depth, [Split(k, True)], engine.rows)
        across = folds(columns, [Split(n, True)], engine.cols)
        tiles = visits(rows, [Split(m, True)])
        cycles = systolic_cycles(down * across, rows, tiles, engine.rows, engine.cols, 0)
        assert engine.prefetch
        assert cycles / engine.clock == close(float(self.estimate.busy["engine", "matrix"]))
        one = systolic_cycles(1, m, 1, engine.rows, engine.cols, 0)
        r, c = engine.rows, engine.cols
        return [
            step("folds of k on the rows", folds, f"e = {depth:,}, t = {k}, w = {r}", f"{down}"),
            step("folds of n on the columns", folds, f"e = {columns}, t = {n}, w = {c}", f"{across}"),
            step("one round", systolic_cycles, f"F = 1, S = {m:,}, T = 1, R = {r}, C = {c}, R_load = 0", f"{one:,} cycles"),
            step(
                "all rounds",
                systolic_cycles,
                f"F = {down} x {across}, S = {rows:,}, T = {tiles}, R = {r}, C = {c}, R_load = 0",
                f"{cycles:,} cycles",
            ),
            row(
                "W of the product",
                "",
                f"{cycles:,} cycles / {format_frequency(engine.clock)}",
                format_time(cycles / engine.clock),
            ),
        ]

    def back(self) -> list[str]:
        """From one multiply-accumulate to the iteration."""
        plan, engine, macs, t = self.result.plan, self.engine, self.product.macs, format_time
        assert engine.rate["bf16"] == 1
        elements = self.clusters * engine.rows * engine.cols
        each, remainder = divmod(macs, elements)
        m = self.cut("m")[1]
        assert remainder == 0
        assert each == self.rounds * m
        assert self.estimate.work() == {"mac": macs}
        one = int(systolic_cycles(1, m, 1, engine.rows, engine.cols, 0))
        work = float(self.estimate.busy["engine", "matrix"])
        assert each * one / m / engine.clock == close(work)
        times = self.layers * plan.pipeline.microbatches
        stage = times * self.up.time
        return [
            row("one multiply-accumulate", "one cycle", t(1 / engine.clock)),
            row("all that one element does", f"{self.rounds} rounds x {m:,} rows", t(each / engine.clock)),
            row("with the skew of the array", f"x {one:,} / {m:,}", t(work)),
            row("with first fills and last drains", f"+ {t(self.up.time - work)}", t(self.up.time)),
            row("in the iteration", f"{self.layers} layers x {plan.pipeline.microbatches} microbatches", t(stage)),
        ]

    def statements(self) -> list[str]:
        """What the text says in numbers."""
        result, plan = self.result, self.result.plan
        engine, problem = self.engine, result.problem
        elements = self.clusters * engine.rows * engine.cols
        m, one = self.cut("m")[1], int(systolic_cycles(1, self.cut("m")[1], 1, engine.rows, engine.cols, 0))
        share = self.layers * plan.pipeline.microbatches * self.up.time / result.cost.time
        peak = self.product.macs / elements / engine.clock / self.up.time
        mapped = parse(self.shown)
        spread = {each.axis: each.tile for _, each in walk(mapped) if isinstance(each, Spatial)}
        assert spread["y"] == self.cut("n")[0]
        return [
            f"{problem.system.chips:,} chips",
            f"{plan.model} chips share the ops of a layer (TP with SP), {plan.pipeline.stages} stages (PP), {plan.data} "
            f"data-parallel ranks (DP) with the optimizer's state sharded over them (ZeRO {plan.sharded.value})",
            f"{problem.batch} sequences of {problem.sequence:,} tokens",
            f"{plan.pipeline.microbatches} microbatches of {plan.microbatch} sequence",
            f"{self.clusters} clusters, each with an array of {engine.rows} x {engine.cols}",
            f"{self.product.rows:,} x {self.cut('n')[0]} x {self.product.depth:,}",
            f"{self.product.macs:,} multiply-accumulates on {elements:,} elements",
            f"{m:,} of {one:,} cycles",
            f"{peak:.1%} of the peak".replace("%", " %"),
            f"{share:.1%} of the iteration".replace("%", " %"),
        ]


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Worked:
    folder = tmp_path_factory.mktemp("worked")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "pod.yaml").write_text(block("yaml"), encoding="utf-8")
        outcomes = []
        for line in block("console").replace("\\\n", " ").splitlines():
            sign, program, *words = shlex.split(line)
            assert (sign, program) == ("$", "halley")
            outcomes.append(halley(*words))
            assert outcomes[-1].code == 0, outcomes[-1].err
        result = load(folder / "plan.json").value
    assert isinstance(result, TrainingResult)
    return Worked(result, outcomes[-1].out)


TABLES = ("iteration", "stage", "layer", "share", "collective", "loops", "resources", "phase", "array", "back")
"""Methods of `Worked` that compute the tables of the page, in its order."""


def tables(text: str) -> list[list[str]]:
    """Rows of each table, without its head."""
    return [found.splitlines()[2:] for found in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)]


@pytest.mark.medium
@pytest.mark.parametrize("place", range(len(TABLES)), ids=TABLES)
def test_the_tables_follow_from_the_plan(worked: Worked, place: int) -> None:
    found = tables(PAGE)
    assert len(found) == len(TABLES)
    assert found[place] == getattr(worked, TABLES[place])()


@pytest.mark.medium
def test_the_mapping_is_that_of_the_plan(worked: Worked) -> None:
    assert block("text") == worked.shown


NAMES = ("GPT-3 175B", "1F1B", "`x2`")
"""Names with digits."""


def without(text: str, statements: Iterable[str]) -> str:
    for each in statements:
        assert each in text, each
        text = text.replace(each, "")
    return text


@pytest.mark.medium
def test_every_other_figure_follows_from_the_plan(worked: Worked) -> None:
    prose = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    prose = re.sub(r"^(?:\||#).*$", "", prose, flags=re.MULTILINE)
    prose = " ".join(re.sub(r"\]\(.*?\)", "]", prose).split())
    rest = without(prose, [*worked.statements(), *NAMES])
    assert not re.findall(r"\S*\d\S*", rest)
