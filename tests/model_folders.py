"""A model's folder for tests: ``model.toml`` of a small network."""

from __future__ import annotations


def model_toml(
    name: str,
    package: str,
    constructor: str,
    *,
    macs: int = 1,
    parameters: int = 1,
    mean: float = 0.5,
    std: float = 0.5,
) -> str:
    """The text of a model of ten classes that takes 32 by 32 pixels, all channels normalised alike."""
    return f"""
name = "{name}"
title = "{name.capitalize()}"
input_shape = [3, 32, 32]
classes = 10
macs = {macs}
parameters = {parameters}
[source]
package = "{package}"
constructor = "{constructor}"
[preprocess]
resize = 32
crop = 32
mean = [{mean}, {mean}, {mean}]
std = [{std}, {std}, {std}]
"""
