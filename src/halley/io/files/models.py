"""What chip and problem files may hold: the models that check them, and from which the JSON Schemas are made."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidatorFunctionWrapHandler, WrapValidator

from halley.io.files.entries import (
    Area,
    Bandwidth,
    Buffers,
    BurstLength,
    Count,
    Duration,
    EnergyPerByte,
    EnergyPerOp,
    Entry,
    Extent,
    Flag,
    Frequency,
    Gap,
    Latency,
    Parameter,
    Power,
    Ratio,
    Size,
    Text,
    Whole,
    word,
)
from halley.ir.hardware import CHIP_TOPOLOGIES, Dataflow, Topology
from halley.ir.workload import DTYPE_BYTES
from halley.mapping.problem import Objective
from halley.silicon.processes import DRAM_KINDS, MULTIPLIERS, PROCESSES


class Model(BaseModel):
    """Unknown keys are errors, and nothing is converted silently."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True, title=None)


class Section(Model):
    """A part of a file whose ``source`` or ``assumed`` holds for every number inside that names no origin of its own."""

    source: Text | None = Field(None, description="document, table or page that gives the numbers of this section")
    assumed: Text | None = Field(None, description="why the numbers of this section were assumed")


class LinkFile(Section):
    """A link: one direction of one wire bundle between two neighbours."""

    bandwidth: Bandwidth = Field(description="bandwidth in each direction")
    latency: Latency = Field(description="latency of one hop")
    energy: EnergyPerByte = Field(description="energy per byte and hop")


class CollectivesFile(Section):
    """What a collective along an axis takes besides its links and memories, and what the network does of it."""

    startup: Latency | None = Field(None, description="time before the first byte of each step; left out, 0")
    barrier: Latency | None = Field(None, description="time of the barrier after each step; left out, 0")
    adder: Latency | None = Field(None, description="latency of each adder in the network that a result passes; left out, 0")
    add_bandwidth: Bandwidth | None = Field(None, description="bandwidth of adders in the network; left out, the link's")
    multicast: Flag | None = Field(None, description="true: the network copies: a broadcast is one step; left out, false")
    reduction: Flag | None = Field(None, description="true: the network adds: a reduction is one step; left out, false")


class AxisFile(Section):
    """Siblings along one axis of a network."""

    size: Whole = Field(description="number of siblings along the axis")
    topology: Annotated[Entry[str], word((*CHIP_TOPOLOGIES, Topology.NONE))] = Field(
        description="how they are linked: line, ring, full or none"
    )
    link: LinkFile | None = Field(None, description="the link between neighbours; left out where there is none")
    collectives: CollectivesFile | None = Field(None, description="further times of collectives; left out, none")


class NetworkFile(Section):
    """What joins the siblings of a level to each other and to their parent."""

    axes: dict[str, AxisFile] = Field(description="axes by name, e.g. x and y of a mesh", min_length=1)
    port: LinkFile | None = Field(None, description="link between each sibling and its parent; left out, it is no limit")
    multicast: Flag = Field(description="true: one read at the parent serves all siblings that want the same bytes")
    reduction: Flag = Field(description="true: partial sums are added on the way up, in the network")


class MemoryFile(Section):
    """A memory; every sibling of its level has its own."""

    capacity: Size = Field(description="bytes that fit")
    read_bandwidth: Bandwidth = Field(description="bandwidth of the read port")
    write_bandwidth: Bandwidth = Field(description="bandwidth of the write port")
    latency: Latency = Field(description="time before the first byte of a fill or drain")
    read_energy: EnergyPerByte = Field(description="energy per byte read")
    write_energy: EnergyPerByte = Field(description="energy per byte written")
    shared_bus: Flag | None = Field(None, description="true: reads and writes take turns on one bus; left out, each has a port")
    lockstep: Flag | None = Field(None, description="true: double buffers swap at a barrier; left out, transfers run ahead")
    dma: Flag | None = Field(None, description="true: its fills, drains and collectives run one at a time; left out, at once")
    buffers: Buffers | None = Field(None, description="most buffers that a search gives to a tensor held there; left out, 2")
    burst: BurstLength | None = Field(None, description="bytes of a burst, outermost level only; left out, any length is as fast")


