"""Step tables as Chakra execution traces: what each rank sends and receives, and what each message waits for.

A trace has one file per rank: a `GlobalMetadata`, then a `Node` for each end of a message, each as its length (a varint) and its
bytes. A message is a COMM_SEND_NODE at its source and a COMM_RECV_NODE at its target with the same tag; a send depends on what
arrived of its chunk before. Chunks without bytes are left out. Source: mlcommons/chakra, ``schema/protobuf/et_def.proto`` for
fields and their numbers, its feeder for the attributes ``comm_size``, ``comm_src``, ``comm_dst``, ``comm_tag``, ``is_cpu_op`` and
their types.

The few kinds of protobuf fields that this takes are encoded here, so that no protobuf library is needed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from halley.errors import BadInput, Fault
from halley.network.algorithms.tables import Steps

VERSION = "0.0.4"
"""Version of the schema that a trace names."""
SEND, RECEIVE = 5, 6
"""COMM_SEND_NODE and COMM_RECV_NODE among the types of nodes."""
TYPES = {SEND: "COMM_SEND_NODE", RECEIVE: "COMM_RECV_NODE"}
NODES_LIMIT = 2_000_000
"""Most nodes of a trace, all ranks together."""
_VARINT, _BYTES = 0, 2
"""Wire types of protobuf."""
_INT32, _INT64, _BOOL = 7, 9, 27
"""Numbers of the value fields of an AttributeProto."""


@dataclass(frozen=True, slots=True)
class Node:
    """One end of a message of ``size`` [B]. ``waits``: numbers of the rank's nodes that come before it."""

    number: int
    name: str
    type: int
    size: int
    source: int
    target: int
    tag: int
    waits: tuple[int, ...] = ()


Trace: TypeAlias = tuple[tuple[Node, ...], ...]
"""Per rank, its nodes."""


def trace(table: Steps, sizes: Sequence[int], ranks: int, name: str = "transfer") -> Trace:
    """The nodes of every rank; ``sizes`` [chunks] in bytes.

    >>> from halley.network.algorithms.tables import Transfer
    >>> first, second, _ = trace(((Transfer(0, 1, 0, True),), (Transfer(1, 2, 0, False),)), [8], 3)
    >>> [(TYPES[node.type], node.waits) for node in second]
    [('COMM_RECV_NODE', ()), ('COMM_SEND_NODE', (0,))]

    Raises BadInput: transfers that switches carry, which are no messages between ranks; too many messages.
    """
    if any(t.shared for step in table for t in step):
        remedy = "choose an algorithm that works without switches, such as ring"
        raise BadInput(Fault("Chakra trace", "messages between ranks", "a collective inside switches", remedy))
    messages = sum(1 for step in table for t in step if sizes[t.chunk])
    if 2 * messages > NODES_LIMIT:
        raise BadInput(Fault("Chakra trace", f"at most {NODES_LIMIT} nodes", str(2 * messages), "choose fewer ranks or pieces"))
    nodes: list[list[Node]] = [[] for _ in range(ranks)]
    arrived: dict[tuple[int, int], tuple[int, ...]] = {}
    tag = 0
    for number, step in enumerate(table):
        landing: dict[tuple[int, int], list[tuple[int, bool]]] = defaultdict(list)
        for t in (t for t in step if sizes[t.chunk]):
            ends = (sizes[t.chunk], t.source, t.target, tag)
            label = f"{name} step {number} chunk {t.chunk}"
            waits = arrived.get((t.source, t.chunk), ())
            nodes[t.source].append(Node(len(nodes[t.source]), label, SEND, *ends, waits))
            landing[t.target, t.chunk].append((len(nodes[t.target]), t.combine))
            nodes[t.target].append(Node(len(nodes[t.target]), label, RECEIVE, *ends))
            tag += 1
        for place, landed in landing.items():
            before = arrived.get(place, ()) if all(combine for _, combine in landed) else ()
            arrived[place] = (*before, *(index for index, _ in landed))
    return tuple(tuple(mine) for mine in nodes)


def trace_files(made: Trace, prefix: str) -> Iterator[tuple[str, bytes]]:
    """(name, content) of each rank's file: ``prefix.RANK.et``."""
    for rank, nodes in enumerate(made):
        messages = [_text(1, VERSION), *(_node(node) for node in nodes)]
        yield f"{prefix}.{rank}.et", b"".join(_varint(len(item)) + item for item in messages)


def trace_document(made: Trace) -> list[dict[str, Any]]:
    """The trace as plain data, per rank: what a JSON printer of protobuf shows of each node, with plain numbers."""
    return [{"rank": rank, "nodes": [_plain(node) for node in nodes]} for rank, nodes in enumerate(made)]


def _plain(node: Node) -> dict[str, Any]:
    values = [(name, field, bool(value) if field == _BOOL else value) for name, field, value in _attributes(node)]
    attributes = [{"name": name, _JSON[field]: value} for name, field, value in values]
    waits = {"data_deps": list(node.waits)} if node.waits else {}
    return {"id": node.number, "name": node.name, "type": TYPES[node.type], **waits, "attr": attributes}


_JSON = {_INT32: "int32_val", _INT64: "int64_val", _BOOL: "bool_val"}


def _attributes(node: Node) -> tuple[tuple[str, int, int], ...]:
    """(name, number of the value's field, value)."""
    return (
        ("is_cpu_op", _BOOL, 0),
        ("comm_size", _INT64, node.size),
        ("comm_src", _INT32, node.source),
        ("comm_dst", _INT32, node.target),
        ("comm_tag", _INT32, node.tag),
    )


def _node(node: Node) -> bytes:
    """A Node: id 1, name 2, type 3, data_deps 5 (packed), attr 10."""
    attributes = (_text(1, name) + _number(field, value) for name, field, value in _attributes(node))
    waits = b"".join(map(_varint, node.waits))
    return b"".join(
        (
            _number(1, node.number),
            _text(2, node.name),
            _number(3, node.type),
            _counted(5, waits) if waits else b"",
            *(_counted(10, attribute) for attribute in attributes),
        )
    )


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the top bit says that more follow.

    >>> _varint(300)
    b'\\xac\\x02'
    """
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value)


def _counted(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(content)) + content


def _text(field: int, text: str) -> bytes:
    return _counted(field, text.encode("utf-8"))
