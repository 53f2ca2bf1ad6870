"""What kind of file a reference names, without reading it."""

from __future__ import annotations


def is_onnx(reference: str) -> bool:
    """Whether it is written as the path of an ONNX file.

    >>> is_onnx("nets/resnet50.onnx"), is_onnx("config.json")
    (True, False)
    """
    return reference.lower().endswith(".onnx")
