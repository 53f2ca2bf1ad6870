"""The event simulation of a deployment: requests one by one, step by step, with percentiles of what their users see.

Every engine (`halley.serving.steady`) has the requests that a round robin gives it. Memory does not grow with the number of
requests: they are read in blocks, and results go into histograms unless all of them are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault, Infeasible
from halley.optim.switch import CompiledLoops
from halley.serving import event_loop as loop
from halley.serving.memory import ServingMemory
from halley.serving.software import SWAP
from halley.serving.speculation import Acceptance
from halley.serving.steady import front_end
from halley.serving.step import StepModel

Array = NDArray[np.float64]

SWITCH = CompiledLoops("halley.serving.event_loop_compiled", load_after=2.0)
"""Whether the loop runs compiled."""
SECONDS_PER_STEP = 2e-5
"""Time of one step of the loop without compilation, about."""
BLOCK = 1 << 15
"""Requests of a block."""
BINS_PER_OCTAVE = 32
"""Bins of a histogram by factor of two: a bin is 2.2 % wide."""
LEAST_TIME, MOST_OCTAVES = 1e-6, 40
"""Histograms of times from a microsecond to 13 days, in bins of 2.2 %."""


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests in order of arrival: ``arrivals`` [s], ``inputs`` and ``outputs`` [tokens], each [requests].

    Raises BadInput: lengths below 1, arrivals that are negative or out of order.
    """

    arrivals: Array
    inputs: NDArray[np.int64]
    outputs: NDArray[np.int64]

    def __post_init__(self) -> None:
        sizes = {len(self.arrivals), len(self.inputs), len(self.outputs)}
        if len(sizes) != 1:
            raise BadInput(Fault("requests", "as many arrivals as lengths", ", ".join(map(str, sorted(sizes)))))
        for name, values in (("input", self.inputs), ("output", self.outputs)):
            bad = np.flatnonzero(values < 1)
            if bad.size:
                raise BadInput(Fault(f"request {bad[0] + 1}, {name}", "at least 1 token", str(values[bad[0]])))
        late = np.flatnonzero(np.diff(self.arrivals) < 0)
        if late.size:
            text = f"{self.arrivals[late[0] + 1]:g} s after {self.arrivals[late[0]]:g} s"
            raise BadInput(Fault(f"request {late[0] + 2}, arrival", "requests in order of arrival", text, "sort the trace"))
        if len(self.arrivals) and not (self.arrivals[0] >= 0 and np.isfinite(self.arrivals[-1])):
            raise BadInput(Fault("request 1, arrival", "times from 0", f"{self.arrivals[0]:g}"))

    def __len__(self) -> int:
        return len(self.arrivals)


@dataclass(eq=False)
class TimeHistogram:
    """Counts of times [s] in bins of equal ratio, and their sum."""

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS_PER_OCTAVE * MOST_OCTAVES + 1, dtype=np.int64))
    total: float = 0.0

    def add(self, times: Array) -> None:
        """Count these times."""
        logs = np.log2(np.maximum(times, LEAST_TIME) / LEAST_TIME) * BINS_PER_OCTAVE
        self.counts += np.bincount(np.minimum(logs, len(self.counts) - 1).astype(np.int64), minlength=len(self.counts))
        self.total += float(times.sum())

    @property
    def mean(self) -> float:
        """Mean time [s]; 0 of none."""
        number = int(self.counts.sum())
        return self.total / number if number else 0.0

    def percentile(self, share: float) -> float:
        """The time [s] that a ``share`` (0 to 1) of all do not exceed, to half a bin.

        >>> made = TimeHistogram()
        >>> made.add(np.array([1.0, 2.0, 3.0, 4.0]))
        >>> f"{made.percentile(0.5):.1f}"
        '2.0'
        """
        sums = np.cumsum(self.counts)
        if not sums[-1]:
            return 0.0
        place = int(np.searchsorted(sums, max(share * sums[-1], 1)))
        return float(LEAST_TIME * 2 ** ((place + 0.5) / BINS_PER_OCTAVE))


