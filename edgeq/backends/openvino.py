"""OpenVINO IR on the CPU plugin: a model of a static batch, one request (latency) or several at once (throughput)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeq.artifact import InputInfo, Manifest
from edgeq.backends import openvino_graph
from edgeq.backends.batches import Batches, collect
from edgeq.backends.macs import shares
from edgeq.backends.session import Array, Call, Done, Effective, SessionOptions, bound, refuse_batch
from edgeq.spec.errors import EdgeqError
from edgeq.spec.note import Note

if TYPE_CHECKING:
    import openvino

#: In the plugin's message where a layer has no kernel (see ``_compile``).
_NO_PRIMITIVE = "could not create a primitive"
#: And where the CPU has no int8 convolution: a Cortex-A72, which lacks the dot product, gives this for a file that a
#: Cortex-A76 compiles (2026.4.1, both played by QEMU).
_NO_INT8 = "object is not initialized"
_NO_DYNAMIC = {"DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}


def load_hint(said: str) -> str:
    """What to do about a file that OpenVINO refuses with the message ``said``."""
    if _NO_INT8 in said:
        return (
            "OpenVINO's int8 convolutions for ARM need dot-product instructions, which a Raspberry Pi 4 has not: "
            "run int8 there on tflite or onnxruntime"
        )
    return "run: edgeq export, to write the artifact anew"


def open_session(manifest: Manifest, path: Path, options: SessionOptions) -> OpenVINOSession:
    """Compiles the IR at ``path`` (its ``.bin`` beside it) for the CPU.

    Raises:
        EdgeqError: OpenVINO refuses the file (code ``load-failed``).
    """
    return OpenVINOSession(manifest, path, options)


class OpenVINOSession:
    """A compiled model. Every hint that changes the precision or the threads is set, none is left to the device.

    Float32 artifacts and the float parts of quantized ones compute in float32 (the plugin's own default is bf16 or
    f16 on CPUs that have it); fp16 artifacts compute in float16 only where the plugin lists it.
    """

    def __init__(self, manifest: Manifest, path: Path, options: SessionOptions) -> None:
        import openvino

        refuse_batch(manifest.backend, manifest.scheme, options.batch)
        # Two threads that convert a process's first arrays at once wait for each other for ever: one holds Python's lock, the
        # other one of the bindings' (2026.4.1, seen in 11 of 12 processes that began with ``infer_many``).
        openvino.Tensor(np.zeros(1, np.float32), shared_memory=True)
        self._manifest, self._path = manifest, path
        self._core = openvino.Core()
        self._config, self._batch = self._hints(options), options.batch
        self._warnings: list[Note] = []
        # With compressed convolution weights, the streams of one compiled model race for them while it is compiled: in 4
        # of 9 sessions every logit was wrong from the first on (2026.4.1, 2 streams), in none of 30 with a model a stream.
        apart = manifest.scheme == "int8-dynamic" and options.streams > 1
        try:
            self._models = [self._compile() for _ in range(min(options.streams, options.threads) if apart else 1)]
        except Exception as error:  # OpenVINO has no error class of its own: RuntimeError and others.
            raise EdgeqError(
                f"OpenVINO cannot load {path}",
                _last_line(error),
                load_hint(str(error)),
                code="load-failed",
            ) from error
        jobs = 1
        if options.streams > 1 and not apart:
            jobs = int(self._models[0].get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
        self._requests = [model.create_infer_request() for model in self._models for _ in range(jobs)]
        self._outputs: list[Array] = [request.get_output_tensor().data for request in self._requests]
        self._infers = [_bound_infer(request) for request in self._requests]
        self._tensor = openvino.Tensor
        self._batches = Batches(len(self._requests), options.batch, manifest.input.shape, fixed=True)

    def _hints(self, options: SessionOptions) -> dict[str, Any]:
        # Streams beyond the threads are not made by the plugin; ask for what can be had.
        streams = min(options.streams, options.threads)
        capabilities = self._core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        half = self._manifest.scheme == "fp16" and "FP16" in capabilities
        hints = {
            "INFERENCE_PRECISION_HINT": "f16" if half else "f32",
            "PERFORMANCE_HINT": "LATENCY" if options.streams == 1 else "THROUGHPUT",
            "EXECUTION_MODE_HINT": "PERFORMANCE",
            "INFERENCE_NUM_THREADS": options.threads,
            "NUM_STREAMS": streams,
            "CACHE_DIR": "",  # A cached blob would hide the load time, and outlive the artifact it came from.
        }
        if self._manifest.scheme == "int8-dynamic" and streams > 1:
            # One model a stream; unpinned, because each model would pin its threads to the same first cores.
            hints |= {
                "INFERENCE_NUM_THREADS": options.threads // streams,
                "NUM_STREAMS": 1,
                "ENABLE_CPU_PINNING": False,
            }
        return hints

    def _compile(self) -> openvino.CompiledModel:
        try:
            return self._core.compile_model(self._model(), "CPU", self._config)
        except RuntimeError as error:
            # Seen with ONEDNN_MAX_CPU_ISA=AVX2 on 2026.4.1: dynamic quantization is on by default but has no kernel.
            if self._manifest.scheme != "int8-dynamic" or _NO_PRIMITIVE not in str(error):
                raise
            self._config |= _NO_DYNAMIC
            compiled = self._core.compile_model(self._model(), "CPU", self._config)
            self._warnings.append(
                Note(
                    code="no-dynamic-quantization",
                    text="the plugin has no dynamic quantization kernel on this CPU: linear layers compute in float32",
                )
            )
            return compiled

    def _model(self) -> openvino.Model:
        model = self._core.read_model(str(self._path))
        if self._batch > 1:  # artifacts are exported for one sample
            model.reshape([self._batch, *self._manifest.input.shape])
        return model

    @property
    def input(self) -> InputInfo:
        return self._manifest.input

    @property
    def classes(self) -> int:
        return self._manifest.classes

    def infer(self, batch: Array) -> Array:
        """``Session.infer``, as ``infer_many`` does it; one sample where calls take one, at once."""
        return np.array(self._run(0, batch)) if len(batch) == 1 == self._batch else collect(self, batch)

    def bind(self, batch: Array, logits: Array) -> Call:
        """``Session.bind``: the tensor that borrows the sample's memory is made once, and the logits are copied once."""
        if self._batch != 1:
            return bound(self.infer, batch, logits)
        given, infer, found = self._shared(batch), self._infers[0], self._outputs[0]

        def inferred(_: Array) -> Array:
            infer(given, share_outputs=True, decode_strings=False)
            return found

        return bound(inferred, batch, logits)

    def infer_many(self, samples: Sequence[Array], done: Done) -> None:
        """``Session.infer_many``, one thread a request.

        Not by ``AsyncInferQueue``: the end of its last callback may still want Python's lock when ``wait_all`` returns,
        and freeing the queue then hangs for ever (2026.4.1, seen in one of some hundred sessions). Threads are as fast.
        """
        self._batches.run(samples, self._run, done)

    def _run(self, stream: int, batch: Array) -> Array:
        """Logits ``[n, classes]`` in the request's own memory, overwritten by its next run."""
        self._infers[stream](self._shared(batch), share_outputs=True, decode_strings=False)
        return self._outputs[stream]

    def _shared(self, batch: Array) -> openvino.Tensor:
        """A tensor that borrows the memory of ``batch``; of a copy, where it may not be written: OpenVINO would refuse it."""
        return self._tensor(batch if batch.flags.writeable else batch.copy(), shared_memory=True)

    def effective(self) -> Effective:
        """``Session.effective``. For compressed weights, compiles the model once more and runs both."""
        nodes = openvino_graph.read(self._models[0].get_runtime_model())
        dynamic = bool(openvino_graph.compressed(nodes)) and self._quantizes_at_run_time()
        macs, notes = shares(openvino_graph.executed(nodes, dynamic), self._manifest.layers)
        compiled = self._models[0]
        hints = (
            "INFERENCE_PRECISION_HINT",
            "PERFORMANCE_HINT",
            "EXECUTION_MODE_HINT",
            "ENABLE_CPU_PINNING",
            "SCHEDULING_CORE_TYPE",
            "DYNAMIC_QUANTIZATION_GROUP_SIZE",
        )
        supported = compiled.get_property("SUPPORTED_PROPERTIES")
        extra: dict[str, Any] = {
            "hints": {name: _text(compiled.get_property(name)) for name in hints if name in supported},
            "infer_requests": len(self._requests),
            "compiled_models": len(self._models),
            "primitives": openvino_graph.primitives(nodes),
            "dynamic_quantization": dynamic,
        }
        return Effective(
            threads=sum(int(model.get_property("INFERENCE_NUM_THREADS")) for model in self._models),
            streams=sum(int(model.get_property("NUM_STREAMS")) for model in self._models),
            batch=self._batch,
            engine="OpenVINO CPU plugin",
            macs=macs,
            float_ops=openvino_graph.float_ops(nodes, dynamic) if self._manifest.scheme.startswith("int8") else {},
            extra=extra,
            warnings=(*self._warnings, *notes),
        )

    def _quantizes_at_run_time(self) -> bool:
        """Whether linear layers quantize their activations: then, and only then, the logits differ from a twin's that
        is told not to. The runtime graph calls both kernels by the same name (2026.4.1)."""
        twin = self._core.compile_model(self._model(), "CPU", {**self._config, **_NO_DYNAMIC})
        samples = np.random.default_rng(0).standard_normal((self._batch, *self.input.shape), np.float32)
        return not np.array_equal(self._run(0, samples), twin([samples])[0])

    def close(self) -> None:
        self._batches.close()
        del self._outputs, self._infers, self._requests, self._models, self._core


def _bound_infer(request: openvino.InferRequest) -> Callable[..., Any]:
    """The bindings' ``infer``; its wrapper in Python looks for what its argument might be, at up to 0.1 ms a call."""
    import openvino

    bound: Any = super(openvino.InferRequest, request)
    found: Callable[..., Any] = bound.infer
    return found


def _last_line(error: Exception) -> str:
    """The cause in an OpenVINO message, whose first lines are places in its own source."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if not line.startswith(("Exception from", "Check '"))]
    return (causes or lines or [type(error).__name__])[-1]


def _text(value: Any) -> str:
    return str(getattr(value, "get_type_name", lambda: getattr(value, "name", value))())
