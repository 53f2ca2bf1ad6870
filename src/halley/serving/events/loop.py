"""The steps of an engine, one after the other.

Python that numba compiles as it stands (`halley.serving.events.compiled`). A step costs the same whether it has one sequence
or a thousand: sequences that decode end at known steps (a calendar), and need their next page at steps that only their length
modulo the page decides (a count for each remainder).

Rules of a step, as in vLLM: each decoding sequence gets one token; prompts that are under way continue, then waiting requests
start, first come first served, as far as the tokens of the step, the sequences of a batch and free pages go. Where a decoding
sequence needs a page and none is free, the sequence that was admitted last is preempted: its pages are freed, and it waits in
front of all others to compute its tokens again. Where sequences are swapped instead, its pages move to the memory of the host,
and back when there are enough free ones; the step waits for both. If the host's memory is full, it computes its tokens again.

With speculation a step is a round: each decoding sequence has ``width`` tokens verified, for which it needs pages beforehand,
and gets as many as are accepted. That number is drawn, so sequences are followed one by one.

Recurrent layers keep a state of each sequence, which takes the same pages whatever its length, from its first token to its last.

A server may receive requests only once in so many steps, and after each step with prompts. It may also make new prompts wait
while other sequences decode, until the step has enough tokens or the prompts have waited for so many steps.
"""

from __future__ import annotations

from halley.serving.events import state as at
from halley.serving.events.sequences import (
    accept,
    end_decoding,
    finish,
    hold_pages,
    link_newest,
    pages_of,
    pages_of_step,
    pages_wanted,
    start_decoding,
    stop_decoding,
    unlink,
)
from halley.serving.events.state import EngineState, RequestBlock, StepTerms
from halley.serving.events.times import prompt_time, step_time

LARGE_JUMP = 256
"""Decode steps at most that are taken together while nothing else happens."""
ALL_ENDED, WANTED, FULL, TOO_FEW_PAGES = 0, 1, 2, -1
"""Why the loop returns: all requests of the block have ended, more requests are wanted, the results are full, or a request needs
more pages than there are."""


def run(engine: EngineState, requests: RequestBlock, terms: StepTerms) -> int:
    """Steps until there is a reason to return."""
    integers, settings = engine.integers, engine.settings
    while True:
        if integers[at.WRITTEN] + settings[at.USERS] >= len(engine.results):
            return FULL
        if send(engine, requests, terms.front):
            return WANTED
        if receive(engine, requests):
            if integers[at.HEAD] >= available(engine, requests):
                return ALL_ENDED
            head = requests.arrivals[integers[at.HEAD]]
            if head > engine.floats[at.NOW]:
                engine.floats[at.NOW] = head
                continue
        if not begin(engine):
            return TOO_FEW_PAGES
        continue_prompts(engine, terms)
        if must_wait(engine, requests):
            integers[at.HELD] = 1
        while admit(engine, requests, terms):
            pass
        if integers[at.DECODING] == 0 and integers[at.PROMPTS] == 0:
            if not restart_newest(engine):
                return TOO_FEW_PAGES
            continue
        advance(engine, requests, terms)
        if settings[at.WIDTH] > 1:
            accept(engine, terms.chances)
        else:
            end_decoding(engine)
        if integers[at.ENDED] > 0:
            end_prompts(engine)


def send(engine: EngineState, requests: RequestBlock, front: float) -> bool:
    """A closed loop sends the next request when one ends. Returns whether a request of the next block may be due."""
    integers, settings, now = engine.integers, engine.settings, engine.floats[at.NOW]
    total, more = len(requests.arrivals), settings[at.MORE] > 0
    if settings[at.USERS_LIMIT] == 0:
        return bool(more and (integers[at.HEAD] == total or requests.arrivals[total - 1] <= now))
    under_way = integers[at.DECODING] + integers[at.PREFILLING] + integers[at.STACKED]
    while integers[at.RELEASED] < total and integers[at.RELEASED] - integers[at.HEAD] + under_way < settings[at.USERS_LIMIT]:
        requests.arrivals[integers[at.RELEASED]] = now + front
        integers[at.RELEASED] += 1
    return bool(more and integers[at.RELEASED] == total)


def available(engine: EngineState, requests: RequestBlock) -> int:
    """Requests of the block that have been sent, or will be at a known time."""
    return int(engine.integers[at.RELEASED]) if engine.settings[at.USERS_LIMIT] > 0 else len(requests.arrivals)


