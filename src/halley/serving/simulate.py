"""The event simulation of a deployment: requests one by one, step by step, with percentiles of what their users see.

Every engine (`halley.serving.steady`) has the requests that a round robin gives it. Memory does not grow with the number of
requests: they are read in blocks, and results go into histograms unless all of them are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault, Infeasible
from halley.optim.switch import CompiledLoops
from halley.serving.events import loop
from halley.serving.events import state as at
from halley.serving.events.state import EngineState, RequestBlock, StepTables, StepTerms
from halley.serving.memory import ServingMemory
from halley.serving.software import SWAP
from halley.serving.speculation import Acceptance
from halley.serving.steady import front_end
from halley.serving.step import StepModel

Array = NDArray[np.float64]

SWITCH = CompiledLoops("halley.serving.events.compiled", load_after=2.0)
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
    return StepTables(by_tokens, by_rows, contexts, decode, step.prefill.rows, step.prefill.columns, prefill, step.launches)


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
    own, swap, software = step_tables(step), swapping(step, memory), step.software
    draft = own if step.draft is None else step_tables(step.draft)
    chances = np.zeros(0) if acceptance is None else acceptance.chances(step.width - 1)
    host = np.array([software.step, software.user, swap.page, swap.start])
    terms = StepTerms(own, draft, chances, host, front=0.0)
    busy = min(engines, concurrency) if concurrency else engines
    runs = []
    for number in range(busy):
        share = concurrency // busy + (number < concurrency % busy)
        settings = _settings(step, memory, share, prefix, cached, swap.pages)
        runs.append(_engine(found, rows if keep else None, step, memory, terms, settings, number))
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


def _settings(
    step: StepModel, memory: ServingMemory, concurrency: int, prefix: int, cached: bool, host_pages: int
) -> NDArray[np.int64]:
    """The settings of the event loop."""
    software = step.software
    settings = np.zeros(at.SETTINGS, dtype=np.int64)
    settings[at.BUDGET], settings[at.USERS], settings[at.PAGE] = software.budget, software.users, software.page
    settings[at.GRAPHS], settings[at.PREFIX], settings[at.USERS_LIMIT] = software.graphs, prefix, concurrency
    settings[at.CACHED_INPUT], settings[at.RECEIVE] = cached, software.receive
    settings[at.WAIT_STEPS], settings[at.WAIT_TOKENS] = software.wait_steps, math.ceil(software.wait_share * software.budget)
    settings[at.HOST_PAGES], settings[at.WIDTH] = host_pages, step.width
    settings[at.STATE], settings[at.GROWS] = state_pages(memory), memory.grows
    return settings


def _new_engine(memory: ServingMemory, settings: NDArray[np.int64], number: int) -> EngineState:
    """An engine without sequences, which has a ``number``."""
    integers, prefix = np.zeros(at.INTEGERS, dtype=np.int64), int(settings[at.PREFIX])
    # pages of the common prefix, and the state behind it
    shared = prefix // int(settings[at.PAGE]) * int(settings[at.GROWS]) + (int(settings[at.STATE]) if prefix else 0)
    integers[at.FREE], integers[at.NEWEST], integers[at.SEED] = engine_pages(memory) - shared, -1, number + 1
    count = 2 * int(settings[at.USERS]) + 2
    slots = np.zeros((count, at.COLUMNS), dtype=np.int64)
    slots[:, at.AFTER] = np.arange(1, count + 1)
    slots[-1, at.AFTER] = -1
    return EngineState(
        integers=integers,
        floats=np.zeros(at.FLOATS),
        settings=settings,
        slots=slots,
        times=np.zeros((count, 3)),
        prefilling=np.zeros(count, dtype=np.int64),
        stack=np.zeros(count, dtype=np.int64),
        calendar=np.full(2, -1, dtype=np.int64),
        remainders=np.zeros(settings[at.PAGE], dtype=np.int64),
        results=np.zeros((BLOCK + count, 3), dtype=np.int64),
        result_times=np.zeros((BLOCK + count, 4)),
    )


def _engine(
    found: Simulated,
    rows: list[Array] | None,
    step: StepModel,
    memory: ServingMemory,
    terms: StepTerms,
    settings: NDArray[np.int64],
    number: int,
) -> Generator[None, Requests | None, None]:
    """One engine, which is sent blocks of requests, and None behind the last. ``rows``: where all results go, if anywhere."""
    engine, requests = _new_engine(memory, settings, number), RequestBlock(np.zeros(0), *np.zeros((2, 0), dtype=np.int64))
    integers, floats, concurrency = engine.integers, engine.floats, int(settings[at.USERS_LIMIT])
    terms = terms._replace(front=front_end(step, concurrency) if concurrency else 0.0)
    status, ended = loop.WANTED, False
    while True:
        if status == loop.WANTED and not ended:
            block = yield
            ended = block is None
            engine, requests = _with_block(engine, requests, block)
            if not ended and len(requests.arrivals) <= concurrency + 1:
                continue
        settings[at.MORE] = not ended
        compiled = SWITCH.loops(ahead=SECONDS_PER_STEP * (len(requests.arrivals) - int(integers[at.HEAD])))
        run: Any = loop.run if compiled is None else compiled.run
        before = int(integers[at.STEPS])
        status = run(engine, requests, terms)
        SWITCH.spent += SECONDS_PER_STEP * (int(integers[at.STEPS]) - before)
        written = int(integers[at.WRITTEN])
        if written:
            # requests that arrive by themselves meet as many others as there are on average
            mean = float(floats[at.BUSY] / floats[at.NOW])
            found.front = terms.front if concurrency else front_end(step, mean)
            engine.result_times[:written, 0] -= found.front
        _count(found, rows, engine.results[:written], engine.result_times[:written])
        integers[at.WRITTEN] = 0
        if status == loop.TOO_FEW_PAGES:
            place = int(integers[at.BASE] + integers[at.HEAD]) + 1
            where = f"simulation of {step.model.shape.name}, request {place} or before"
            need = f"a context of more than the {memory.tokens:,} tokens of the cache"
            raise Infeasible(Fault(where, f"at most {memory.tokens:,} tokens", need, "use shorter requests or more chips"))
        if status == loop.ALL_ENDED:
            break
    found.time = max(found.time, float(floats[at.NOW]))
    found.steps += int(integers[at.STEPS])
    found.preempted += int(integers[at.PREEMPTED])
    found.swapped += int(integers[at.SWAPPED])
    found.peak = max(found.peak, int(integers[at.PEAK]))


def _with_block(engine: EngineState, requests: RequestBlock, block: Requests | None) -> tuple[EngineState, RequestBlock]:
    """The next block behind the requests that are left; those that are dealt with make way."""
    integers = engine.integers
    head = int(integers[at.HEAD])
    left = [values[head:].copy() for values in requests]
    if block is not None:
        more = block.arrivals, block.inputs, block.outputs
        left = [np.concatenate([own, new]) for own, new in zip(left, more, strict=True)]
    requests = RequestBlock(*left)
    longest = int(requests.outputs.max(initial=0)) + 2
    if longest > len(engine.calendar):
        engine = engine._replace(calendar=_longer(engine.calendar, longest, int(integers[at.STEP]), engine.slots))
    integers[at.HEAD], integers[at.BASE] = 0, integers[at.BASE] + head
    integers[at.RELEASED] -= head * (engine.settings[at.USERS_LIMIT] > 0)
    return engine, requests


def _longer(calendar: NDArray[np.int64], length: int, step: int, slots: NDArray[np.int64]) -> NDArray[np.int64]:
    """The calendar with more steps."""
    length = max(length, 2 * len(calendar))
    made, before = np.full(length, -1, dtype=np.int64), len(calendar)
    for offset in range(before):
        first = int(calendar[(step + offset) % before])
        made[(step + offset) % length] = first
        while first >= 0:
            slots[first, at.ENTRY] = (step + offset) % length
            first = int(slots[first, at.AFTER])
    return made


def _count(found: Simulated, rows: list[Array] | None, results: NDArray[np.int64], times: Array) -> None:
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
    if rows is not None:
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