@dataclass(eq=False)
class Simulated:
    """What a simulation found. ``ttft``, ``tpot``, ``latency``: histograms [s]; ``requests``, ``tokens``: that ended; ``time``
    [s] until the last ended; ``steps`` of all engines; ``preempted``: times that a request lost its place, ``swapped`` of them to
    the memory of the host; ``peak``: most sequences of one engine that decoded at a time; ``rows`` [requests, 7]: arrival, first
    and last token [s], input, output, number, first scheduled [s], if all were asked for; ``front`` [s]: time of a request in the
    front end."""

    ttft: TimeHistogram = field(default_factory=TimeHistogram)
    tpot: TimeHistogram = field(default_factory=TimeHistogram)
    latency: TimeHistogram = field(default_factory=TimeHistogram)
    requests: int = 0
    tokens: int = 0
    time: float = 0.0
    steps: int = 0
    preempted: int = 0
    swapped: int = 0
    peak: int = 0
    front: float = 0.0
    rows: Array | None = None

    @property
    def output(self) -> float:
        """Output tokens per second."""
        return self.tokens / self.time if self.time else 0.0


StepTables: TypeAlias = tuple[Array, Array, Array, Array, Array, Array, Array, float]
"""The terms of a step of one model [s]: by tokens [tokens], by sequences that get a token [sequences]; contexts, and at them
attention and updates of states of sequences that decode [sequences, contexts]; chunks and keys, and at them attention and scans
of a prompt [chunks, keys]; least time of a step of more tokens than a graph has."""


def step_tables(step: StepModel) -> StepTables:
    """The terms of a step at every number of tokens and sequences, without the draft."""
    software = step.software
    tokens = np.arange(software.budget + software.users * step.width + 2, dtype=np.float64)
    rows = np.arange(software.users * (step.width + 1) + 2, dtype=np.float64)
    users = np.arange(software.users + 2, dtype=np.float64)
    by_tokens = sum((line(tokens) for line in step.lines.values()), np.zeros(len(tokens)))
    by_rows = step.head(rows)
    prefill = step.prefill.values
    if step.model.shape.latent is not None:
        by_rows = by_rows + step.absorbed(rows)
        prefill = prefill + step.expanded(step.prefill.columns)[None, :]
    contexts = step.decode.columns
    decode = step.decode(users[:, None], contexts[None, :])
    if step.model.hybrid is not None:
        decode = decode + step.update(users * step.states_moved)[:, None]
        prefill = prefill + step.scan(step.prefill.rows)[:, None]
    decode = np.ascontiguousarray(decode)
    return by_tokens, by_rows, contexts, decode, step.prefill.rows, step.prefill.columns, prefill, step.launches


@dataclass(frozen=True, slots=True)
class Swapping:
    """Sequences that are preempted move to the memory of the host, which has capacity for so many ``pages`` of an engine: each
    takes ``page`` [s], all of a step together ``start`` [s] more. Without pages they are recomputed."""

    pages: int = 0
    page: float = 0.0
    start: float = 0.0