def received(engine: EngineState, requests: RequestBlock, place: int) -> bool:
    """Whether the server has a request of the block already."""
    return place < available(engine, requests) and bool(requests.arrivals[place] <= engine.floats[at.LAST_RECEIPT])


def receive(engine: EngineState, requests: RequestBlock) -> bool:
    """The server receives requests, once in so many steps, or at once where it is idle. Returns whether it is idle."""
    integers, floats = engine.integers, engine.floats
    idle = integers[at.DECODING] == 0 and integers[at.PREFILLING] == 0 and integers[at.STACKED] == 0
    if idle or integers[at.SINCE_RECEIPT] % engine.settings[at.RECEIVE] == 0:
        floats[at.LAST_RECEIPT] = floats[at.NOW]
    return bool(idle)


def begin(engine: EngineState) -> bool:
    """A step begins: sequences that decode get their pages, for which the newest make way. Returns False where none can."""
    integers, settings = engine.integers, engine.settings
    integers[at.PROMPT_TOKENS], integers[at.PROMPTS], integers[at.ENDED], integers[at.HELD] = 0, 0, 0, 0
    integers[at.PAGES_OUT], integers[at.PAGES_IN] = 0, 0
    engine.floats[at.PREFILL_TIME], engine.floats[at.DRAFT_PREFILL_TIME] = 0.0, 0.0
    need = pages_wanted(engine)
    while need > integers[at.FREE] and integers[at.DECODING] > 0:
        if not preempt(engine):
            return False
        need = pages_wanted(engine)
    integers[at.FREE] -= need
    if settings[at.WIDTH] > 1:
        hold_pages(engine)
    integers[at.LEFT_TOKENS] = settings[at.BUDGET] - integers[at.DECODING] * settings[at.WIDTH]
    return True


def preempt(engine: EngineState) -> bool:
    """The sequence that began to decode last goes to the memory of the host, or will compute its tokens again. Returns whether
    there is one."""
    integers, slots = engine.integers, engine.slots
    slot = integers[at.NEWEST]
    while slot >= 0 and slots[slot, at.ENTRY] < 0:  # a prompt under way: it has no place in the calendar
        slot = slots[slot, at.OLDER]
    if slot < 0:
        return False
    freed = stop_decoding(engine, slot)
    unlink(engine, slot)
    integers[at.FREE] += freed
    if integers[at.IN_HOST] + freed <= engine.settings[at.HOST_PAGES]:
        slots[slot, at.AWAY], slots[slot, at.PAGES] = 1, freed
        integers[at.IN_HOST] += freed
        integers[at.SWAPPED] += 1
        integers[at.PAGES_OUT] += freed
    else:
        slots[slot, at.GOAL], slots[slot, at.DONE] = slots[slot, at.TOKENS] + 1, engine.settings[at.PREFIX]
        slots[slot, at.PAGES] = 0
    put_on_stack(engine, slot)
    return True


def put_on_stack(engine: EngineState, slot: int) -> None:
    """A sequence that was preempted waits in front of all others."""
    engine.stack[engine.integers[at.STACKED]] = slot
    engine.integers[at.STACKED] += 1
    engine.integers[at.PREEMPTED] += 1


def continue_prompts(engine: EngineState, terms: StepTerms) -> None:
    """Prompts under way get tokens of the step, in the order of their admission."""
    integers, slots = engine.integers, engine.slots
    for place in range(integers[at.PREFILLING]):
        slot = engine.prefilling[place]
        take = min(slots[slot, at.GOAL] - slots[slot, at.DONE], integers[at.LEFT_TOKENS])
        if take <= 0:
            continue
        wanted = pages_of(engine.settings, slots[slot, at.DONE] + take)
        extra = wanted - slots[slot, at.PAGES]
        if extra > integers[at.FREE]:
            integers[at.HELD] = 1
            continue
        integers[at.FREE] -= extra
        slots[slot, at.PAGES] = wanted
        take_tokens(engine, slot, take)
        prompt_time(engine, terms, take, slots[slot, at.DONE])


def take_tokens(engine: EngineState, slot: int, take: int) -> None:
    """The step has so many tokens of a prompt."""
    integers, slots = engine.integers, engine.slots
    slots[slot, at.DONE] += take
    integers[at.LEFT_TOKENS] -= take
    integers[at.PROMPT_TOKENS] += take
    integers[at.PROMPTS] += 1
    if slots[slot, at.DONE] == slots[slot, at.GOAL]:
        integers[at.ENDED] += 1


