"""TFLite artifact → ``Session``: LiteRT's interpreter, or its older form ``tflite_runtime`` where a device has that."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgeq.artifact import InputInfo, Manifest
from edgeq.backends.batches import Batches, collect
from edgeq.backends.macs import shares
from edgeq.backends.session import Array, Call, Done, Effective, SessionOptions, bound
from edgeq.backends.tflite_graph import Graph, read_graph
from edgeq.installing import pip_install
from edgeq.spec.errors import EdgeqError

#: Module → distribution, the preferred one first; both hold the same ``interpreter.Interpreter``.
_RUNTIMES = {"ai_edge_litert": "ai-edge-litert", "tflite_runtime": "tflite-runtime"}


class TfliteSession:
    """One interpreter a stream, each with its share of the threads, resized to ``options.batch`` samples a call."""

    def __init__(self, manifest: Manifest, path: Path, options: SessionOptions) -> None:
        """Raises ``EdgeqError`` as ``open_session`` does."""
        self._manifest = manifest
        self._streams = max(1, options.streams)
        self._threads = max(1, options.threads // self._streams)
        make, self._runtime = _interpreter_class()
        _refuse_truncated(path, manifest)
        size = options.batch
        self._interpreters = [_load(make, path, self._threads, size) for _ in range(self._streams)]
        self._input_index = _tensor_index(self._interpreters[0], "input", (size, *manifest.input.shape), path)
        self._output_index = _tensor_index(self._interpreters[0], "output", (size, manifest.classes), path)
        if self._runtime.startswith("tflite-runtime") and self._graph().has_per_channel_hybrid_linear():
            raise _too_old(self._runtime, path)
        self._batches = Batches(self._streams, size, manifest.input.shape, fixed=True)

    @property
    def input(self) -> InputInfo:
        return self._manifest.input

    @property
    def classes(self) -> int:
        return self._manifest.classes

    def infer(self, batch: Array) -> Array:
        """Infers ``[n, *input.shape]`` as ``infer_many`` does; one sample where calls take one, at once."""
        if len(batch) == 1 and self._batches.batch == 1:
            return self._run(0, batch)
        return collect(self, batch)

    def bind(self, batch: Array, logits: Array) -> Call:
        """``Session.bind``: both are copied, as ``infer`` does; the interpreter's memory is its own."""
        return bound(self.infer, batch, logits)

    def infer_many(self, samples: Sequence[Array], done: Done) -> None:
        """Infers all samples on all streams; see ``Session.infer_many``."""
        self._batches.run(samples, self._run, done)

    def _run(self, stream: int, batch: Array) -> Array:
        # set_tensor is one memcpy. Writing through interpreter.tensor() is one too, and a view still alive at invoke()
        # makes the interpreter refuse to run. get_tensor copies, so the result is the caller's.
        interpreter = self._interpreters[stream]
        interpreter.set_tensor(self._input_index, batch)
        interpreter.invoke()
        logits: Array = interpreter.get_tensor(self._output_index)
        return logits

    def effective(self) -> Effective:
        """Threads as given to the interpreters; delegation and precisions from the interpreter's own node list."""
        graph = self._graph()
        nodes, delegated = graph.originals, graph.delegated()
        macs, notes = shares(graph.executed(), self._manifest.layers)
        partitions = len(graph.nodes) - len(nodes)
        extra: dict[str, Any] = {
            "runtime": self._runtime,
            "nodes": len(nodes),
            "delegated_nodes": len(delegated),
            "delegate_partitions": partitions,
            "threads_per_stream": self._threads,
        }
        missed = sorted({node.op for node in nodes} - {node.op for node in delegated})
        if missed:
            extra["operators_never_delegated"] = missed
        if any(tensor.dtype == "float16" for tensor in graph.tensors.values()):
            extra["weights"] = "float16 in the file, widened to float32 when it is loaded"
        return Effective(
            threads=self._threads * self._streams,
            streams=self._streams,
            batch=self._batches.batch,
            engine=_engine(len(delegated), len(nodes)),
            macs=macs,
            float_ops=graph.float_ops(),
            extra=extra,
            warnings=notes,
        )

    def _graph(self) -> Graph:
        interpreter = self._interpreters[0]
        return read_graph(interpreter._get_ops_details(), interpreter.get_tensor_details())

    def close(self) -> None:
        self._batches.close()
        self._interpreters = []