def swapping(step: StepModel, memory: ServingMemory) -> Swapping:
    """How an engine preempts. A page is that of all stages of a pipeline, which move theirs one after the other, and has the
    cache of a draft with it. Raises BadInput: sequences are to be swapped, and the system has no host."""
    system = step.network.system
    if step.software.preempt != SWAP:
        return Swapping()
    if system.host is None:
        remedy = "give 'host' in a system file, or preempt by 'recompute'"
        raise BadInput(Fault(f"swapping on {system.name}", "a host with memory and a link to it", "none", remedy))
    page = memory.page + (memory.draft.page if memory.draft is not None else 0.0)
    link = system.host.link
    return Swapping(int(system.host.capacity // page), page / min(link.bandwidth, system.host.bandwidth), link.latency)


def engine_pages(memory: ServingMemory) -> int:
    """Pages of an engine, each with its share of the cache of a draft."""
    if memory.draft is None:
        return memory.capacity_pages
    return int(memory.capacity_pages / (1 + memory.draft.page / memory.page))


def state_pages(memory: ServingMemory) -> int:
    """Pages of the state of a sequence, each with its share of the cache of a draft."""
    if memory.draft is None:
        return memory.state_pages
    held = memory.state_pages * memory.page + memory.draft.state_pages * memory.draft.page
    return math.ceil(held / (memory.page + memory.draft.page))


def simulate(
    step: StepModel,
    memory: ServingMemory,
    blocks: Iterable[Requests],
    engines: int = 1,
    concurrency: int = 0,
    prefix: int = 0,
    keep: bool = False,
    cached: bool = False,
    acceptance: Acceptance | None = None,
) -> Simulated:
    """Requests on ``engines`` equal engines. ``concurrency``: users of a closed loop in all, who ask for the next request as
    soon as one ends, whatever its arrival; 0: requests arrive when they say. ``prefix``: tokens of every prompt that the cache
    has already. ``cached``: prompts are in the cache already (a pool that decodes). ``keep``: all results, not histograms alone.
    ``acceptance``: of the tokens that the draft of the steps proposes, by which the tokens of a round are drawn; the same numbers
    in every run.

    Raises BadInput: speculation without its acceptance, or swapping without a host; Infeasible: a request that needs more of the
    cache than there is.
    """
    if (step.draft is None) != (acceptance is None):
        got = "an acceptance alone" if step.draft is None else "a draft alone"
        raise BadInput(Fault("simulation", "a draft and the acceptance of its tokens, or neither", got))
    found, rows = Simulated(), list[Array]()
    own = step_tables(step)
    models = own, own if step.draft is None else step_tables(step.draft)
    chances = np.zeros(0) if acceptance is None else acceptance.chances(step.width - 1)
    terms = models, chances, swapping(step, memory)
    busy = min(engines, concurrency) if concurrency else engines
    runs = []
    for number in range(busy):
        share = concurrency // busy + (number < concurrency % busy)
        runs.append(_engine(found, rows, step, memory, terms, share, prefix, keep, cached, number))
        next(runs[-1])
    first = 0
    for block in blocks:
        for number, run in enumerate(runs):
            run.send(_every(block, (number - first) % busy, busy))
        first += len(block)
    for run in runs:
        with suppress(StopIteration):
            run.send(None)
    if keep:
        table = np.concatenate(rows) if rows else np.zeros((0, 7))
        found.rows = table[np.argsort(table[:, 5], kind="stable")]
    return found


def _every(block: Requests, first: int, engines: int) -> Requests:
    """The requests of a block that one engine gets by a round robin."""
    if engines == 1:
        return block
    return Requests(block.arrivals[first::engines], block.inputs[first::engines], block.outputs[first::engines])


def _settings(step: StepModel, concurrency: int, prefix: int, cached: bool, host_pages: int) -> NDArray[np.int64]:
    """The settings of the event loop."""
    software = step.software
    settings = np.zeros(loop.SETTINGS, dtype=np.int64)
    settings[loop.BUDGET], settings[loop.USERS], settings[loop.PAGE] = software.budget, software.users, software.page
    settings[loop.GRAPHS], settings[loop.PREFIX], settings[loop.USERS_LIMIT] = software.graphs, prefix, concurrency
    settings[loop.CACHED_INPUT], settings[loop.RECEIVE] = cached, software.receive
    settings[loop.WAIT_STEPS], settings[loop.WAIT_TOKENS] = software.wait_steps, math.ceil(software.wait_share * software.budget)
    settings[loop.HOST_PAGES], settings[loop.WIDTH] = host_pages, step.width
    return settings


def _engine(
    found: Simulated,
    rows: list[Array],
    step: StepModel,
    memory: ServingMemory,
    terms: tuple[tuple[StepTables, StepTables], Array, Swapping],
    concurrency: int,
    prefix: int,
    keep: bool,
    cached: bool,
    number: int,
) -> Generator[None, Requests | None, None]:
    """One engine, which has a ``number``. It is sent blocks of requests, and None behind the last."""
    (target, draft), chances, swap = terms
    software, shape = step.software, step.model.shape
    users = software.users
    integers, floats = np.zeros(loop.INTEGERS, dtype=np.int64), np.zeros(loop.FLOATS)
    settings = _settings(step, concurrency, prefix, cached, swap.pages)
    # those of the common prefix, and the state behind it
    shared = prefix // software.page * memory.grows + (state_pages(memory) if prefix else 0)
    integers[loop.FREE], integers[loop.NEWEST], integers[loop.SEED] = engine_pages(memory) - shared, -1, number + 1
    settings[loop.STATE], settings[loop.GROWS] = state_pages(memory), memory.grows
    host = np.array([software.step, software.user, swap.page, swap.start])
    count = 2 * users + 2
    slots, times = np.zeros((count, loop.COLUMNS), dtype=np.int64), np.zeros((count, 3))
    slots[:, loop.AFTER] = np.arange(1, count + 1)
    slots[-1, loop.AFTER] = -1
    prefilling, stack = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    results, result_times = np.zeros((BLOCK + count, 3), dtype=np.int64), np.zeros((BLOCK + count, 4))
    remainders = np.zeros(software.page, dtype=np.int64)
    calendar = np.full(2, -1, dtype=np.int64)
    state = integers, floats, settings
    arrivals, lengths = np.zeros(0), np.zeros((2, 0), dtype=np.int64)
    ahead, status = concurrency + 1, 1
    front = front_end(step, concurrency) if concurrency else 0.0
    ended = False
    while True:
        if status == 1 and not ended:
            # requests that are dealt with make way for the next block
            head = int(integers[loop.HEAD])
            block = yield
            ended = block is None
            arrivals, lengths = arrivals[head:].copy(), lengths[:, head:].copy()
            if block is not None:
                arrivals = np.concatenate([arrivals, block.arrivals])
                lengths = np.concatenate([lengths, [block.inputs, block.outputs]], axis=1)
            longest = int(lengths[1].max(initial=0)) + 2
            if longest > len(calendar):
                calendar = _longer(calendar, longest, int(integers[loop.STEP]), slots)
            integers[loop.HEAD], integers[loop.BASE] = 0, integers[loop.BASE] + head
            integers[loop.RELEASED] -= head * (concurrency > 0)
            if not ended and len(arrivals) <= ahead:
                continue
        settings[loop.MORE] = not ended
        compiled = SWITCH.loops(ahead=SECONDS_PER_STEP * (len(arrivals) - int(integers[loop.HEAD])))
        run: Any = loop.run if compiled is None else compiled.run
        before = int(integers[loop.STEPS])
        status = run(
            *state, arrivals, lengths[0], lengths[1], slots, times, prefilling, stack, calendar, remainders, results,
            result_times, target, draft, chances, host, front,
        )  # fmt: skip
        SWITCH.spent += SECONDS_PER_STEP * (int(integers[loop.STEPS]) - before)
        written = int(integers[loop.WRITTEN])
        if written:
            # requests that arrive by themselves meet as many others as there are on average
            mean = float(floats[loop.BUSY] / floats[loop.NOW])
            found.front = front if concurrency else front_end(step, mean)
            result_times[:written, 0] -= found.front
        _count(found, rows, results[:written], result_times[:written], keep)
        integers[loop.WRITTEN] = 0
        if status == -1:
            place = int(integers[loop.BASE] + integers[loop.HEAD]) + 1
            where = f"simulation of {shape.name}, request {place} or before"
            need = f"a context of more than the {memory.tokens:,} tokens of the cache"
            raise Infeasible(Fault(where, f"at most {memory.tokens:,} tokens", need, "use shorter requests or more chips"))
        if status == 0:
            break
    found.time = max(found.time, float(floats[loop.NOW]))
    found.steps += int(integers[loop.STEPS])
    found.preempted += int(integers[loop.PREEMPTED])
    found.swapped += int(integers[loop.SWAPPED])
    found.peak = max(found.peak, int(integers[loop.PEAK]))


def _longer(calendar: NDArray[np.int64], length: int, step: int, slots: NDArray[np.int64]) -> NDArray[np.int64]:
    """The calendar with more steps."""
    length = max(length, 2 * len(calendar))
    made, before = np.full(length, -1, dtype=np.int64), len(calendar)
    for offset in range(before):
        first = int(calendar[(step + offset) % before])
        made[(step + offset) % length] = first
        while first >= 0:
            slots[first, loop.ENTRY] = (step + offset) % length
            first = int(slots[first, loop.AFTER])
    return made


def _count(found: Simulated, rows: list[Array], results: NDArray[np.int64], times: Array, keep: bool) -> None:
    """Adds results to the histograms."""
    if not len(results):
        return
    output = results[:, 2]
    found.ttft.add(times[:, 1] - times[:, 0])
    found.latency.add(times[:, 2] - times[:, 0])
    long = output > 1
    found.tpot.add((times[long, 2] - times[long, 1]) / (output[long] - 1))
    found.requests += len(results)
    found.tokens += int(output.sum())
    if keep:
        rows.append(np.column_stack([times[:, :3], results[:, 1], output, results[:, 0], times[:, 3]]))


def generated(
    count: int, rate: float, inputs: tuple[float, float], outputs: tuple[float, float], seed: int = 0, block: int = BLOCK
) -> Iterator[Requests]:
    """Requests with Poisson arrivals of ``rate`` [1/s] (0: all at once) and lengths uniform between two bounds each [tokens].

    >>> [len(block) for block in generated(5, 2.0, (8, 8), (4, 4), block=3)]
    [3, 2]
    """
    random, now = np.random.default_rng(seed), 0.0
    for first in range(0, count, block):
        size = min(block, count - first)
        gaps = random.exponential(1 / rate, size) if rate > 0 else np.zeros(size)
        arrivals = now + np.cumsum(gaps)
        now = float(arrivals[-1])
        lengths = [np.maximum(np.rint(random.uniform(*bounds, size)), 1).astype(np.int64) for bounds in (inputs, outputs)]
        yield Requests(arrivals, *lengths)
