"""The state of the loop, all of it in arrays, so that the loop can stop between two blocks of requests and go on."""

from __future__ import annotations

from typing import Any, NamedTuple

# integers of the state: what lasts
(STEP, DECODING, PREFILLING, FREE, HEAD, RELEASED, FINISHED, WRITTEN, STACKED, NEWEST, SPARE, PREEMPTED, STEPS, PEAK, BASE) = (
    range(15)
)
SINCE_RECEIPT, WAITED = 15, 16  # steps since requests were received, and for which new prompts have waited for others
SWAPPED, IN_HOST, SEED = 17, 18, 19  # sequences that were swapped, pages in the memory of the host, state of the random numbers
# and what belongs to the present step: tokens that it has left, tokens of prompts and prompts in it, prompts that end with it,
# whether new prompts wait, pages that move to the memory of the host and back
LEFT_TOKENS, PROMPT_TOKENS, PROMPTS, ENDED, HELD, PAGES_OUT, PAGES_IN = range(20, 27)
INTEGERS = 27
"""Integers of the state."""
# floats of the state: time, tokens cached by decoding sequences, integrals over time of decoding sequences and pages, and the
# time when requests were received last; attention of the prompts of the present step, by the target and by the draft
NOW, CACHED, BUSY, PAGES_TIME, LAST_RECEIPT, PREFILL_TIME, DRAFT_PREFILL_TIME = range(7)
FLOATS = 7
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


class EngineState(NamedTuple):
    """What one engine is and does.

    ``integers``, ``floats``, ``settings``: see above. ``slots`` [slots, columns]: sequences, ``times`` [slots, 3]: their arrival,
    first token and first scheduled [s]. ``prefilling``: slots of prompts under way; ``stack``: slots of sequences that were
    preempted, the first to go on last. ``calendar`` [steps]: first slot that ends at a step, modulo its length. ``remainders``
    [page]: sequences that decode by remainder of their length. ``results`` [rows, 3]: request, input, output; ``result_times``
    [rows, 4]: arrival, first and last token, first scheduled [s].
    """

    integers: Any
    floats: Any
    settings: Any
    slots: Any
    times: Any
    prefilling: Any
    stack: Any
    calendar: Any
    remainders: Any
    results: Any
    result_times: Any


class RequestBlock(NamedTuple):
    """Requests of a block: ``arrivals`` [s], ``inputs`` and ``outputs`` [tokens], each [requests]."""

    arrivals: Any
    inputs: Any
    outputs: Any


class StepTables(NamedTuple):
    """The terms of a step of one model [s].

    ``by_tokens`` [tokens], ``by_rows`` [sequences that get a token]. ``decode`` [sequences, contexts], at ``contexts``: attention
    and updates of states of sequences that decode. ``prefill`` [chunks, keys], at ``chunks`` and ``keys``: attention and scans of
    a prompt. ``launches``: least time of a step of more tokens than a graph has.
    """

    by_tokens: Any
    by_rows: Any
    contexts: Any
    decode: Any
    chunks: Any
    keys: Any
    prefill: Any
    launches: float


class StepTerms(NamedTuple):
    """All that a step's time depends on: the tables of the model and of its draft (not used without speculation); ``chances``
    [proposed tokens]: that a round accepts so many or more; ``host`` [4]: time of the host in a step and for a sequence of it, of
    a page that is swapped, and before pages are [s]; ``front`` [s]: before the prompt of a request of a closed loop is
    scheduled."""

    target: StepTables
    draft: StepTables
    chances: Any
    host: Any
    front: float