class LevelFile(Section):
    """A level of the chip: its memories, and the network between its siblings if there are several."""

    name: Text = Field(description="name of the level, as mappings use it")
    memories: dict[str, MemoryFile] = Field(default_factory=dict, description="memories by name")
    network: NetworkFile | None = Field(None, description="left out where the level has a single member")


class RolesFile(Model):
    """Memories that feed the array, by operand; an operand left out may lie in any memory."""

    input: list[Text] = Field(default_factory=list, description="memories that may hold the first operand")
    weight: list[Text] = Field(default_factory=list, description="memories that may hold the second operand")
    output: list[Text] = Field(default_factory=list, description="memories that may hold the result")


class GranularityFile(Section):
    """Multiples that one instruction of the engine computes."""

    rows: Whole | None = Field(None, description="rows of the result, in the first operand; left out, 1")
    columns: Whole | None = Field(None, description="columns of the result, in the second operand; left out, 1")
    reduced: Whole | None = Field(None, description="terms of each sum; left out, 1")


class MatrixFile(Section):
    """An array of multiply-accumulate units."""

    rows: Whole = Field(description="rows of the array")
    cols: Whole = Field(description="columns of the array")
    clock: Frequency | None = Field(None, description="clock of the array; left out, the chip's")
    dataflow: Annotated[Entry[str], word(Dataflow)] = Field(description="what stays in the array")
    prefetch: Flag = Field(description="true: the stationary operand of the next fold loads behind the present one")
    rate: dict[str, Ratio] = Field(description="multiply-accumulates per unit and cycle, by element type", min_length=1)
    energy: dict[str, EnergyPerOp] = Field(description="energy per multiply-accumulate, by element type")
    nvfp4: Ratio | None = Field(
        None, description="multiply-accumulates per unit and cycle in nvfp4, 4 bits with a scale for 16 values; left out, none"
    )
    back_to_back: Flag | None = Field(
        None, description="true: a fold enters while the one before leaves, so that none pays the skew; left out, false"
    )
    latency: Latency | None = Field(None, description="latency of its pipeline beyond the skew, paid by each tile; left out, 0")
    granularity: GranularityFile | None = Field(None, description="of its instructions, to which cycles round up; left out, none")
    accumulators: dict[str, Annotated[Entry[str], word(DTYPE_BYTES)]] = Field(
        default_factory=dict, description="element type of partial sums, by that of the operands; left out, the result's"
    )
    reads: RolesFile = Field(default_factory=RolesFile, description="memories that feed the array")


class VectorFile(Section):
    """Lanes that run elementary functions."""

    lanes: Whole = Field(description="number of lanes")
    warp: Whole | None = Field(
        None, description="lanes of one instruction, to which the last dim of an operation is rounded up; left out, all lanes"
    )
    clock: Frequency | None = Field(None, description="clock of the lanes; left out, the chip's")
    rate: dict[str, Ratio] = Field(description="functions per lane and cycle, by elementary function")
    energy: dict[str, EnergyPerOp] = Field(description="energy per function, by elementary function")
    latency: Latency | None = Field(None, description="latency of the pipeline, paid by each tile; left out, 0")
    reads: list[Text] = Field(default_factory=list, description="memories that the lanes reach; left out, any")


class EnginesFile(Section):
    """The engines in each sibling of the innermost level."""

    matrix: MatrixFile | None = Field(None, description="the matrix engine")
    vector: VectorFile | None = Field(None, description="the vector engine")


