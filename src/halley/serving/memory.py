"""Memory of a chip that serves: weights, cache, activations, reserve, and how many tokens the cache has capacity for."""

from __future__ import annotations

import math
from dataclasses import dataclass

from halley.errors import Fault, Infeasible
from halley.ir.system import System
from halley.serving.layout import ReplicaLayout
from halley.serving.model import ACTIVATION_BYTES, CACHE_BYTES, ServedModel, cached_tokens, stage_layers
from halley.serving.recurrent import state_bytes_per_rank
from halley.serving.software import ServingSoftware
from halley.serving.step import weight_bytes_per_chip

LIVE_ACTIVATIONS = 3
"""Tensors of the model dim that are alive at a time: residual, normed input, result."""
LOGIT_BYTES = 4
"""Logits are fp32."""


@dataclass(frozen=True, slots=True)
class ServingMemory:
    """Bytes of one chip: ``capacity`` of the memory, ``usable`` of it for the server, ``weights``, ``activations``, ``reserve``.
    ``page``: bytes that one page of the cache takes on the chip; ``page_tokens``: its tokens; ``state``: what recurrent layers
    keep of a sequence, in whole pages; ``draft``: what a draft of speculative decoding needs on the same chip, of which weights
    and cache count. Without attention a page is the state of a sequence."""

    capacity: float
    usable: float
    weights: float
    activations: float
    reserve: float
    page: float
    page_tokens: int
    model: ServedModel
    draft: ServingMemory | None = None
    state: float = 0.0

    @property
    def cache(self) -> float:
        """What is left for the cache [B]; negative where the model does not fit."""
        drafting = 0.0 if self.draft is None else self.draft.weights
        return self.usable - self.weights - self.activations - self.reserve - drafting

    @property
    def capacity_pages(self) -> int:
        """Pages that fit."""
        return max(int(self.cache // self.page), 0)

    @property
    def state_pages(self) -> int:
        """Pages of the state of a sequence."""
        return math.ceil(self.state / self.page)

    @property
    def grows(self) -> bool:
        """Whether a sequence takes more pages the longer it is."""
        return self.model.attention_layers > 0

    @property
    def tokens(self) -> int:
        """Tokens that fit, as those of one sequence."""
        return max(self.capacity_pages - self.state_pages, 0) * self.page_tokens

    def pages(self, context: float) -> float:
        """Pages of a sequence with a context of so many tokens; layers with a window drop those before it. Those of a draft
        count with their share of the bytes of a page."""
        kept = cached_tokens(self.model, context)
        own = math.ceil(kept / self.page_tokens) + self.state_pages
        return own if self.draft is None else own + self.draft.pages(context) * self.draft.page / self.page

    def users(self, context: float) -> int:
        """Sequences of so many tokens that fit."""
        return int(self.capacity_pages // max(self.pages(context), 1))


def serving_memory(
    model: ServedModel, layout: ReplicaLayout, system: System, software: ServingSoftware, width: int = 1
) -> ServingMemory:
    """The memory of a chip of a deployment, of its nearest memory that holds tensors. ``width``: tokens of a sequence that
    decodes, which have logits each, and a state each."""
    shape, capacity = model.shape, system.tiers[0].capacity
    widest = max(model.matrices * shape.hidden / layout.tp, 2 * shape.heads * shape.head_dim / layout.tp)
    if model.hybrid is not None:
        widest = max(widest, model.hybrid.entry / layout.tp)
    tokens = software.budget * ACTIVATION_BYTES * (LIVE_ACTIVATIONS * shape.model + widest)
    logits = min(software.users * width, software.budget) * shape.vocabulary * LOGIT_BYTES / layout.tp
    layers = stage_layers(model, layout.pp)
    page = software.page * layers.attention * model.cache_width * CACHE_BYTES[model.cache] / cache_shards(model, layout)
    weights = weight_bytes_per_chip(model, layout)
    usable = capacity * software.share
    # the states after each of the tokens that are verified: the sequence goes on from the last one that is accepted
    state = width * layers.recurrent * state_bytes_per_rank(model, layout.tp)
    each = page or state
    return ServingMemory(capacity, usable, weights, tokens + logits, software.reserve, each, software.page, model, state=state)


def cache_shards(model: ServedModel, layout: ReplicaLayout) -> int:
    """Parts of the cache of one sequence on the ranks of a tensor-parallel group; ranks beyond them hold copies."""
    return 1 if model.shape.latent is not None else min(layout.tp, model.shape.kv_heads)


def check_fits(memory: ServingMemory, context: int, where: str) -> None:
    """Raises Infeasible: the weights, or one sequence of the context, do not fit."""
    if memory.capacity_pages < memory.pages(context):
        names = {"weights": memory.weights, "activations": memory.activations, "reserve": memory.reserve}
        if memory.draft is not None:
            names["weights of the draft"] = memory.draft.weights
        kept = "cache" if memory.model.hybrid is None else "cache and state"
        names |= {f"{kept} of one sequence of {context} tokens": memory.pages(context) * memory.page}
        need = sum(names.values())
        parts = ", ".join(f"{name} {size / 2**30:.1f}" for name, size in names.items() if size)
        remedy = "use more chips (tp, pp, ep), fewer bytes for weights or cache, or a shorter context"
        expected = f"at most {memory.usable / 2**30:.1f} GiB on a chip ({memory.usable / memory.capacity:.0%} of its memory)"
        raise Infeasible(Fault(where, expected, f"{need / 2**30:.1f} GiB ({parts})", remedy))


def check_draft_fits(target: ServingMemory, draft: ServingMemory, sequences: float, context: float, where: str) -> None:
    """Raises Infeasible: on a chip of the ``target``, so many sequences of a context and the ``draft`` with its own cache of them
    do not fit."""
    each = target.pages(context) * target.page + draft.pages(context) * draft.page
    rest = target.cache - draft.weights
    if rest < math.ceil(sequences) * each:
        parts = {"weights": target.weights, "weights of the draft": draft.weights}
        parts |= {"activations and reserve": target.activations + target.reserve}
        parts |= {f"both caches of {math.ceil(sequences)} sequences": math.ceil(sequences) * each}
        words = ", ".join(f"{name} {size / 2**30:.1f}" for name, size in parts.items() if size)
        expected = f"at most {target.usable / 2**30:.1f} GiB on a chip"
        remedy = "use a smaller draft, fewer users or more chips"
        raise Infeasible(Fault(where, expected, f"{sum(parts.values()) / 2**30:.1f} GiB ({words})", remedy))
