"""What a user names as a model: a shipped name, a model file, or a configuration as a file, a folder or pasted text."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from halley.errors import BadInput, Fault
from halley.importers.config import import_config
from halley.importers.files import CONFIG, OTHER_FILES, is_folder, is_model, is_network
from halley.importers.hybrids import hybrid_groups, hybrid_layers, hybrid_missing
from halley.importers.layers import shape_groups, shape_layers
from halley.importers.model import ImportedModel
from halley.io.files.text import read_text_bounded
from halley.io.transformers import ModelDescription, load_description
from halley.library import MODELS
from halley.workloads.transformer import Transformer

PASTED = "the pasted text"
MEANINGS = {"--weights": "weights", "--state": "recurrent states"}
"""By option of serving, what has a format."""


def find_model(reference: str) -> ImportedModel:
    """The model that a name, a path or a text leads to.

    >>> find_model("llama3-8b").parameters
    8030261248

    Raises BadInput: none of a shipped name, a file that can be read, and a configuration; every fault of the file.
    """
    if reference.lstrip().startswith("{"):
        return import_config(reference, PASTED)
    if reference in MODELS.names():
        return of_description(load_description(reference), f"{reference}.yaml")
    if is_network(reference):
        remedy = "'halley import' lists its layers, 'halley optimise' maps them"
        raise BadInput(Fault(reference[:60], "a transformer", "a network of layers", remedy))
    if not is_model(reference):
        raise BadInput(MODELS.unknown(reference))
    if reference.lower().endswith(OTHER_FILES):
        got = f"a {Path(reference).suffix[:12]} file"
        jax = reference.lower().endswith((".mlir", ".stablehlo"))
        remedy = "export it to ONNX, or save it by torch.export.save"
        if jax:
            remedy = f"StableHLO of JAX is not read yet: name the {CONFIG} of the model, or write its layers as a graph"
        raise BadInput(Fault(reference[:60], f"a {CONFIG}, an ONNX file or a .pt2 file", f"{got}, which is not read", remedy))
    path = Path(reference)
    folder = is_folder(path)
    if folder:
        path = path / CONFIG
        if not path.exists():
            raise BadInput(Fault(reference, f"a folder with {CONFIG}", "none in it", "name the folder of a model"))
    text = read_text_bounded(path)
    if path.suffix in (".yaml", ".yml"):
        return of_description(load_description(path), str(path))
    folder_name = path.absolute().parent.name if folder or path.parent.name else ""
    return import_config(text, str(path), folder_name if path.name == CONFIG else path.stem)


def of_description(model: ModelDescription, source: str) -> ImportedModel:
    """A model of a file: a transformer, which a plan trains as a whole, or a hybrid, which is served."""
    shape, window, windowed, hybrid = model.shape, model.keys, model.windowed, model.hybrid
    if hybrid is not None:
        made = tuple(hybrid_groups(shape, hybrid)), None, hybrid_layers(shape, hybrid), hybrid_missing(shape.layers, hybrid)
        return ImportedModel(shape.name, "hybrid", source, *made, window=window, windowed=windowed, served=shape, hybrid=hybrid)
    groups, layers = tuple(shape_groups(shape)), shape_layers(shape, window, windowed == shape.layers)
    return ImportedModel(shape.name, "transformer", source, groups, shape, layers, window=window, windowed=windowed)


def description(model: ImportedModel) -> ModelDescription:
    """What a model file says of a model. Raises BadInput: it is neither trained nor served."""
    shape = planned(model) if model.served is None else model.served
    return ModelDescription(shape, model.window, model.windowed, model.hybrid)


def planned(model: ImportedModel) -> Transformer:
    """The transformer that a plan trains. Raises BadInput: the model is none."""
    if model.shape is None:
        remedy = f"'halley import' counts it; its layers are workloads: --layer {', '.join(model.layers)}"
        if model.served is not None:
            remedy = f"'halley serve' and 'halley plan --serve' take it; {remedy}"
        raise BadInput(Fault(f"model {model.name}", "a decoder transformer", model.missing, remedy))
    return model.shape


def plan_remarks(model: ImportedModel, sequence: int | None = None) -> list[str]:
    """What a plan leaves out of the model, with its share, and how the file was read; ``sequence``: tokens of a sequence, by
    default as in the training."""
    found = [*model.remarks, *format_remarks(model)]
    if model.windowed and model.shape is not None:
        found.append(_window_words(model, model.shape, sequence or model.shape.sequence))
    left = model.left_out
    if left and model.shape is not None:
        count = sum(group.parameters for group in left)
        words = ", ".join(group.what for group in left)
        share = f"{count:,} of {model.parameters:,} parameters ({100 * count / model.parameters:.2g} %)"
        found.append(f"a plan leaves out {words}: {share}")
    return found


def format_remarks(model: ImportedModel, asked: Mapping[str, Collection[str]] | None = None) -> list[str]:
    """Formats of the file that serving takes by an option, but for those ``asked`` for, by option."""
    return [
        f"its file has {MEANINGS[option]} in {given}: '{option} {given}' serves it so"
        for option, given in model.formats.items()
        if given not in (asked or {}).get(option, ())
    ]


def _window_words(model: ImportedModel, shape: Transformer, sequence: int) -> str:
    """What a plan computes beyond the windows, as a share of its forward pass."""
    places = f"{model.windowed} of {shape.layers} layers see {model.window} keys"
    if model.window >= sequence:
        return f"{places}: all of them in sequences of {sequence} tokens"
    scores = 4 * shape.heads * shape.head_dim * sequence
    beyond = model.windowed * scores * (1 - model.window / sequence)
    share = beyond / (model.work + shape.layers * scores)
    return (
        f"{places}; a plan attends to all keys: {share:.1%} of its forward operations at {sequence} tokens are beyond the windows"
    )
