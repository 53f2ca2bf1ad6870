"""What kind of file a reference names, without reading it."""

from __future__ import annotations

from pathlib import Path

from halley.library import MODELS

CONFIG = "config.json"
NETWORKS = (".onnx", ".pt2")
"""Endings of files of networks."""
OTHER_FILES = (".pt", ".pth", ".safetensors", ".bin", ".gguf", ".mlir", ".stablehlo", ".h5", ".pb", ".tflite")
"""Endings of files of models that are not read."""


def is_network(reference: str) -> bool:
    """Whether it is written as the path of a network: an ONNX file or a program of torch.export.

    >>> is_network("nets/resnet50.onnx"), is_network("block.pt2"), is_network("config.json")
    (True, True, False)
    """
    return reference.lower().endswith(NETWORKS)


def is_model(reference: str) -> bool:
    """Whether it is written as a model rather than as the kind of a workload: a shipped name, a path, a folder with a
    configuration, or pasted text.

    >>> is_model("./config.json"), is_model("llama3-8b"), is_model("gemm"), is_model('{"model_type": "gpt2"}')
    (True, True, False, True)
    """
    text = reference.strip()
    if text.startswith("{") or "/" in text or "\\" in text or text.endswith((".json", ".yaml", ".yml", *NETWORKS, *OTHER_FILES)):
        return True
    return text in MODELS.names() or (is_folder(Path(text)) and (text.startswith(".") or (Path(text) / CONFIG).exists()))


def is_folder(path: Path) -> bool:
    """Whether there is a folder at the path."""
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name that is too long, or has a null byte
        return False
