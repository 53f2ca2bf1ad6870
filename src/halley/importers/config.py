"""Configurations of Hugging Face (``config.json``): any of the known architectures as an `ImportedModel`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from halley.errors import did_you_mean
from halley.importers.decoders import DECODERS
from halley.importers.fields import Fields
from halley.importers.model import ImportedModel
from halley.importers.others import OTHERS
from halley.io.files.json_text import read_json

TEXT_PARTS = ("text_config", "llm_config", "language_config")
"""Keys under which a model of several media has its text model."""
MEDIA = {
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "mistral3": "mistral",
    "llava": "llama",
}
"""Model types of several media, with the type of their text model where the file does not say it."""
QUANTISED = {("fp8", 0): "fp8", ("mxfp4", 0): "mxfp4", ("awq", 4): "int4", ("gptq", 4): "int4"}
"""By method and bits (0: none stated), the format of weights that serving has."""
STATES = {"float32": "fp32", "float16": "fp16"}
"""Dtypes of recurrent states, as serving names them."""
NAME_LIMIT = 60
"""Most characters of a model's name; the rest is cut off."""


def import_config(text: str, source: str, name: str = "") -> ImportedModel:
    """The model of a configuration; ``source``: the file's name for messages; ``name``: of the model, if the file has none.

    >>> made = import_config('{"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, '
    ...                      '"vocab_size": 50257}', "config.json", "gpt2")
    >>> f"{made.parameters:,}", f"{made.planned_parameters:,}"
    ('124,439,808', '124,356,864')

    Raises BadInput: no JSON, an unknown architecture, every missing or wrong field.
    """
    document = read_json(text, source)
    fields = Fields(document)
    fields.done()
    given = _name(fields, name)
    remarks: list[str] = []
    kind = fields.word("model_type")
    part = next((key for key in TEXT_PARTS if isinstance(fields.data.get(key), dict)), "")
    if part and kind not in DECODERS:
        whole, fields = kind or "model", fields.inner(part)
        inner = fields.word("model_type") or MEDIA.get(kind, "")
        remarks.append(f"the text model of {whole} alone: encoders of other media are not imported, and not counted")
        kind = inner
    known = [*DECODERS, *OTHERS, *MEDIA]
    if not kind:
        fields.wrong("model_type", "the architecture, such as llama", "take the file of a published model as an example")
    elif kind not in DECODERS and kind not in OTHERS:
        remedy = did_you_mean(kind, known)
        fields.findings.clear()
        fields.wrong("model_type", "a known architecture", remedy)
    fields.done()
    formats = _formats(fields.data)
    if fields.has("quantization_config") and "--weights" not in formats:
        remarks.append("the weights of the file are quantised; commands take the element type that they are asked for")
    if kind in OTHERS:
        counted = OTHERS[kind](fields)
        fields.done()
        remarks += counted.remarks
        said = *remarks, *_assumed(fields)
        total = float(sum(group.parameters for group in counted.groups))
        shape, served = (
            one and replace(one, name=given, published=total, source=f"{source} ({kind})")
            for one in (counted.shape, counted.served)
        )
        made = ImportedModel(
            given,
            kind,
            source,
            counted.groups,
            shape,
            counted.layers,
            counted.missing,
            said,
            served=served,
            hybrid=counted.hybrid,
        )
    else:
        draft = DECODERS[kind](fields)
        draft.note_activation(fields)
        fields.done()
        draft.remarks[:0] = [*remarks, *_assumed(fields)]
        made = draft.finish(given, kind, source)
    return replace(made, formats=formats)


def _formats(data: Mapping[str, object]) -> dict[str, str]:
    """By option of serving, the format of weights and of recurrent states that a file has."""
    found: dict[str, str] = {}
    config = data.get("quantization_config")
    if isinstance(config, dict):
        method, bits = config.get("quant_method"), config.get("bits", 0)
        known = QUANTISED.get((method, bits)) if isinstance(method, str) and isinstance(bits, int) else None
        found |= {"--weights": known} if known else {}
    state = data.get("mamba_ssm_cache_dtype")
    return found | ({"--state": STATES[state]} if isinstance(state, str) and state in STATES else {})


def _assumed(fields: Fields) -> list[str]:
    """What the file leaves to the defaults of its architecture."""
    missing = list(dict.fromkeys(fields.assumed))
    return [f"not in the file, taken from the architecture: {', '.join(missing)}"] if missing else []


def _name(fields: Fields, name: str) -> str:
    """The name of the model: of the file's folder, or as the file says, or its type; printable and short."""
    said = fields.data.get("_name_or_path")
    path = said.rstrip("/").rpartition("/")[2] if isinstance(said, str) else ""
    found = name or path or fields.word("model_type") or "model"
    return "".join(letter for letter in found if letter.isprintable())[:NAME_LIMIT] or "model"