def open_session(manifest: Manifest, path: Path, options: SessionOptions) -> TfliteSession:
    """Loads a ``.tflite`` file.

    Raises:
        EdgeqError: the runtime can't be imported (code ``import-failed``); it refuses the file, or the file's input or
            output is not what the manifest says (``load-failed``); the file takes integers (``integer-input``); or the
            runtime would compute it wrongly (``runtime-too-old``).
    """
    return TfliteSession(manifest, path, options)


def _interpreter_class() -> tuple[Any, str]:
    for module, distribution in _RUNTIMES.items():
        if importlib.util.find_spec(module) is None:
            continue
        try:
            found = importlib.import_module(f"{module}.interpreter").Interpreter
        except ImportError as error:
            # Trap 30: tflite-runtime 2.14 was built for numpy 1.
            raise EdgeqError(
                f"{distribution} does not import", f"{error} (numpy {np.__version__})",
                "tflite-runtime 2.14 needs numpy<2; ai-edge-litert works with either", code="import-failed",
            ) from error  # fmt: skip
        return found, f"{distribution} {importlib.metadata.version(distribution)}"
    raise EdgeqError(
        "backend tflite is not installed", f"no module named {' or '.join(_RUNTIMES)}",
        f"run: {pip_install('edgeq[tflite]')}", code="not-installed",
    )  # fmt: skip


def _refuse_truncated(path: Path, manifest: Manifest) -> None:
    """tflite-runtime 2.14 does not verify a file: a truncated one is a segmentation fault, not an error."""
    expected = next((entry.bytes for entry in manifest.files if entry.name == path.name), 0)
    if path.is_file() and path.stat().st_size < expected:
        raise _refused(path, f"{path.stat().st_size} bytes of {expected}")


def _load(make: Any, path: Path, threads: int, batch: int) -> Any:
    try:
        interpreter = make(model_path=str(path), num_threads=threads)
        if batch > 1:  # artifacts are exported for one sample
            (tensor,) = interpreter.get_input_details()
            interpreter.resize_tensor_input(tensor["index"], (batch, *tensor["shape"][1:]))
        interpreter.allocate_tensors()
    except (ValueError, RuntimeError, OSError) as error:
        raise _refused(path, str(error)) from error
    return interpreter


def _too_old(runtime: str, path: Path) -> EdgeqError:
    """Seen with 2.14.0: the first channel's scale is taken for all, and the logits are noise without an error."""
    return EdgeqError(
        f"{runtime} computes {path} wrongly",
        "its linear kernel knows one scale for dynamically quantized weights, this file has one a channel",
        "install ai-edge-litert, or run fp32 or int8-static", code="runtime-too-old",
    )  # fmt: skip


def _refused(path: Path, why: str) -> EdgeqError:
    again = "run: edgeq export --backend tflite"
    return EdgeqError(f"TFLite cannot load {path}", why, again, code="load-failed")


def _tensor_index(interpreter: Any, kind: str, shape: tuple[int, ...], path: Path) -> int:
    details = interpreter.get_input_details() if kind == "input" else interpreter.get_output_details()
    if len(details) != 1:
        raise _refused(path, f"it has {len(details)} {kind} tensors where one is needed")
    found = tuple(int(n) for n in details[0]["shape"])
    if found != shape:
        raise _refused(path, f"its {kind} is {list(found)} where the manifest says {list(shape)}")
    if details[0]["dtype"] is not np.float32:
        # Trap 22: integers fed without their scale and zero point give wrong answers and no error.
        raise EdgeqError(
            f"{path} has an {kind} of {details[0]['dtype'].__name__}", "edgeq's TFLite artifacts take and give float32",
            "run: edgeq export --backend tflite", code="integer-input",
        )  # fmt: skip
    return int(details[0]["index"])


def _engine(delegated: int, nodes: int) -> str:
    if delegated == 0:
        return f"TFLite kernels (XNNPACK took 0 of {nodes} nodes)"
    return f"XNNPACK ({delegated} of {nodes} nodes delegated)"