class DieFile(Section):
    """How the chip is built; needed for its area alone."""

    process: Annotated[Entry[str], word(PROCESSES)] = Field(description="the technology, such as 7 nm")
    dram: Annotated[Entry[str], word(DRAM_KINDS)] | None = Field(
        None, description="kind of the interfaces to the outermost memories; left out, none is on this die"
    )
    links: Bandwidth | None = Field(None, description="bandwidth to other chips, both directions together; left out, 0")
    clusters: Whole | None = Field(None, description="members of the innermost level on the die; left out, those in use")
    simt: Flag | None = Field(None, description="true: clusters run threads as a GPU does; left out, false")
    registers: list[Text] = Field(default_factory=list, description="memories that are register files")
    multipliers: Annotated[Entry[str], word(MULTIPLIERS)] | None = Field(
        None, description="type for which the multipliers are built; left out, the largest of the rates"
    )
    fp64: Count | None = Field(
        None, description="multipliers of fp64 in each cluster, switched off or not; left out, by the rate"
    )
    summed: Count | None = Field(None, description="products of floats that a unit adds before it rounds; left out, 1")
    lanes: Count | None = Field(None, description="vector lanes of fp32 in each cluster; left out, those of the vector engine")
    area: Area | None = Field(None, description="area of the die as published; left out, none is")


class ChipFile(Section):
    """A chip: levels outermost first, engines at the leaf."""

    name: Text = Field(description="name of the chip")
    description: Text = Field("", description="what the chip is")
    version: Whole | None = Field(None, description="of the figures in this file, which results name; left out, 1")
    clock: Frequency = Field(description="clock that units such as B/cycle count")
    static_power: Power = Field(description="power that is drawn whatever the chip does")
    power_limit: Power | None = Field(None, description="power that the chip may draw for longer; left out, there is no limit")
    levels: list[LevelFile] = Field(description="levels, outermost first", min_length=1)
    engines: EnginesFile = Field(description="the engines at the leaf")
    streams: list[Text] = Field(
        default_factory=list,
        description="memories through which concurrent kernels pass tensors; left out, kernels run one by one",
    )
    die: DieFile | None = Field(None, description="how the chip is built, for its area; left out, its area is not known")


class WorkloadFile(BaseModel):
    """The workload: its kind, and the parameters that the kind asks for."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, defer_build=True)
    __pydantic_extra__: dict[str, Parameter]

    kind: Text = Field(description="kind of workload, e.g. gemm-softmax", examples=["gemm-softmax"])


class GraphFile(Model):
    """A graph of one's own: its lines, one operation each, and the extents of its dims."""

    dims: dict[str, Extent] = Field(description="extents by dim", min_length=1)
    lines: list[Text] = Field(description="operations, such as C[m,n] = A[m,k] * B[k,n]", min_length=1)
    dtype: Annotated[Entry[str], word(DTYPE_BYTES, cited=False)] = Field(
        Entry("bf16"), description="element type of tensors that name none"
    )
    outputs: list[Text] = Field(default_factory=list, description="results; left out, the tensors that no line reads")


class GraphWorkload(Model):
    """The workload as a graph of one's own."""

    graph: GraphFile = Field(description="the graph")


def _unchecked(value: object, handler: ValidatorFunctionWrapHandler) -> object:
    """The schema shows what there is to choose from; the check, which knows the lines, is the loader's."""
    return value


class ProblemModel(Model):
    """A problem: map this workload to that chip, for this objective."""

    workload: Annotated[WorkloadFile | GraphWorkload, WrapValidator(_unchecked)] = Field(description="what to run")
    chip: Annotated[Text | ChipFile, WrapValidator(_unchecked)] = Field(
        description="name of a shipped chip, path to a chip file (from this file's folder), or the chip itself"
    )
    objective: Annotated[Entry[str], word(Objective, cited=False)] = Field(Entry("time"), description="what to make small")
    time_limit: Duration | None = Field(None, description="longest time that the search may take; left out, no limit")
    gap: Gap = Field(Entry(0.0), description="relative distance to the proven bound at which the search may stop")
