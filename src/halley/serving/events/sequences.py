"""Sequences of an engine: their pages, their order of admission, the steps at which they decode and end."""

from __future__ import annotations

from typing import Any

from halley.serving.events import state as at
from halley.serving.events.state import EngineState

MULTIPLIER, MODULUS = 48271, 2**31 - 1
"""Of the random numbers s -> 48271 s mod (2^31 - 1) (Park, Miller and Stockmeyer, CACM 36, 1993)."""


def pages_of(settings: Any, tokens: int) -> int:
    """Pages of a sequence with so many tokens in the cache, beyond those of the common prefix: those of its state among them."""
    page = settings[at.PAGE]
    return int(settings[at.STATE] + settings[at.GROWS] * ((tokens + page - 1) // page - settings[at.PREFIX] // page))


def pages_of_step(engine: EngineState, slot: int) -> int:
    """Pages of a sequence with TOKENS in the cache while it is in a step: those that it may get have places."""
    tokens, left = engine.slots[slot, at.TOKENS], engine.slots[slot, at.LEFT]
    return pages_of(engine.settings, tokens + min(engine.settings[at.WIDTH], left))


def extra_pages(engine: EngineState, slot: int) -> int:
    """Pages that a sequence needs for a round, beyond those that it holds."""
    return int(max(pages_of_step(engine, slot) - engine.slots[slot, at.PAGES], 0))


def pages_wanted(engine: EngineState) -> int:
    """Pages that sequences that decode need for the tokens of the next step, beyond those that they hold."""
    slots = engine.slots
    if engine.settings[at.WIDTH] == 1:
        return int(engine.remainders[(-engine.integers[at.STEP]) % engine.settings[at.PAGE]])
    wanted, slot = 0, engine.integers[at.NEWEST]
    while slot >= 0:
        if slots[slot, at.ENTRY] >= 0:
            wanted += extra_pages(engine, slot)
        slot = slots[slot, at.OLDER]
    return int(wanted)


def hold_pages(engine: EngineState) -> None:
    """Gives all sequences that decode their pages for a round."""
    slots, slot = engine.slots, engine.integers[at.NEWEST]
    while slot >= 0:
        if slots[slot, at.ENTRY] >= 0:
            slots[slot, at.PAGES] += extra_pages(engine, slot)
        slot = slots[slot, at.OLDER]


def start_decoding(engine: EngineState, slot: int) -> None:
    """A sequence with TOKENS in the cache decodes from the next step (or the present one, if that has not begun) and gets LEFT
    more."""
    slots, calendar = engine.slots, engine.calendar
    step, tokens = engine.integers[at.STEP], slots[slot, at.TOKENS]
    engine.floats[at.CACHED] += tokens
    engine.integers[at.DECODING] += 1
    if engine.settings[at.WIDTH] > 1:
        slots[slot, at.ENTRY] = 0
        return
    # cached tokens at step s are START + s
    slots[slot, at.START] = tokens - step
    slots[slot, at.PHASE] = (tokens - step) % engine.settings[at.PAGE]
    engine.remainders[slots[slot, at.PHASE]] += engine.settings[at.GROWS]
    entry = (step + slots[slot, at.LEFT] - 1) % len(calendar)
    slots[slot, at.ENTRY], slots[slot, at.BEFORE], slots[slot, at.AFTER] = entry, -1, calendar[entry]
    if calendar[entry] >= 0:
        slots[calendar[entry], at.BEFORE] = slot
    calendar[entry] = slot


def stop_decoding(engine: EngineState, slot: int) -> int:
    """A sequence decodes no more: its TOKENS in the cache and those that are LEFT are written down. Returns its pages."""
    slots, calendar, step = engine.slots, engine.calendar, engine.integers[at.STEP]
    engine.integers[at.DECODING] -= 1
    if engine.settings[at.WIDTH] > 1:
        engine.floats[at.CACHED] -= slots[slot, at.TOKENS]
        slots[slot, at.ENTRY] = -1
        return int(slots[slot, at.PAGES])
    entry, cached = slots[slot, at.ENTRY], slots[slot, at.START] + step
    before, after = slots[slot, at.BEFORE], slots[slot, at.AFTER]
    if before >= 0:
        slots[before, at.AFTER] = after
    else:
        calendar[entry] = after
    if after >= 0:
        slots[after, at.BEFORE] = before
    engine.remainders[slots[slot, at.PHASE]] -= engine.settings[at.GROWS]
    engine.floats[at.CACHED] -= cached
    slots[slot, at.TOKENS], slots[slot, at.LEFT], slots[slot, at.ENTRY] = cached, (entry - step) % len(calendar) + 1, -1
    return pages_of(engine.settings, cached)


def end_decoding(engine: EngineState) -> None:
    """The sequences that the calendar has at the step before leave."""
    integers, slots, calendar = engine.integers, engine.slots, engine.calendar
    step = integers[at.STEP]
    slot = calendar[(step - 1) % len(calendar)]
    calendar[(step - 1) % len(calendar)] = -1
    while slot >= 0:
        after = slots[slot, at.AFTER]
        cached = slots[slot, at.START] + step
        engine.remainders[slots[slot, at.PHASE]] -= engine.settings[at.GROWS]
        integers[at.FREE] += pages_of(engine.settings, cached)
        engine.floats[at.CACHED] -= cached
        integers[at.DECODING] -= 1
        finish(engine, slot)
        slot = after


def accept(engine: EngineState, chances: Any) -> None:
    """All sequences that decode get the tokens of a round: one, and as many proposed ones as are accepted."""
    integers, floats, slots = engine.integers, engine.floats, engine.slots
    slot = integers[at.NEWEST]
    while slot >= 0:
        older = slots[slot, at.OLDER]
        if slots[slot, at.ENTRY] >= 0:
            integers[at.SEED] = integers[at.SEED] * MULTIPLIER % MODULUS
            drawn = integers[at.SEED] / MODULUS
            made = 1
            for chance in chances:
                if drawn < chance:
                    made += 1
            made = min(made, slots[slot, at.LEFT])
            slots[slot, at.TOKENS] += made
            slots[slot, at.LEFT] -= made
            floats[at.CACHED] += made
            if slots[slot, at.LEFT] == 0:
                integers[at.FREE] += slots[slot, at.PAGES]
                floats[at.CACHED] -= slots[slot, at.TOKENS]
                integers[at.DECODING] -= 1
                finish(engine, slot)
        slot = older


def link_newest(engine: EngineState, slot: int) -> None:
    """Puts a slot behind all others in the order of admission."""
    integers, slots = engine.integers, engine.slots
    slots[slot, at.OLDER], slots[slot, at.NEWER] = integers[at.NEWEST], -1
    if integers[at.NEWEST] >= 0:
        slots[integers[at.NEWEST], at.NEWER] = slot
    integers[at.NEWEST] = slot


def unlink(engine: EngineState, slot: int) -> None:
    """Takes a slot out of the order of admission."""
    slots = engine.slots
    older, newer = slots[slot, at.OLDER], slots[slot, at.NEWER]
    if older >= 0:
        slots[older, at.NEWER] = newer
    if newer >= 0:
        slots[newer, at.OLDER] = older
    else:
        engine.integers[at.NEWEST] = older


def finish(engine: EngineState, slot: int) -> None:
    """Writes the result of a request, which ends now, and frees its slot."""
    integers, slots, times = engine.integers, engine.slots, engine.times
    results, result_times = engine.results, engine.result_times
    unlink(engine, slot)
    row = integers[at.WRITTEN]
    results[row, 0], results[row, 1] = slots[slot, at.ID], slots[slot, at.INPUT]
    results[row, 2] = slots[slot, at.OUTPUT]
    result_times[row, 0], result_times[row, 1] = times[slot, 0], times[slot, 1]
    result_times[row, 2], result_times[row, 3] = engine.floats[at.NOW], times[slot, 2]
    integers[at.WRITTEN] += 1
    integers[at.FINISHED] += 1
    slots[slot, at.AFTER] = integers[at.SPARE]
    integers[at.SPARE] = slot
