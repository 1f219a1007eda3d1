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


def profile_toml(name: str) -> str:
    """The text of a profile whose cells take a tenth of a second."""
    return f"""
name = "{name}"
title = "{name}, for tests"
resident_samples = 4
cell_budget_s = 30
accuracy_budget_s = 30
[single-stream]
min_duration_s = 0.1
min_queries = 64
percentile = 0.90
[multi-stream]
min_duration_s = 0.1
min_queries = 64
percentile = 0.90
[offline]
min_duration_s = 0.1
min_samples = 64
[server]
min_duration_s = 0.1
min_queries = 64
percentile = 0.90
latency_ms = 100
"""
