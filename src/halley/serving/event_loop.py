"""The loop of the event simulation of one engine: continuous batching with chunked prefill and a paged cache.

Python that numba compiles as it stands (`halley.serving.event_loop_compiled`). A step costs the same whether it has one sequence
or a thousand: sequences that decode end at known steps (a calendar), and need their next page at steps that only their length
modulo the page decides (a count for each remainder). All state is in arrays, so that the loop can stop between two blocks of
requests and go on.

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

from typing import Any

# integers of the state
(STEP, DECODING, PREFILLING, FREE, HEAD, RELEASED, FINISHED, WRITTEN, STACKED, NEWEST, SPARE, PREEMPTED, STEPS, PEAK, BASE) = (
    range(15)
)
SINCE_RECEIPT, WAITED = 15, 16  # steps since requests were received, and for which new prompts have waited for others
SWAPPED, IN_HOST, SEED = 17, 18, 19  # sequences that were swapped, pages in the memory of the host, state of the random numbers
INTEGERS = 20
"""Integers of the state."""
# floats of the state: time, tokens cached by decoding sequences, integrals over time of decoding sequences and pages, and the
# time when requests were received last
NOW, CACHED, BUSY, PAGES_TIME, LAST_RECEIPT = range(5)
FLOATS = 5
"""Floats of the state."""
# columns of a slot
(ID, GOAL, DONE, LEFT, PAGES, PHASE, START, OLDER, NEWER, AFTER, BEFORE, ENTRY, FRESH, INPUT, OUTPUT, TOKENS, AWAY) = range(17)
COLUMNS = 17
"""Integers of a slot."""
# settings
(BUDGET, USERS, PAGE, GRAPHS, PREFIX, USERS_LIMIT, MORE, CACHED_INPUT, RECEIVE, WAIT_STEPS, WAIT_TOKENS, HOST_PAGES, WIDTH) = (
    range(13)
)
STATE, GROWS = 13, 14  # pages of a sequence whatever its length, and whether it has more the longer it is
SETTINGS = 15
"""Number of settings."""
LARGE_JUMP = 256
"""Decode steps at most that are taken together while nothing else happens."""
MULTIPLIER, MODULUS = 48271, 2**31 - 1
"""Of the random numbers s -> 48271 s mod (2^31 - 1) (Park, Miller and Stockmeyer, CACM 36, 1993)."""


def run(
    integers: Any,
    floats: Any,
    settings: Any,
    arrivals: Any,
    inputs: Any,
    outputs: Any,
    slots: Any,
    times: Any,
    prefilling: Any,
    stack: Any,
    calendar: Any,
    remainders: Any,
    results: Any,
    result_times: Any,
    target: Any,
    draft: Any,
    chances: Any,
    host: Any,
    front: float,
) -> int:
    """Until all requests of the block have ended (0), more requests are wanted (1), or ``results`` is full (2); -1: a request
    needs more pages than there are.

    ``slots`` [slots, columns]; ``times`` [slots, 3]: arrival, first token and first scheduled [s]; ``calendar`` [steps]: first
    slot that ends at a step; ``results`` [rows, 3]: request, input, output; ``result_times`` [rows, 4]: arrival, first and last
    token, first scheduled [s]; ``target``, ``draft``: tables of a step (`halley.serving.simulate.StepTables`), those of the draft
    not used without speculation; ``chances`` [proposed tokens]: that a round accepts so many or more; ``host`` [4]: time of the
    host in a step and for a sequence of it, of a page that is swapped, and before pages are [s]; ``front`` [s]: before the prompt
    of a request of a closed loop is scheduled.
    """
    budget, most_users, page = settings[BUDGET], settings[USERS], settings[PAGE]
    prefix, limit, more, width = settings[PREFIX], settings[USERS_LIMIT], settings[MORE], settings[WIDTH]
    by_tokens, by_rows, contexts, decode, chunks, keys, prefill, layers_floor = target
    host_step, host_user, page_time, swap_start = host
    total, length, rows = len(arrivals), len(calendar), len(results)
    while True:
        if integers[WRITTEN] + most_users >= rows:
            return 2
        now = floats[NOW]
        # a closed loop sends the next request when one ends
        if limit > 0:
            while (
                integers[RELEASED] < total
                and integers[RELEASED] - integers[HEAD] + (integers[DECODING] + integers[PREFILLING] + integers[STACKED]) < limit
            ):
                arrivals[integers[RELEASED]] = now + front
                integers[RELEASED] += 1
            if integers[RELEASED] == total and more:
                return 1
        elif more and (integers[HEAD] == total or arrivals[total - 1] <= now):
            return 1  # a request of the next block may have arrived
        head = integers[HEAD]
        available = integers[RELEASED] if limit > 0 else total
        if integers[SINCE_RECEIPT] % settings[RECEIVE] == 0:
            floats[LAST_RECEIPT] = now
        if integers[DECODING] == 0 and integers[PREFILLING] == 0 and integers[STACKED] == 0:
            floats[LAST_RECEIPT] = now  # an idle server receives requests at once
            if head >= available:
                return 0
            if arrivals[head] > now:
                floats[NOW] = arrivals[head]
                continue
        received = floats[LAST_RECEIPT]
        # pages of sequences that decode; the newest make way
        step = integers[STEP]
        need, away, back = pages_wanted(integers, settings, slots, remainders), 0, 0
        while need > integers[FREE] and integers[DECODING] > 0:
            slot = integers[NEWEST]
            while slot >= 0 and slots[slot, ENTRY] < 0:  # a prompt under way: it has no place in the calendar
                slot = slots[slot, OLDER]
            if slot < 0:
                return -1
            freed = stop_decoding(integers, floats, settings, slots, calendar, remainders, slot)
            unlink(integers, slots, slot)
            integers[FREE] += freed
            if integers[IN_HOST] + freed <= settings[HOST_PAGES]:
                slots[slot, AWAY], slots[slot, PAGES] = 1, freed
                integers[IN_HOST] += freed
                integers[SWAPPED] += 1
                away += freed
            else:
                slots[slot, GOAL], slots[slot, DONE], slots[slot, PAGES] = slots[slot, TOKENS] + 1, prefix, 0
            stack[integers[STACKED]] = slot
            integers[STACKED] += 1
            integers[PREEMPTED] += 1
            need = pages_wanted(integers, settings, slots, remainders)
        integers[FREE] -= need
        if width > 1:
            hold_pages(integers, settings, slots)
        users = integers[DECODING]
        spare = budget - users * width
        # prompts under way
        prompt_tokens, prompts, cost, draft_cost = 0, 0, 0.0, 0.0
        ended = 0
        held = False
        for place in range(integers[PREFILLING]):
            slot = prefilling[place]
            take = min(slots[slot, GOAL] - slots[slot, DONE], spare)
            if take <= 0:
                continue
            wanted = pages_of(settings, slots[slot, DONE] + take)
            extra = wanted - slots[slot, PAGES]
            if extra > integers[FREE]:
                held = True
                continue
            integers[FREE] -= extra
            slots[slot, PAGES] = wanted
            slots[slot, DONE] += take
            spare -= take
            prompt_tokens += take
            prompts += 1
            cost += surface(chunks, keys, prefill, float(take), float(slots[slot, DONE]))
            if width > 1:
                draft_cost += surface(draft[4], draft[5], draft[6], float(take), float(slots[slot, DONE]))
            if slots[slot, DONE] == slots[slot, GOAL]:
                ended += 1
        # new ones, unless they wait for others
        if settings[WAIT_STEPS] > 0 and users > 0 and integers[STACKED] == 0:
            asked = users * width + prompt_tokens
            place = integers[HEAD]
            while place < available and arrivals[place] <= received and asked < settings[WAIT_TOKENS]:
                asked += inputs[place]
                place += 1
            if asked < settings[WAIT_TOKENS] and place > integers[HEAD] and integers[WAITED] < settings[WAIT_STEPS]:
                integers[WAITED] += 1
                held = True
            else:
                integers[WAITED] = 0
        while spare > 0 and not held and integers[DECODING] + integers[PREFILLING] < most_users:
            if integers[STACKED] > 0:
                slot = stack[integers[STACKED] - 1]
                if slots[slot, AWAY] == 1:
                    wanted = pages_of_step(settings, slots, slot)
                    if wanted > integers[FREE]:
                        break
                    integers[STACKED] -= 1
                    back += slots[slot, PAGES]
                    integers[IN_HOST] -= slots[slot, PAGES]
                    integers[FREE] -= wanted
                    slots[slot, AWAY], slots[slot, PAGES] = 0, wanted
                    link_newest(integers, slots, slot)
                    start_decoding(integers, floats, settings, slots, calendar, remainders, slot)
                    users += 1
                    spare -= width
                    continue
                goal, done = slots[slot, GOAL], slots[slot, DONE]
            elif integers[HEAD] < available and arrivals[integers[HEAD]] <= received:
                slot = -1
                goal, done = inputs[integers[HEAD]], min(prefix, inputs[integers[HEAD]] - 1)
                if settings[CACHED_INPUT]:
                    done = goal - 1
            else:
                break
            take = min(goal - done, spare)
            wanted = pages_of(settings, done + take)
            if wanted > integers[FREE]:
                break
            again = slot >= 0
            if again:
                integers[STACKED] -= 1
            else:
                slot = integers[SPARE]
                integers[SPARE] = slots[slot, AFTER]
                request = integers[HEAD]
                slots[slot, ID], slots[slot, GOAL], slots[slot, LEFT] = integers[BASE] + request, goal, outputs[request]
                slots[slot, FRESH], slots[slot, INPUT], slots[slot, OUTPUT] = 1, goal, outputs[request]
                times[slot, 0], times[slot, 2] = arrivals[request], now
                integers[HEAD] += 1
            slots[slot, DONE], slots[slot, PAGES], slots[slot, ENTRY] = done + take, wanted, -1
            integers[FREE] -= wanted
            link_newest(integers, slots, slot)
            prefilling[integers[PREFILLING]] = slot
            integers[PREFILLING] += 1
            spare -= take
            prompt_tokens += take
            if not settings[CACHED_INPUT] or again:
                cost += surface(chunks, keys, prefill, float(take), float(done + take))
                if width > 1:
                    draft_cost += surface(draft[4], draft[5], draft[6], float(take), float(done + take))
            prompts += 1
            if done + take == goal:
                ended += 1
        if users == 0 and prompts == 0:
            slot = integers[NEWEST]
            if integers[PREFILLING] < 2 or slot < 0:
                return -1  # nothing fits
            # prompts under way hold all pages, and none can go on: the newest starts again later
            integers[FREE] += slots[slot, PAGES]
            slots[slot, DONE], slots[slot, PAGES] = min(prefix, slots[slot, GOAL] - 1), 0
            unlink(integers, slots, slot)
            kept = 0
            for place in range(integers[PREFILLING]):
                if prefilling[place] != slot:
                    prefilling[kept] = prefilling[place]
                    kept += 1
            integers[PREFILLING] = kept
            stack[integers[STACKED]] = slot
            integers[STACKED] += 1
            integers[PREEMPTED] += 1
            continue
        # how many steps go by before anything changes
        jump, asked = 1, 0
        if prompts == 0 and width == 1 and away + back == 0:
            jump = LARGE_JUMP
            if integers[STACKED] > 0 or (integers[HEAD] < available and arrivals[integers[HEAD]] <= received) or held:
                jump = 1
            elif integers[HEAD] < available and arrivals[integers[HEAD]] <= now:
                jump = min(jump, settings[RECEIVE] - integers[SINCE_RECEIPT] % settings[RECEIVE])
            place = 0
            while place + 1 < jump:
                if calendar[(step + place) % length] >= 0 or remainders[(-(step + place + 1)) % page] > integers[FREE] - asked:
                    jump = place + 1
                    break
                asked += remainders[(-(step + place + 1)) % page]
                place += 1
        tokens = users * width + prompt_tokens
        mean = floats[CACHED] / users + 1 if users > 0 else 0.0
        chip = by_tokens[tokens] + by_rows[users * width + prompts] + host_user * (users + prompts) + cost
        first = chip
        if users > 0:
            first += line(contexts, decode, users, mean)
        if tokens > settings[GRAPHS]:
            first = max(first, layers_floor)
        first += host_step
        for moved in (away, back):
            if moved > 0:
                first += swap_start + moved * page_time
        if width > 1:
            first += draft_step(settings, draft, host, users, prompts, prompt_tokens, mean, draft_cost)
            if users > 0:
                first += (width - 2) * draft_step(settings, draft, host, users, 0, 0, mean, 0.0)
        if jump > 1 and integers[HEAD] < available and arrivals[integers[HEAD]] > now:
            # an arrival ends the jump
            jump = max(1, min(jump, int((arrivals[integers[HEAD]] - now) / first)))
        for place in range(1, jump):
            integers[FREE] -= remainders[(-(step + place)) % page]
        span = first
        if jump > 1:
            last = chip + line(contexts, decode, users, mean + jump - 1)
            if tokens > settings[GRAPHS]:
                last = max(last, layers_floor)
            span = (first + last + host_step) * jump / 2
        floats[NOW] = now + span
        floats[BUSY] += span * users
        floats[PAGES_TIME] += span * integers[FREE]
        if width == 1:
            floats[CACHED] += float(users) * jump
        integers[STEP] += jump
        integers[STEPS] += jump
        integers[SINCE_RECEIPT] = 0 if prompts > 0 else integers[SINCE_RECEIPT] + jump
        integers[PEAK] = max(integers[PEAK], users)
        now, step = floats[NOW], integers[STEP]
        # sequences that end with this step
        if width > 1:
            accept(integers, floats, settings, slots, times, results, result_times, chances)
        else:
            slot = calendar[(step - 1) % length]
            calendar[(step - 1) % length] = -1
            while slot >= 0:
                after = slots[slot, AFTER]
                cached = slots[slot, START] + step
                remainders[slots[slot, PHASE]] -= settings[GROWS]
                integers[FREE] += pages_of(settings, cached)
                floats[CACHED] -= cached
                integers[DECODING] -= 1
                finish(integers, slots, times, results, result_times, slot, now)
                slot = after
        # prompts that are complete: their first token is there
        if ended > 0:
            kept = 0
            for place in range(integers[PREFILLING]):
                slot = prefilling[place]
                if slots[slot, DONE] < slots[slot, GOAL]:
                    prefilling[kept] = slot
                    kept += 1
                    continue
                if slots[slot, FRESH] == 1:
                    times[slot, 1] = now
                    slots[slot, FRESH] = 0
                left = slots[slot, LEFT] - 1
                if left <= 0:
                    integers[FREE] += slots[slot, PAGES]
                    finish(integers, slots, times, results, result_times, slot, now)
                    continue
                slots[slot, TOKENS], slots[slot, LEFT] = slots[slot, GOAL], left
                start_decoding(integers, floats, settings, slots, calendar, remainders, slot)
            integers[PREFILLING] = kept


def pages_of(settings: Any, tokens: int) -> int:
    """Pages of a sequence with so many tokens in the cache, beyond those of the common prefix: those of its state among them."""
    page = settings[PAGE]
    return int(settings[STATE] + settings[GROWS] * ((tokens + page - 1) // page - settings[PREFIX] // page))


def pages_wanted(integers: Any, settings: Any, slots: Any, remainders: Any) -> int:
    """Pages that sequences that decode need for the tokens of the next step, beyond those that they hold."""
    page = settings[PAGE]
    if settings[WIDTH] == 1:
        return int(remainders[(-integers[STEP]) % page])
    wanted, slot = 0, integers[NEWEST]
    while slot >= 0:
        if slots[slot, ENTRY] >= 0:
            wanted += extra_pages(settings, slots, slot)
        slot = slots[slot, OLDER]
    return int(wanted)


def pages_of_step(settings: Any, slots: Any, slot: int) -> int:
    """Pages of a sequence with TOKENS in the cache while it is in a step: those that it may get have places."""
    return pages_of(settings, slots[slot, TOKENS] + min(settings[WIDTH], slots[slot, LEFT]))


def extra_pages(settings: Any, slots: Any, slot: int) -> int:
    """Pages that a sequence needs for a round, beyond those that it holds."""
    return int(max(pages_of_step(settings, slots, slot) - slots[slot, PAGES], 0))


def hold_pages(integers: Any, settings: Any, slots: Any) -> None:
    """Gives all sequences that decode their pages for a round."""
    slot = integers[NEWEST]
    while slot >= 0:
        if slots[slot, ENTRY] >= 0:
            slots[slot, PAGES] += extra_pages(settings, slots, slot)
        slot = slots[slot, OLDER]


def start_decoding(integers: Any, floats: Any, settings: Any, slots: Any, calendar: Any, remainders: Any, slot: int) -> None:
    """A sequence with TOKENS in the cache decodes from the next step (or the present one, if that has not begun) and gets LEFT
    more."""
    step, tokens = integers[STEP], slots[slot, TOKENS]
    floats[CACHED] += tokens
    integers[DECODING] += 1
    if settings[WIDTH] > 1:
        slots[slot, ENTRY] = 0
        return
    # cached tokens at step s are START + s
    slots[slot, START] = tokens - step
    slots[slot, PHASE] = (tokens - step) % settings[PAGE]
    remainders[slots[slot, PHASE]] += settings[GROWS]
    entry = (step + slots[slot, LEFT] - 1) % len(calendar)
    slots[slot, ENTRY], slots[slot, BEFORE], slots[slot, AFTER] = entry, -1, calendar[entry]
    if calendar[entry] >= 0:
        slots[calendar[entry], BEFORE] = slot
    calendar[entry] = slot


def stop_decoding(integers: Any, floats: Any, settings: Any, slots: Any, calendar: Any, remainders: Any, slot: int) -> int:
    """A sequence decodes no more: its TOKENS in the cache and those that are LEFT are written down. Returns its pages."""
    step = integers[STEP]
    integers[DECODING] -= 1
    if settings[WIDTH] > 1:
        floats[CACHED] -= slots[slot, TOKENS]
        slots[slot, ENTRY] = -1
        return int(slots[slot, PAGES])
    entry, cached = slots[slot, ENTRY], slots[slot, START] + step
    before, after = slots[slot, BEFORE], slots[slot, AFTER]
    if before >= 0:
        slots[before, AFTER] = after
    else:
        calendar[entry] = after
    if after >= 0:
        slots[after, BEFORE] = before
    remainders[slots[slot, PHASE]] -= settings[GROWS]
    floats[CACHED] -= cached
    slots[slot, TOKENS], slots[slot, LEFT], slots[slot, ENTRY] = cached, (entry - step) % len(calendar) + 1, -1
    return pages_of(settings, cached)


def draft_step(
    settings: Any, draft: Any, host: Any, users: int, prompts: int, prompt_tokens: int, mean: float, cost: float
) -> float:
    """Time of a step of the draft [s]: a token of each of the ``users`` at a ``mean`` context, and prompts whose attention takes
    ``cost`` [s]."""
    by_tokens, by_rows, contexts, decode, _, _, _, layers_floor = draft
    tokens = users + prompt_tokens
    time = by_tokens[tokens] + by_rows[users + prompts] + cost
    if users > 0:
        time += line(contexts, decode, users, mean)
    if tokens > settings[GRAPHS]:
        time = max(time, layers_floor)
    return float(time + host[0] + host[1] * (users + prompts))


def accept(
    integers: Any, floats: Any, settings: Any, slots: Any, times: Any, results: Any, result_times: Any, chances: Any
) -> None:
    """All sequences that decode get the tokens of a round: one, and as many proposed ones as are accepted."""
    slot = integers[NEWEST]
    while slot >= 0:
        older = slots[slot, OLDER]
        if slots[slot, ENTRY] >= 0:
            integers[SEED] = integers[SEED] * MULTIPLIER % MODULUS
            drawn = integers[SEED] / MODULUS
            made = 1
            for chance in chances:
                if drawn < chance:
                    made += 1
            made = min(made, slots[slot, LEFT])
            slots[slot, TOKENS] += made
            slots[slot, LEFT] -= made
            floats[CACHED] += made
            if slots[slot, LEFT] == 0:
                integers[FREE] += slots[slot, PAGES]
                floats[CACHED] -= slots[slot, TOKENS]
                integers[DECODING] -= 1
                finish(integers, slots, times, results, result_times, slot, floats[NOW])
        slot = older


def link_newest(integers: Any, slots: Any, slot: int) -> None:
    """Puts a slot behind all others in the order of admission."""
    slots[slot, OLDER], slots[slot, NEWER] = integers[NEWEST], -1
    if integers[NEWEST] >= 0:
        slots[integers[NEWEST], NEWER] = slot
    integers[NEWEST] = slot


def unlink(integers: Any, slots: Any, slot: int) -> None:
    """Takes a slot out of the order of admission."""
    older, newer = slots[slot, OLDER], slots[slot, NEWER]
    if older >= 0:
        slots[older, NEWER] = newer
    if newer >= 0:
        slots[newer, OLDER] = older
    else:
        integers[NEWEST] = older


def finish(integers: Any, slots: Any, times: Any, results: Any, result_times: Any, slot: int, now: float) -> None:
    """Writes the result of a request and frees its slot."""
    unlink(integers, slots, slot)
    row = integers[WRITTEN]
    results[row, 0], results[row, 1], results[row, 2] = slots[slot, ID], slots[slot, INPUT], slots[slot, OUTPUT]
    result_times[row, 0], result_times[row, 1], result_times[row, 2] = times[slot, 0], times[slot, 1], now
    result_times[row, 3] = times[slot, 2]
    integers[WRITTEN] += 1
    integers[FINISHED] += 1
    slots[slot, AFTER] = integers[SPARE]
    integers[SPARE] = slot


def line(at: Any, table: Any, row: int, x: float) -> float:
    """Linear interpolation in one row of a table at ``at``."""
    low, high = 0, len(at) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if at[middle] <= x:
            low = middle
        else:
            high = middle
    part = max((x - at[low]) / (at[low + 1] - at[low]), 0.0)
    found = table[row, low] * (1 - part) + table[row, low + 1] * part
    return float(found)


def surface(rows: Any, columns: Any, table: Any, x: float, y: float) -> float:
    """Bilinear interpolation."""
    low, high = 0, len(rows) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if rows[middle] <= x:
            low = middle
        else:
            high = middle
    part = max((x - rows[low]) / (rows[low + 1] - rows[low]), 0.0)
    upper = line(columns, table, low, y)
    return float(upper * (1 - part) + line(columns, table, low + 1, y) * part)