def must_wait(engine: EngineState, requests: RequestBlock) -> bool:
    """Whether new prompts wait for others to fill the step."""
    integers, settings = engine.integers, engine.settings
    if settings[at.WAIT_STEPS] == 0 or integers[at.DECODING] == 0 or integers[at.STACKED] > 0:
        return False
    tokens = integers[at.DECODING] * settings[at.WIDTH] + integers[at.PROMPT_TOKENS]
    place = integers[at.HEAD]
    while tokens < settings[at.WAIT_TOKENS] and received(engine, requests, place):
        tokens += requests.inputs[place]
        place += 1
    short = tokens < settings[at.WAIT_TOKENS]
    if short and place > integers[at.HEAD] and integers[at.WAITED] < settings[at.WAIT_STEPS]:
        integers[at.WAITED] += 1
        return True
    integers[at.WAITED] = 0
    return False


def admit(engine: EngineState, requests: RequestBlock, terms: StepTerms) -> bool:
    """The first that waits starts: the last that was preempted, or else the next request. Returns whether it does."""
    integers, settings, slots = engine.integers, engine.settings, engine.slots
    full = integers[at.DECODING] + integers[at.PREFILLING] >= settings[at.USERS]
    if full or integers[at.LEFT_TOKENS] <= 0 or integers[at.HELD] > 0:
        return False
    again = integers[at.STACKED] > 0
    slot = engine.stack[integers[at.STACKED] - 1] if again else -1
    if again and slots[slot, at.AWAY] == 1:
        return swap_in(engine, slot)
    if again:
        goal, done = slots[slot, at.GOAL], slots[slot, at.DONE]
    elif received(engine, requests, integers[at.HEAD]):
        goal = requests.inputs[integers[at.HEAD]]
        done = goal - 1 if settings[at.CACHED_INPUT] else min(settings[at.PREFIX], goal - 1)
    else:
        return False
    take = min(goal - done, integers[at.LEFT_TOKENS])
    wanted = pages_of(settings, done + take)
    if wanted > integers[at.FREE]:
        return False
    if again:
        integers[at.STACKED] -= 1
    else:
        slot = new_sequence(engine, requests)
    slots[slot, at.DONE], slots[slot, at.PAGES], slots[slot, at.ENTRY] = done, wanted, -1
    integers[at.FREE] -= wanted
    link_newest(engine, slot)
    engine.prefilling[integers[at.PREFILLING]] = slot
    integers[at.PREFILLING] += 1
    take_tokens(engine, slot, take)
    if again or not settings[at.CACHED_INPUT]:
        prompt_time(engine, terms, take, done + take)
    return True


def new_sequence(engine: EngineState, requests: RequestBlock) -> int:
    """The next request of the block gets a slot, which is returned."""
    integers, slots, times = engine.integers, engine.slots, engine.times
    slot, request = integers[at.SPARE], integers[at.HEAD]
    integers[at.SPARE] = slots[slot, at.AFTER]
    slots[slot, at.ID], slots[slot, at.FRESH] = integers[at.BASE] + request, 1
    slots[slot, at.GOAL], slots[slot, at.INPUT] = requests.inputs[request], requests.inputs[request]
    slots[slot, at.LEFT], slots[slot, at.OUTPUT] = requests.outputs[request], requests.outputs[request]
    times[slot, 0], times[slot, 2] = requests.arrivals[request], engine.floats[at.NOW]
    integers[at.HEAD] += 1
    return int(slot)


def swap_in(engine: EngineState, slot: int) -> bool:
    """The last sequence that was preempted comes back from the memory of the host, and decodes. Returns whether its pages are
    free."""
    integers, slots = engine.integers, engine.slots
    wanted = pages_of_step(engine, slot)
    if wanted > integers[at.FREE]:
        return False
    integers[at.STACKED] -= 1
    integers[at.PAGES_IN] += slots[slot, at.PAGES]
    integers[at.IN_HOST] -= slots[slot, at.PAGES]
    integers[at.FREE] -= wanted
    slots[slot, at.AWAY], slots[slot, at.PAGES] = 0, wanted
    link_newest(engine, slot)
    start_decoding(engine, slot)
    integers[at.LEFT_TOKENS] -= engine.settings[at.WIDTH]
    return True


