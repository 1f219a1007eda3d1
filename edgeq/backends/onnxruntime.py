"""ONNX Runtime on its CPU provider: one caller with all threads (latency), or several at once (throughput)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeq.artifact import InputInfo, Manifest
from edgeq.backends import onnxruntime_profile
from edgeq.backends.batches import Batches, collect
from edgeq.backends.macs import shares
from edgeq.backends.session import Array, Call, Done, Effective, SessionOptions, refuse_batch
from edgeq.spec.errors import EdgeqError

if TYPE_CHECKING:
    import onnxruntime

_PROVIDERS = ["CPUExecutionProvider"]
_ERRORS_ONLY = 3


def open_session(manifest: Manifest, path: Path, options: SessionOptions) -> OnnxRuntimeSession:
    """Loads the ONNX file at ``path``.

    Raises:
        EdgeqError: ONNX Runtime refuses the file (code ``load-failed``).
    """
    return OnnxRuntimeSession(manifest, path, options)


def session_options(intra: int) -> onnxruntime.SessionOptions:
    """The options of every session here, so that speed, accuracy and the profile are of the same graph.

    ``intra`` threads work on one operator. Idle ones spin, ONNX Runtime's default: the latency is that of a device
    given to the model; with ``intra`` 1 the caller works alone and nothing spins.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = intra
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = _ERRORS_ONLY
    return options


class OnnxRuntimeSession:
    """Streams of one thread each call one ``InferenceSession`` at once, which holds the weights once; streams of more
    threads have a session each, as the threads of one session serve all its callers alike."""

    def __init__(self, manifest: Manifest, path: Path, options: SessionOptions) -> None:
        import onnxruntime

        refuse_batch(manifest.backend, manifest.scheme, options.batch)
        self._manifest, self._path = manifest, path
        self._streams = min(options.streams, options.threads)
        intra = options.threads // self._streams
        self._options = session_options(intra)
        try:
            self._sessions = [
                onnxruntime.InferenceSession(str(path), self._options, providers=_PROVIDERS)
                for _ in range(1 if intra == 1 else self._streams)
            ]
        except Exception as error:  # Each of ONNX Runtime's errors derives from Exception alone.
            raise EdgeqError(
                f"ONNX Runtime cannot load {path}",
                str(error).splitlines()[0],
                "run: edgeq export, to write the artifact anew",
                code="load-failed",
            ) from error
        self._input_name = self._sessions[0].get_inputs()[0].name
        self._output_names = [self._sessions[0].get_outputs()[0].name]
        self._batches = Batches(self._streams, options.batch, manifest.input.shape)

    @property
    def input(self) -> InputInfo:
        return self._manifest.input

    @property
    def classes(self) -> int:
        return self._manifest.classes

    def infer(self, batch: Array) -> Array:
        """``Session.infer``. With several streams a batch is divided among them."""
        if len(batch) == 1 or (self._streams == 1 and self._batches.batch == 1):
            return self._run(0, batch)
        return collect(self, batch)

    def bind(self, batch: Array, logits: Array) -> Call:
        """``Session.bind`` by ONNX Runtime's own binding: it reads the sample and writes the logits where they are."""
        session = self._sessions[0]
        binding = session.io_binding()
        place = "cpu", 0, np.float32
        binding.bind_input(self._input_name, *place, batch.shape, batch.ctypes.data)
        binding.bind_output(self._output_names[0], *place, logits.shape, logits.ctypes.data)
        call = partial(session.run_with_iobinding, binding)
        vars(call)["held"] = batch, logits  # the binding knows their addresses only
        return call

    def infer_many(self, samples: Sequence[Array], done: Done) -> None:
        """``Session.infer_many``."""
        self._batches.run(samples, self._run, done)

    def _run(self, stream: int, batch: Array) -> Array:
        session = self._sessions[stream % len(self._sessions)]
        logits: Array = session.run(self._output_names, {self._input_name: batch})[0]
        return logits

    def effective(self) -> Effective:
        """``Session.effective``. Loads the file a second time with the profiler on, runs one sample, frees it."""
        intra = self._options.intra_op_num_threads
        nodes = onnxruntime_profile.run_once(self._path, session_options(intra), self.input.shape)
        macs, notes = shares(onnxruntime_profile.executed(nodes), self._manifest.layers)
        used = self._sessions[0].get_session_options()
        extra: dict[str, Any] = {
            "providers": self._sessions[0].get_providers(),
            "intra_op_num_threads": used.intra_op_num_threads,
            "graph_optimization_level": used.graph_optimization_level.name,
            "sessions": len(self._sessions),
            "operators": onnxruntime_profile.operators(nodes),
        }
        return Effective(
            threads=used.intra_op_num_threads * self._streams,
            streams=self._streams,
            batch=self._batches.batch,
            engine="MLAS",
            macs=macs,
            float_ops=onnxruntime_profile.float_ops(nodes) if self._manifest.scheme.startswith("int8") else {},
            extra=extra,
            warnings=notes,
        )

    def close(self) -> None:
        self._batches.close()
        del self._sessions
