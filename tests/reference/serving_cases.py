"""Deployments that tests of serving share: small and quick to make."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from halley.importers.serving import served_model
from halley.io.systems.system import load_system
from halley.kernels.machine import PEAK
from halley.serving.deployment import Deployment
from halley.serving.layout import ReplicaLayout
from halley.serving.memory import ServingMemory
from halley.serving.software import ServingSoftware

SOFTWARE = ServingSoftware("test", step=5e-4, user=1e-5, gap=1e-6, collective=3e-6, budget=512, users=64)


@cache
def deployment(
    model: str = "llama3-8b", system: str = "1 x h100", layout: ReplicaLayout | None = None, software: ServingSoftware = SOFTWARE
) -> Deployment:
    """A deployment on kernels at the rates of the data sheet."""
    return Deployment(served_model(model), load_system(system), layout or ReplicaLayout(), software, PEAK, longest=8192)


def small_memory(made: Deployment, pages: int) -> ServingMemory:
    """The memory of an engine with so many pages."""
    memory = made.engine_memory
    return replace(memory, usable=memory.usable - memory.cache + (pages + 0.5) * memory.page)
