"""What anyone would write to infer once: ``python bare.py BACKEND FILE SAMPLE.npy THREADS`` prints ``done`` when it has.

Imports the framework and numpy, and nothing of edgeq's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np


def openvino(file: str, sample: Any, threads: int) -> Any:
    import openvino

    config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}
    model = openvino.Core().compile_model(file, "CPU", config)
    return model([sample])[0]


def tflite(file: str, sample: Any, threads: int) -> Any:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=file, num_threads=threads)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], sample)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


def onnxruntime(file: str, sample: Any, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: sample})[0]


def pytorch(file: str, sample: Any, threads: int) -> Any:
    import torch

    torch.set_num_threads(threads)
    module = torch.jit.load(file).eval()
    with torch.inference_mode():
        return module(torch.from_numpy(sample)).numpy()


FRAMEWORKS: dict[str, Callable[[str, Any, int], Any]] = {
    "openvino": openvino,
    "tflite": tflite,
    "onnxruntime": onnxruntime,
    "pytorch": pytorch,
}


def main(backend: str, file: str, sample: str, threads: str) -> None:
    """Prints ``done`` once there are logits."""
    logits = FRAMEWORKS[backend](file, np.load(sample), int(threads))
    if not np.isfinite(logits).all():
        raise SystemExit("the logits are not finite")
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