def restart_newest(engine: EngineState) -> bool:
    """Prompts under way hold all pages, and none can go on: the newest starts again later. Returns whether there is another."""
    integers, slots = engine.integers, engine.slots
    slot = integers[at.NEWEST]
    if integers[at.PREFILLING] < 2 or slot < 0:
        return False
    integers[at.FREE] += slots[slot, at.PAGES]
    slots[slot, at.DONE], slots[slot, at.PAGES] = min(engine.settings[at.PREFIX], slots[slot, at.GOAL] - 1), 0
    unlink(engine, slot)
    kept = 0
    for place in range(integers[at.PREFILLING]):
        if engine.prefilling[place] != slot:
            engine.prefilling[kept] = engine.prefilling[place]
            kept += 1
    integers[at.PREFILLING] = kept
    put_on_stack(engine, slot)
    return True


def advance(engine: EngineState, requests: RequestBlock, terms: StepTerms) -> None:
    """Time goes on by the step, or by all steps until something changes."""
    integers, floats = engine.integers, engine.floats
    users = integers[at.DECODING]
    mean = floats[at.CACHED] / users + 1 if users > 0 else 0.0
    span = step_time(engine, terms, mean)
    jump = steps_ahead(engine, requests)
    if jump > 1:
        head = integers[at.HEAD]
        if head < available(engine, requests) and requests.arrivals[head] > floats[at.NOW]:  # an arrival ends the jump
            jump = max(1, min(jump, int((requests.arrivals[head] - floats[at.NOW]) / span)))
    for place in range(1, jump):
        integers[at.FREE] -= engine.remainders[(-(integers[at.STEP] + place)) % engine.settings[at.PAGE]]
    if jump > 1:
        span = (span + step_time(engine, terms, mean + jump - 1)) * jump / 2
    floats[at.NOW] += span
    floats[at.BUSY] += span * users
    floats[at.PAGES_TIME] += span * integers[at.FREE]
    if engine.settings[at.WIDTH] == 1:
        floats[at.CACHED] += float(users) * jump
    integers[at.STEP] += jump
    integers[at.STEPS] += jump
    integers[at.SINCE_RECEIPT] = 0 if integers[at.PROMPTS] > 0 else integers[at.SINCE_RECEIPT] + jump
    integers[at.PEAK] = max(integers[at.PEAK], users)


def steps_ahead(engine: EngineState, requests: RequestBlock) -> int:
    """Steps from the present one on that differ in nothing but the lengths of the sequences that decode."""
    integers, settings = engine.integers, engine.settings
    if integers[at.PROMPTS] > 0 or settings[at.WIDTH] > 1 or integers[at.PAGES_OUT] + integers[at.PAGES_IN] > 0:
        return 1
    head = integers[at.HEAD]
    if integers[at.STACKED] > 0 or integers[at.HELD] > 0 or received(engine, requests, head):
        return 1
    most = LARGE_JUMP
    if head < available(engine, requests) and requests.arrivals[head] <= engine.floats[at.NOW]:
        most = min(most, settings[at.RECEIVE] - integers[at.SINCE_RECEIPT] % settings[at.RECEIVE])
    step, page, length = integers[at.STEP], settings[at.PAGE], len(engine.calendar)
    asked = 0
    for place in range(most - 1):
        pages = engine.remainders[(-(step + place + 1)) % page]
        if engine.calendar[(step + place) % length] >= 0 or pages > integers[at.FREE] - asked:
            return place + 1
        asked += pages
    return int(most)


def end_prompts(engine: EngineState) -> None:
    """Prompts that are complete have their first token, and decode from the next step on."""
    integers, slots = engine.integers, engine.slots
    kept = 0
    for place in range(integers[at.PREFILLING]):
        slot = engine.prefilling[place]
        if slots[slot, at.DONE] < slots[slot, at.GOAL]:
            engine.prefilling[kept] = slot
            kept += 1
            continue
        if slots[slot, at.FRESH] == 1:
            engine.times[slot, 1] = engine.floats[at.NOW]
            slots[slot, at.FRESH] = 0
        left = slots[slot, at.LEFT] - 1
        if left <= 0:
            integers[at.FREE] += slots[slot, at.PAGES]
            finish(engine, slot)
            continue
        slots[slot, at.TOKENS], slots[slot, at.LEFT] = slots[slot, at.GOAL], left
        start_decoding(engine, slot)
    integers[at.PREFILLING] = kept
