"""Elementwise operators of a network as part of the layer that makes what they read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from halley.errors import BadInput
from halley.importers.assembly import VIEW, distinct_layers
from halley.importers.lowering.node import LoweredNode
from halley.importers.network import ImportedNetwork, NetworkNode
from halley.workloads.user import graph

RETURN_PLACE = 2**62
"""The place of what the network returns, behind all nodes."""
LAYER_NODES_LIMIT = 6
"""Most nodes of a layer: longer chains, which real networks hardly have, become several layers."""

SAME_ORDER = frozenset({
    "Cast", "Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze",
    "_reshape_alias", "_to_copy", "_unsafe_view", "alias", "clone", "contiguous", "detach", "dropout", "feature_dropout",
    "flatten", "ravel", "reshape", "squeeze", "to", "type_as", "unflatten", "unsqueeze", "view", "view_as",
})  # fmt: skip
"""Views, of ONNX and of PyTorch, whose result has all elements of their first value, in its order."""

TENSOR = re.compile(r"(\w+)\[([^\]]*)\]")
CALL = re.compile(r"\w+\[[^\]]*\] = \w+\(.*\)")


def fused(network: ImportedNetwork) -> ImportedNetwork:
    """The network, with chains such as convolution, norm in inference, sum with the shortcut and ReLU as one layer each.

    before: ``Y[f,p] = X[c,p] * W[f,c]`` and, of the next node, ``Y[i] = relu(X[i])``
    after:  ``Y[f,p] = X[c,p] * W[f,c]; Y_1[f,p] = relu(Y[f,p])``

    A layer takes up the nodes behind it as long as each computes an element from those at the same place, and nothing else reads
    what is between them; views that keep the order of the elements may be between them, too. The search may then keep it in an
    inner memory, or write it as before: the space of the one layer contains the mappings of the several. What the network
    computes does not change.

    What follows from constants alone is computed before the network runs: the scale of a norm in inference becomes a part of the
    weights before it, and what is added to a channel one vector.
    """
    chains = list(_chains(network))
    last = {chain.places[-1]: chain for chain in chains}
    gone = {place for chain in chains for place in chain.places[:-1]}
    nodes = tuple(
        last[place].node(network.nodes) if place in last else node
        for place, node in enumerate(network.nodes)
        if place not in gone
    )
    names = {name: layer.name for layer in network.layers for name in layer.nodes}  # of layers that stay as they were
    layers = (
        layer if "+" in layer.operator else replace(layer, name=names[layer.nodes[0]])
        for layer in distinct_layers(nodes, network.dtype)
    )
    return replace(network, nodes=nodes, layers=tuple(layers))


@dataclass(slots=True)
class _Chain:
    """Nodes by their ``places``, and them as one graph: ``lines``, ``inputs`` and ``steps`` as of a `LoweredNode`. ``dims``: the
    extents; ``at``: the dims of the results; ``made``: the tensor of each value that a node of the chain makes. ``ahead``: lines
    on constants alone; ``bare``: so far the chain is one product with constant weights and, if there is a ``shift``, the sum with
    this tensor."""

    places: list[int]
    lines: list[str]
    dims: Mapping[str, int]
    at: tuple[str, ...]
    inputs: dict[str, str]
    made: dict[str, str]
    first: LoweredNode
    computed: dict[str, object] = field(default_factory=dict)
    ahead: list[str] = field(default_factory=list)
    bare: bool = False
    shift: str = ""

    def lowered(self) -> LoweredNode:
        value, tensor = list(self.made.items())[-1]
        outputs = {tensor: value}
        lines, ahead = tuple(self.lines), tuple(self.ahead)
        return LoweredNode(lines, self.dims, self.inputs, outputs, self.computed, self.first.steps, ahead, self.first.rows)

    def node(self, nodes: Sequence[NetworkNode]) -> NetworkNode:
        """The chain as one node, named as the last of them, with the operators of all."""
        own = [nodes[place] for place in self.places]
        inside = list(self.made)[:-1]
        values = dict.fromkeys(name for node in own for name in node.values if name not in inside)
        return NetworkNode(own[-1].name, "+".join(node.operator for node in own), self.lowered(), "", tuple(values))


def _chains(network: ImportedNetwork) -> Iterator[_Chain]:
    """The chains of at least two nodes, none of which shares a node with another."""
    viewed = _viewed(network)
    readers: dict[str, set[int]] = {}
    for place, node in enumerate(network.nodes):
        written = set(node.lowered.outputs.values()) if node.lowered else set()
        if node.values and node.values[-1] in viewed:
            continue
        for name in set(node.values) - written:
            readers.setdefault(viewed.get(name, name), set()).add(place)
    for name in network.results:
        readers.setdefault(viewed.get(name, name), set()).add(RETURN_PLACE)
    taken: set[int] = set()
    for place in range(len(network.nodes)):
        if place not in taken:
            chain = _longest(network, place, readers, viewed, taken)
            if chain is not None:
                taken.update(chain.places)
                yield chain


def _viewed(network: ImportedNetwork) -> dict[str, str]:
    """By value that has all elements of another one in its order, that one."""
    found: dict[str, str] = {}
    for node in network.nodes:
        own = [name for name in node.values if name not in network.constant]
        if node.reason == VIEW and node.operator in SAME_ORDER and len(own) == 2 and own[1] == node.values[-1]:
            found[own[1]] = found.get(own[0], own[0])
    return found


def _longest(
    network: ImportedNetwork, start: int, readers: Mapping[str, set[int]], viewed: Mapping[str, str], taken: set[int]
) -> _Chain | None:
    """The longest chain from a node; None if nothing behind it belongs to it."""
    chain = _begun(network, start)
    best = None
    while chain is not None and len(chain.places) < LAYER_NODES_LIMIT:
        behind = {place for name in chain.made for place in readers.get(name, ())} - set(chain.places)
        if not behind or min(behind) in taken or RETURN_PLACE in behind:
            break
        alone = readers[list(chain.made)[-1]] == behind if list(chain.made)[-1] in readers else False
        chain = _with(chain, min(behind), network.nodes[min(behind)].lowered, network.constant, viewed, alone)
        if chain is not None and _closed(chain, readers) and _valid(chain, network.dtype):
            best = chain
    return best


def _closed(chain: _Chain, readers: Mapping[str, set[int]]) -> bool:
    """Whether only the chain reads what its nodes make, but for the last result."""
    return all(readers.get(name, set()) <= set(chain.places) for name in list(chain.made)[:-1])


def _valid(chain: _Chain, dtype: str) -> bool:
    """Whether a workload can be so large."""
    made = chain.lowered()
    try:
        graph(made.lines, made.dims, dtype, tuple(made.outputs))
    except BadInput:
        return False
    return True


def _begun(network: ImportedNetwork, place: int) -> _Chain | None:
    first = network.nodes[place].lowered
    if first is None or len(first.outputs) != 1:
        return None
    ((tensor, value),) = first.outputs.items()
    at = next((names for name, names in _tensors(first.lines[-1]) if name == tensor), ())
    if not at or any(not name.isidentifier() for name in at):
        return None
    fixed = {name for name, origin in first.inputs.items() if origin in network.constant} | first.computed.keys()
    ahead = [line for line in first.lines[:-1] if "=" in line and {name for name, _ in list(_tensors(line))[1:]} <= fixed]
    lines = [line for line in first.lines if line not in ahead]
    shift = _constant_sum(lines, fixed)
    product = lines[-2] if shift else lines[-1]
    operands = [name for name, _ in _tensors(product)]
    return _Chain(
        [place],
        lines,
        first.dims,
        at,
        dict(first.inputs),
        {value: tensor},
        first,
        dict(first.computed),
        ahead,
        bare=" * " in product and len(operands) == 3 and operands[2] in fixed,
        shift=shift,
    )


def _constant_sum(lines: Sequence[str], fixed: Set[str]) -> str:
    """The constant that the last line adds to the line before; "" if it adds none.

    >>> _constant_sum(["Y1[f,p] = X[c,p] * W[f,c]", "Y[f,p] = add(Y1[f,p], B[f])"], {"W", "B"})
    'B'
    """
    if len(lines) < 2 or "= add(" not in lines[-1]:
        return ""
    read = [name for name, _ in list(_tensors(lines[-1]))[1:]]
    made = next((name for name, _ in _tensors(lines[-2])), "")
    return read[1] if len(read) == 2 and read[0] == made and read[1] in fixed else ""


def _with(
    chain: _Chain, place: int, node: LoweredNode | None, constant: Set[str], viewed: Mapping[str, str], alone: bool
) -> _Chain | None:
    """The chain and a node behind it; None if the node is no function of elements at one place. ``alone``: nothing else reads the
    last result of the chain."""
    if node is None or len(node.outputs) != 1 or node.steps or node.rows or node.ahead or not _elementwise(node):
        return None
    whole = next(iter(node.outputs))
    own = dict(pair for line in node.lines for pair in _tensors(line))
    places = _aligned([(name, node.dims[name]) for name in own[whole]], [(name, chain.dims[name]) for name in chain.at])
    if places is None or set(places) != set(node.dims):
        return None
    origins = {tensor: viewed.get(value, value) for tensor, value in node.inputs.items()}
    shared = {tensor: chain.made[value] for tensor, value in origins.items() if value in chain.made}
    if any(own[tensor] != own[whole] for tensor in shared):
        return None
    used = {name for line in chain.lines for name, _ in _tensors(line)}
    names = {tensor: shared.get(tensor) or _unused(tensor, len(chain.places), used) for tensor in own}

    def moved(match: re.Match[str]) -> str:
        return f"{names[match[1]]}[{','.join(new for old in match[2].split(',') for new in places[old.strip()])}]"

    inputs = {names[tensor]: value for tensor, value in node.inputs.items() if tensor not in shared}
    lines = [TENSOR.sub(moved, line) for line in node.lines]
    value = node.outputs[whole]
    more = replace(
        chain,
        places=[*chain.places, place],
        inputs=chain.inputs | inputs,
        computed=chain.computed | {names[tensor]: array for tensor, array in node.computed.items()},
        made=chain.made | {value: names[whole]},
    )
    if alone and chain.bare and set(inputs.values()) <= constant:
        folded = _folded(more, lines, chain.made[list(chain.made)[-1]], names[whole])
        if folded is not None:
            return folded
    fixed = {name for name, origin in inputs.items() if origin in constant} | more.computed.keys()
    ahead = [line for line in lines[:-1] if {name for name, _ in list(_tensors(line))[1:]} <= fixed]
    return replace(
        more, lines=[*chain.lines, *(line for line in lines if line not in ahead)], ahead=[*chain.ahead, *ahead], bare=False
    )


def _folded(chain: _Chain, lines: Sequence[str], last: str, result: str) -> _Chain | None:
    """The chain with a node that multiplies and shifts each channel by constants: the factor in the weights, what is added in one
    vector; None if the node does something else. ``lines``: of the node, which reads the tensor ``last`` and makes ``result``."""
    product = chain.lines[-2] if chain.shift else chain.lines[-1]
    (made, at), _, (weights, along) = _tensors(product)
    tensors = dict(pair for line in lines for pair in _tensors(line))
    channels = set(at) & set(along)
    if any(not set(dims) <= channels for name, dims in tensors.items() if name not in (last, result)):
        return None
    text = {name: f"{name}[{','.join(dims)}]" for name, dims in tensors.items()} | {weights: f"{weights}[{','.join(along)}]"}
    found = re.fullmatch(r"\w+\[.*?\] = (\w+)\((.*)\)", lines[-1])
    arguments = [name for name, _ in list(_tensors(lines[-1]))[1:]]
    ahead = list(chain.ahead)

    def new(word: str, dims: Sequence[str], function: str, *of: str) -> str:
        used = {name for line in (*chain.lines, *lines, *ahead) for name, _ in _tensors(line)}
        name = _unused(word, len(chain.places), used)
        text[name] = f"{name}[{','.join(dims)}]"
        ahead.append(f"{text[name]} = {function}({', '.join(text[item] for item in of)})")
        tensors[name] = tuple(dims)
        return name

    def both(*of: str) -> list[str]:
        return [dim for dim in at if any(dim in tensors[name] for name in of)]

    if chain.shift:
        tensors[chain.shift], text[chain.shift] = next(
            (dims, f"{name}[{','.join(dims)}]") for name, dims in _tensors(chain.lines[-1]) if name == chain.shift
        )
    match found and found[1], arguments:
        case "normalise_affine", [first, mean, root, gain, bias] if (
            first == last and len(lines) == 2 and root not in chain.inputs
        ):
            ahead.append(lines[0])
            scale = new("S", both(gain, root), "mul", gain, root)
            moved = new("Q", both(mean, scale), "mul", mean, scale)
            shift = new("T", both(bias, moved), "subtract", bias, moved)
        case "mul", [one, other] if len(lines) == 1 and (one == last) != (other == last):
            scale, shift = other if one == last else one, ""
        case "add", [one, other] if len(lines) == 1 and (one == last) != (other == last):
            scale, shift = "", other if one == last else one
        case _:
            return None
    total = chain.shift
    if scale:
        scaled = new("W", along, "mul", weights, scale)
        product = product.replace(f" * {weights}[", f" * {scaled}[")
        total = new("T", both(total, scale), "mul", total, scale) if total else ""
    if shift:
        total = new("T", both(total, shift), "add", total, shift) if total else shift
    inside = f"{made}[{','.join(at)}]"
    start = chain.lines[: -2 if chain.shift else -1]
    if not total:
        values = chain.made | {list(chain.made)[-1]: made}
        return replace(chain, lines=[*start, product], ahead=ahead, made=values)
    return replace(
        chain, lines=[*start, product, f"{result}[{','.join(at)}] = add({inside}, {text[total]})"], ahead=ahead, shift=total
    )


def _unused(tensor: str, place: int, used: set[str]) -> str:
    """A name for a tensor of the node at this place of the chain."""
    name = f"{tensor}_{place}"
    while name in used:
        name += "_"
    return name


def _tensors(line: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The tensors of a line with their indices."""
    for match in TENSOR.finditer(line):
        yield match[1], tuple(part.strip() for part in match[2].split(",") if part.strip())


