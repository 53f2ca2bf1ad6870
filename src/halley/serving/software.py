"""What a serving framework adds to the kernels of a step, in a few physical parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass

from halley.errors import BadInput, Fault, did_you_mean

RECOMPUTE, SWAP = "recompute", "swap"
"""What happens to a sequence that is preempted: it is recomputed, or its cache moves to the host and back."""
TIMES = ("step", "user", "layer", "gap", "collective", "request", "request_user", "request_experts")
"""Names of the times of a framework [s]."""


@dataclass(frozen=True, slots=True)
class ServingSoftware:
    """A serving framework.

    Times [s]: ``step`` of the host in each step that does not overlap the chip (scheduling, sampling, output); ``user``: of it
    for each sequence of the batch; ``layer``: to launch the kernels of one layer where no graph is replayed: a layer takes at
    least that; ``gap``: between two kernels; ``collective``: start-up of a collective; ``request``: of a request in the front
    end, before its prompt is scheduled; ``request_user``: more of it for each request in flight, whose tokens the front end
    streams; ``request_experts``: more of it for models with experts. ``graphs``: tokens of the largest step that is replayed as
    one graph (0: none).

    ``memory``, ``matrix`` [1]: shares of the kernels' own bandwidth and matrix rate that are reached in a running server;
    ``network`` [1]: share of the links' bandwidth that its own collectives reach. ``kernels``: the framework in whose measured
    tables its kernels are; empty: none, so that all kernels are timed by formulas.
    ``budget``: tokens of a step at most (chunked prefill); ``users``: sequences of a step at most; ``page``: tokens of a page of
    the cache; ``share`` [1]: part of a chip's memory that the server may take; ``reserve`` [B]: of it for workspaces and graphs.

    ``preempt``: `RECOMPUTE` or `SWAP`; the event simulation alone preempts.
    ``receive``: requests are received once in so many steps, and after each step with prompts (SGLang's scheduler-recv-interval).
    ``wait_steps``: new prompts wait for others while sequences decode, for at most so many steps, until the step has the share
    ``wait_share`` [1] of its tokens (TensorRT-LLM's batch_wait_timeout_iters and batch_wait_max_tokens_ratio).

    ``tpot_reach``, ``ttft_reach``: of 80 % of the closed loops held out, the logarithm of measured over predicted time is at most
    this far from 0; None: none was measured.

    Raises BadInput: a time that is negative, a share beyond 0 to 1, a count below 1, another way to preempt.
    """

    name: str = "ideal"
    step: float = 0.0
    user: float = 0.0
    layer: float = 0.0
    gap: float = 0.0
    collective: float = 0.0
    request: float = 0.0
    request_user: float = 0.0
    request_experts: float = 0.0
    graphs: int = 0
    memory: float = 1.0
    matrix: float = 1.0
    network: float = 1.0
    budget: int = 8192
    users: int = 1024
    page: int = 16
    share: float = 0.9
    reserve: float = 0.0
    receive: int = 1
    wait_steps: int = 0
    wait_share: float = 0.9
    tpot_reach: float | None = None
    ttft_reach: float | None = None
    kernels: str = ""
    preempt: str = RECOMPUTE
    source: str = ""

    def __post_init__(self) -> None:
        where, faults = f"software {self.name}", []
        for name in (*TIMES, "reserve"):
            if not 0 <= getattr(self, name) < math.inf:
                faults.append(Fault(f"{where}, {name}", "a number from 0", repr(getattr(self, name))))
        for name in ("memory", "matrix", "network", "share", "wait_share"):
            if not 0 < getattr(self, name) <= 1:
                faults.append(Fault(f"{where}, {name}", "a share above 0 and at most 1", repr(getattr(self, name))))
        if self.preempt not in (RECOMPUTE, SWAP):
            known = RECOMPUTE, SWAP
            faults.append(Fault(f"{where}, preempt", " or ".join(known), repr(self.preempt), did_you_mean(self.preempt, known)))
        if self.wait_steps < 0:
            faults.append(Fault(f"{where}, wait_steps", "at least 0", repr(self.wait_steps)))
        for name in ("budget", "users", "page", "receive"):
            if getattr(self, name) < 1:
                faults.append(Fault(f"{where}, {name}", "at least 1", repr(getattr(self, name))))
        if faults:
            raise BadInput(faults)


IDEAL = ServingSoftware()
"""No time of the host, and the data sheet's shares that the kernels themselves reach."""
