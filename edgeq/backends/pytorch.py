"""TorchScript artifact → ``Session``: ``torch.jit.load``, with torch alone."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgeq.artifact import InputInfo, Manifest
from edgeq.backends.batches import Batches, collect
from edgeq.backends.pytorch_graph import macs_by_precision, read_graph
from edgeq.backends.session import Array, Call, Done, Effective, SessionOptions, bound, refuse_batch
from edgeq.spec.errors import EdgeqError


class PytorchSession:
    """One module, called from as many threads as there are streams; torch releases Python's lock in ``forward``."""

    def __init__(self, manifest: Manifest, path: Path, options: SessionOptions) -> None:
        """Raises ``EdgeqError`` as ``open_session`` does."""
        import torch

        refuse_batch(manifest.backend, manifest.scheme, options.batch)
        self._torch, self._manifest, self._path = torch, manifest, path
        self._streams = max(1, options.streams)
        self._threads = max(1, options.threads // self._streams)
        # Threads that start later, such as the pool's, take this number too, each with OpenMP threads of its own.
        torch.set_num_threads(self._threads)
        _one_interop_thread(torch)
        self._engine = _choose_engine(torch, manifest.details.get("engine"))
        torch.backends.quantized.engine = self._engine  # weights are packed for it while they load
        self._module = _load(torch, path)
        self._batches = Batches(self._streams, options.batch, manifest.input.shape)

    @property
    def input(self) -> InputInfo:
        return self._manifest.input

    @property
    def classes(self) -> int:
        return self._manifest.classes

    def infer(self, batch: Array) -> Array:
        """Infers ``[n, *input.shape]`` in one call; with several streams, ``n`` samples run on all of them.

        An int8-dynamic network takes one sample at a time: it quantizes a whole batch's activations by one scale, so
        that a sample's logits would depend on its neighbours.
        """
        alone = self._streams == 1 and self._batches.batch == 1 and self._manifest.scheme != "int8-dynamic"
        return self._run(0, batch) if len(batch) == 1 or alone else collect(self, batch)

    def bind(self, batch: Array, logits: Array) -> Call:
        """``Session.bind``: the tensor that borrows the sample's memory is made once."""
        given = self._torch.from_numpy(batch)
        return bound(lambda _: self._forward(given), batch, logits)

    def infer_many(self, samples: Sequence[Array], done: Done) -> None:
        """Infers all samples on all streams; see ``Session.infer_many``."""
        self._batches.run(samples, self._run, done)

    def _run(self, _stream: int, batch: Array) -> Array:
        return self._forward(self._torch.from_numpy(batch))

    def _forward(self, batch: Any) -> Array:
        with self._torch.inference_mode():
            logits: Array = self._module(batch).numpy()
        return logits

    def effective(self) -> Effective:
        """Threads as torch reports them; precisions from the graph's operators and the types of their weights."""
        torch = self._torch
        contents = read_graph(self._module.inlined_graph)
        macs, notes = macs_by_precision(contents.layers, self._manifest.layers)
        extra: dict[str, Any] = {
            "runtime": f"torch {torch.__version__}",
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "interop_threads": torch.get_num_interop_threads(),
            "threads_per_stream": torch.get_num_threads(),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "onednn": bool(torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled),
        }
        fp32_precision = getattr(getattr(torch.backends.mkldnn, "conv", None), "fp32_precision", None)
        if fp32_precision is not None:  # torch 2.9 and later
            extra["onednn_conv_fp32_precision"] = fp32_precision
        quantized = {layer.kind for layer in contents.layers if layer.precision == "int8"}
        if quantized:
            extra["quantized_engine"] = self._engine
            extra["exported_for_engine"] = self._manifest.details.get("engine", "any")
        return Effective(
            threads=torch.get_num_threads() * self._streams,
            streams=self._streams,
            batch=self._batches.batch,
            engine=_engine_text(torch, set(macs), self._engine),
            macs=macs,
            float_ops=contents.float_ops if quantized else {},
            extra=extra,
            warnings=notes,
        )

    def close(self) -> None:
        self._batches.close()
        self._module = None


def open_session(manifest: Manifest, path: Path, options: SessionOptions) -> PytorchSession:
    """Loads a ``.pt`` TorchScript file. Sets torch's numbers of threads and its quantized engine for the whole process.

    Raises:
        EdgeqError: torch refuses the file (code ``load-failed``), or has no quantized engine for this CPU
            (``no-quantized-engine``) where the artifact needs one.
    """
    return PytorchSession(manifest, path, options)


def _one_interop_thread(torch: Any) -> None:
    """Nothing here runs operators in parallel. torch takes the number once, before any parallel work."""
    if torch.get_num_interop_threads() != 1:
        try:
            torch.set_num_interop_threads(1)
        except RuntimeError:
            return  # set before in this process; ``effective`` says to what


def _choose_engine(torch: Any, exported_for: str | None) -> str:
    """The engine that the artifact was quantized for, where this build and CPU have it; else the architecture's own.

    Trap 17: torch's default on ARM is none, or one that is not built for it (pytorch/pytorch#123507, #180679).
    """
    supported = torch.backends.quantized.supported_engines
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    candidates = [exported_for] if exported_for and (is_x86 or exported_for == "qnnpack") else []
    candidates += ["x86", "fbgemm"] if is_x86 else ["qnnpack"]
    for engine in candidates:
        if engine in supported:
            return engine
    raise EdgeqError(
        "torch has no quantized engine for this CPU", f"it was built with {', '.join(supported)}",
        "install a torch wheel from PyPI for this architecture", code="no-quantized-engine",
    )  # fmt: skip


def _load(torch: Any, path: Path) -> Any:
    with warnings.catch_warnings():
        # TorchScript is frozen upstream, and still the only form that holds FX INT8 and loads without Python source.
        warnings.filterwarnings("ignore", message=r"`torch\.jit\.load` is deprecated", category=FutureWarning)
        warnings.filterwarnings(
            "ignore", message=r"torch\.quantize_per_tensor, .* are deprecated", category=UserWarning
        )
        # torch says this once a process, and from an inference it would go past Python's filters to standard error.
        torch.quantize_per_tensor(torch.zeros(1), 1.0, 0, torch.quint8)
        try:
            module = torch.jit.load(str(path), map_location="cpu")
        except (RuntimeError, ValueError, OSError, EOFError) as error:
            why = str(error).strip().splitlines()[0]
            raise EdgeqError(
                f"torch cannot load {path}", why, "run: edgeq export --backend pytorch", code="load-failed"
            ) from error
    # Samples of a memory map cannot be written; no operator here writes its input.
    warnings.filterwarnings("ignore", message="The given NumPy array is not writable", category=UserWarning)
    return module.eval()


def _engine_text(torch: Any, precisions: set[str], quantized_engine: str) -> str:
    """The libraries that compute, by precision."""
    parts = []
    if "int8" in precisions:
        parts.append(_QUANTIZED.get(quantized_engine, quantized_engine))
    onednn = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    if "fp32" in precisions:
        # torch picks per layer and number of threads: with one, most 1x1 convolutions of MobileNetV2 go past oneDNN.
        parts.append("oneDNN or torch's own kernels" if onednn else "torch's own kernels (no oneDNN in this build)")
    if "fp16" in precisions:
        has_fp16 = onednn and torch.ops.mkldnn._is_mkldnn_fp16_supported()
        parts.append("oneDNN float16" if has_fp16 else "reference float16 kernels (oneDNN has none for this CPU: slow)")
    return " + ".join(parts) or "torch"


_QUANTIZED = {
    "x86": "torch x86 engine (oneDNN with VNNI but for depthwise layers of more than 100 channels; else FBGEMM)",
    "fbgemm": "FBGEMM",
    "onednn": "oneDNN",
    "qnnpack": "QNNPACK",
}
