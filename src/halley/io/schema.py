"""JSON Schemas of Halley's files, made from the models that check them, so that editors complete keys and underline mistakes."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from halley.errors import BadInput, Fault, did_you_mean
from halley.io.chips.chip import ELEMENTARY
from halley.io.files.models import ChipFile, ProblemModel
from halley.io.networks.models import FabricFile
from halley.io.results.collective import CollectiveFile
from halley.io.results.dfmodel import DFModelFile
from halley.io.results.graphs import ShardingFile
from halley.io.results.models import EstimateFile, MappingFile
from halley.io.results.networks import NetworkMappingFile
from halley.io.results.serving import ServingFile
from halley.io.results.serving_plan import ServingPlanFile
from halley.io.results.training import TrainingFile
from halley.io.studies import StudyFile
from halley.io.systems.models import SystemFile
from halley.ir.workload import DTYPE_BYTES
from halley.library import CHIPS

SCHEMAS: dict[str, type[BaseModel]] = {
    "chip": ChipFile,
    "problem": ProblemModel,
    "mapping": MappingFile,
    "estimate": EstimateFile,
    "network-mapping": NetworkMappingFile,
    "collective": CollectiveFile,
    "sharding": ShardingFile,
    "training-plan": TrainingFile,
    "dfmodel-plan": DFModelFile,
    "serving": ServingFile,
    "serving-plan": ServingPlanFile,
    "network": FabricFile,
    "system": SystemFile,
    "study": StudyFile,
}
"""Models by the name of the file that they check."""


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of chip, problem, network, system or study files, or of the files of a kind of answer.

    >>> schema("problem")["required"]
    ['workload', 'chip']

    Raises BadInput: another name.
    """
    if name not in SCHEMAS:
        raise BadInput(Fault("schema", f"one of {', '.join(SCHEMAS)}", repr(name), did_you_mean(name, SCHEMAS)))
    result = SCHEMAS[name].model_json_schema(by_alias=True)
    _tidy(result)
    definitions = result.get("$defs", {})
    for part, definition in definitions.items():
        for key, value in definition.get("properties", {}).items():
            value.setdefault("description", f"{key} of {part} in the Python API")  # a value of Halley's, described there
    # the keys that the loader's rules between parts ask for
    for engine, keys in (("MatrixFile", tuple(DTYPE_BYTES)), ("VectorFile", ELEMENTARY)):
        for table in ("rate", "energy") if engine in definitions else ():
            definitions[engine]["properties"][table]["propertyNames"] = {"enum": sorted(keys)}
            if engine == "VectorFile":
                definitions[engine]["properties"][table]["required"] = sorted(keys)
    if name in ("problem", "system", "study"):
        result["properties"]["chip"]["examples"] = list(CHIPS.names())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **result, "title": f"Halley {name} file"}


def _tidy(node: Any) -> None:
    """Drop what says nothing to a reader: titles made from key names, and null for a key that may be left out instead."""
    if isinstance(node, list):
        for item in node:
            _tidy(item)
    if not isinstance(node, dict):
        return
    if isinstance(node.get("title"), str):
        del node["title"]
    if "anyOf" in node and "default" in node and node["default"] is None:
        del node["default"]
        choices = [choice for choice in node.pop("anyOf") if choice != {"type": "null"}]
        node.update(choices[0] if len(choices) == 1 else {"anyOf": choices})
    if isinstance(node.get("default"), dict) and "origin" in node["default"]:
        node["default"] = node["default"]["value"]  # of an `Entry`
    for item in node.values():
        _tidy(item)
