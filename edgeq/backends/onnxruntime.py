"""ONNX Runtime on its CPU provider: one session, called by one thread (latency) or by several at once (throughput)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeq.artifact import InputInfo, Manifest
from edgeq.backends import onnxruntime_profile
from edgeq.backends.macs import shares
from edgeq.backends.pool import StreamPool
from edgeq.backends.session import Array, Done, Effective, SessionOptions
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
    """One ``InferenceSession``, whose ``run`` may be called by several threads at once.

    ``streams`` callers and a pool of ``threads - streams`` helpers make ``threads`` in all.
    """

    def __init__(self, manifest: Manifest, path: Path, options: SessionOptions) -> None:
        import onnxruntime

        self._manifest, self._path = manifest, path
        self._streams = min(options.streams, options.threads)
        self._options = session_options(options.threads - self._streams + 1)
        try:
            self._session = onnxruntime.InferenceSession(str(path), self._options, providers=_PROVIDERS)
        except Exception as error:  # Each of ONNX Runtime's errors derives from Exception alone.
            raise EdgeqError(
                f"ONNX Runtime cannot load {path}",
                str(error).splitlines()[0],
                "run: edgeq export, to write the artifact anew",
                code="load-failed",
            ) from error
        self._input_name = self._session.get_inputs()[0].name
        self._output_names = [self._session.get_outputs()[0].name]
        self._pool = StreamPool(self._streams)

    @property
    def input(self) -> InputInfo:
        return self._manifest.input

    @property
    def classes(self) -> int:
        return self._manifest.classes

    def infer(self, batch: Array) -> Array:
        """``Session.infer``. With several streams a batch is divided among them, sample by sample."""
        if len(batch) == 1 or self._streams == 1:
            return self._run(batch)
        logits = np.empty((len(batch), self.classes), np.float32)

        def keep(position: int, block: Array) -> None:
            logits[position] = block[0]

        self.infer_many(batch, keep)  # type: ignore[arg-type]
        return logits

    def infer_many(self, samples: Sequence[Array], done: Done) -> None:
        """``Session.infer_many``. One sample a call: streams run side by side, never as a batch."""
        self._pool.run(len(samples), lambda _, position: self._run(samples[position][None]), done)

    def _run(self, batch: Array) -> Array:
        logits: Array = self._session.run(self._output_names, {self._input_name: batch})[0]
        return logits

    def effective(self) -> Effective:
        """``Session.effective``. Loads the file a second time with the profiler on, runs one sample, frees it."""
        intra = self._options.intra_op_num_threads
        nodes = onnxruntime_profile.run_once(self._path, session_options(intra), self.input.shape)
        macs, notes = shares(onnxruntime_profile.executed(nodes), self._manifest.layers)
        used = self._session.get_session_options()
        extra: dict[str, Any] = {
            "providers": self._session.get_providers(),
            "intra_op_num_threads": used.intra_op_num_threads,
            "graph_optimization_level": used.graph_optimization_level.name,
            "operators": onnxruntime_profile.operators(nodes),
        }
        return Effective(
            threads=used.intra_op_num_threads - 1 + self._streams,
            streams=self._streams,
            batch=1,
            engine="MLAS",
            macs=macs,
            float_ops=onnxruntime_profile.float_ops(nodes) if self._manifest.scheme.startswith("int8") else {},
            extra=extra,
            warnings=notes,
        )

    def close(self) -> None:
        self._pool.close()
        del self._session
