"""``halley mcp``: the tools for an agent, by the Model Context Protocol over stdin and stdout."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any

from halley.errors import BadInput, Fault, HalleyError
from halley.products.tools import ToolAnswer, Tools
from halley.version import halley_version

ABOUT = (
    "Predicts and provably optimises how machine-learning workloads run on accelerators. Values are in SI units; lower_bound is "
    "proven for all mappings or plans of the declared space."
)


def mcp() -> None:
    """Serve optimise, plan, collective, time and explain to an agent, by the Model Context Protocol over stdin and stdout.

    Needs the extra mcp. Example of a client's configuration: {"command": "halley", "args": ["mcp"]}
    """
    server().run()


def server(tools: Tools | None = None) -> Any:
    """The server of the package ``mcp``, with its tools. Raises BadInput: the package is missing."""
    try:
        made = import_module("mcp.server").MCPServer("halley", instructions=ABOUT, version=halley_version())
        failed = import_module("mcp.server.mcpserver.exceptions").ToolError
    except (ImportError, AttributeError):
        raise BadInput(Fault("mcp", "the package mcp, version 2 or later", "none", "run: pip install 'halley[mcp]'")) from None
    for tool in (tools or Tools()).all():
        made.tool()(_telling(tool, failed))
    return made


def _telling(tool: Callable[..., ToolAnswer], failed: type[Exception]) -> Callable[..., ToolAnswer]:
    """The tool; the agent gets the faults of its arguments."""

    @wraps(tool)
    def answered(*args: Any, **kwargs: Any) -> ToolAnswer:
        try:
            return tool(*args, **kwargs)
        except HalleyError as error:
            raise failed(str(error)) from None

    return answered