def _elementwise(node: LoweredNode) -> bool:
    """Whether every line computes an element from those at the same place, or from fewer dims."""
    for line in node.lines:
        (_, result), *read = _tensors(line)
        if not CALL.fullmatch(line) or not read or any(not set(dims) <= set(result) for _, dims in read):
            return False
        if any(name not in node.dims for name in result):
            return False
    return True


def _aligned(dims: Sequence[tuple[str, int]], target: Sequence[tuple[str, int]]) -> dict[str, tuple[str, ...]] | None:
    """By dim, the dims of the target that it stands for, in their order; None if a dim would be a part of one, or of two of them.

    >>> _aligned([("i", 6), ("j", 4)], [("a", 2), ("b", 3), ("c", 4)])
    {'i': ('a', 'b'), 'j': ('c',)}
    >>> _aligned([("i", 4), ("j", 6)], [("a", 2), ("b", 3), ("c", 4)]) is None
    True
    """
    found: dict[str, tuple[str, ...]] = {}
    left = list(target)
    for name, extent in dims:
        own: list[str] = []
        size = 1
        while left and (size < extent or left[0][1] == 1):
            size *= left[0][1]
            own.append(left.pop(0)[0])
        if size != extent or not own:
            return None
        found[name] = tuple(own)
    return None if left else found
