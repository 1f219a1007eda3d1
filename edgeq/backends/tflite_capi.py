"""LiteRT's own profiler, which its Python interpreter does not offer: through the C API of the library beside it.

``libLiteRt.so`` of the ai-edge-litert wheel exports LiteRT's C API (litert/c/*.h of google-ai-edge/LiteRT). A compiled
model made with ``enable_profiling`` hands each XNNPACK operator's time to a profiler. Only versions whose structures
are known here are called, because a wrong one would not fail but crash.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
from collections.abc import Callable
from ctypes import byref, c_char_p, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeq.backends.session import Array
from edgeq.spec.errors import EdgeqError

#: Versions of ai-edge-litert (major, minor) whose C API was read and tried.
KNOWN = ("2.3",)
_CPU = 1  # kLiteRtHwAcceleratorCpu
#: ``event_type`` of an operator that TFLite runs itself, and of one inside a delegate that times its own.
_OPERATOR, _IN_DELEGATE = 2, 8
_ALIGNMENT = 64  # of a host buffer that is not to be copied (LITERT_HOST_MEMORY_BUFFER_ALIGNMENT)
_FREE = ctypes.CFUNCTYPE(None, c_void_p)
_KEEP = _FREE(lambda _: None)  # option texts belong to Python


class _TensorType(ctypes.Structure):
    """``LiteRtRankedTensorType``: element type and ``LiteRtLayout``, whose first word holds the rank in 7 bits."""

    _fields_ = (("element", c_int), ("bits", c_uint32), ("dimensions", c_int32 * 8), ("strides", c_uint32 * 8))


class _Memory(ctypes.Structure):
    _fields_ = (("total", c_size_t), ("in_use", c_size_t), ("footprint", c_size_t))


class _Event(ctypes.Structure):
    """``ProfiledEventData``."""

    _fields_ = (
        ("tag", c_char_p), ("kind", c_int), ("start_us", c_uint64), ("elapsed_us", c_uint64), ("begin", _Memory),
        ("end", _Memory), ("metadata1", c_uint64), ("metadata2", c_uint64), ("source", c_int),
    )  # fmt: skip


@dataclass(frozen=True)
class Event:
    """One operator's run. ``delegated``: it ran inside XNNPACK, under XNNPACK's own name of its kernel."""

    name: str
    us: int
    delegated: bool


class CompiledModel:
    """A ``.tflite`` file compiled by LiteRT for the CPU, with its profiler. Close it."""

    def __init__(self, path: Path, threads: int) -> None:
        """Raises ``EdgeqError`` (code ``no-profiler``) where this version offers none that is known here."""
        self._library = _library()
        self._owned: list[tuple[str, c_void_p]] = []
        self._alive: list[Any] = []
        try:
            self._compile(path, threads)
        except BaseException:
            self.close()
            raise

    def _compile(self, path: Path, threads: int) -> None:
        environment = self._made("Environment", "LiteRtCreateEnvironment", 0, None)
        model = self._made("Model", "LiteRtCreateModelFromFile", environment, str(path).encode())
        options = self._made("Options", "LiteRtCreateOptions")
        self._call("LiteRtSetOptionsHardwareAccelerators", options, _CPU)
        # The payloads are TOML texts (litert/c/options/litert_cpu_options.cc, litert_runtime_options.cc).
        self._call("LiteRtAddOpaqueOptions", options, self._option("xnnpack", f"num_threads = {threads}\n"))
        runtime = self._option("runtime_options_string", "enable_profiling = true\n")
        self._call("LiteRtAddOpaqueOptions", options, runtime)
        self._model = self._made("CompiledModel", "LiteRtCreateCompiledModel", environment, model, options)
        self._profiler = c_void_p()
        self._call("LiteRtCompiledModelGetProfiler", self._model, byref(self._profiler))
        graph = c_void_p()
        self._call("LiteRtGetModelSubgraph", model, c_size_t(0), byref(graph))
        self._input, self._inputs = self._buffer(graph, "Input")
        self._output, self._outputs = self._buffer(graph, "Output")

    def infer(self, sample: Array) -> Array:
        """Logits ``[1, classes]`` of one sample ``[1, h, w, 3]``, in memory that the next inference overwrites."""
        self._input[...] = sample
        one = c_size_t(1)
        self._call("LiteRtRunCompiledModel", self._model, c_size_t(0), one, self._inputs, one, self._outputs)
        return self._output

    def profiled(self, work: Callable[[], None]) -> list[Event]:
        """Runs ``work`` with the profiler on; returns the operators that ran meanwhile, in order."""
        self._call("LiteRtStartProfiler", self._profiler)
        try:
            work()
        finally:
            self._call("LiteRtStopProfiler", self._profiler)
        count = c_int()
        self._call("LiteRtGetNumProfilerEvents", self._profiler, byref(count))
        events = (_Event * count.value)()
        self._call("LiteRtGetProfilerEvents", self._profiler, count, events)
        kinds = (_OPERATOR, _IN_DELEGATE)
        return [Event(e.tag.decode(), e.elapsed_us, e.kind == _IN_DELEGATE) for e in events if e.kind in kinds]

    def close(self) -> None:
        """Frees everything, the last made first."""
        while self._owned:
            kind, handle = self._owned.pop()
            function = getattr(self._library, f"LiteRtDestroy{kind}")
            function.restype = None
            function(handle)

    def _buffer(self, graph: c_void_p, kind: str) -> tuple[npt.NDArray[np.float32], Any]:
        tensor, found = c_void_p(), _TensorType()
        self._call(f"LiteRtGetSubgraph{kind}", graph, c_size_t(0), byref(tensor))
        self._call("LiteRtGetRankedTensorType", tensor, byref(found))
        shape = tuple(found.dimensions[: found.bits & 0x7F])
        size = int(np.prod(shape)) * 4
        raw = np.zeros(size + _ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % _ALIGNMENT
        values: npt.NDArray[np.float32] = raw[start : start + size].view(np.float32).reshape(shape)
        address = c_void_p(values.ctypes.data)
        handle = self._made(
            "TensorBuffer", "LiteRtCreateTensorBufferFromHostMemory", byref(found), address, c_size_t(size), None
        )
        self._alive.append(raw)
        return values, (c_void_p * 1)(handle)

    def _option(self, identifier: str, text: str) -> c_void_p:
        payload = ctypes.create_string_buffer(text.encode())
        self._alive.append(payload)
        handle = c_void_p()
        self._call(
            "LiteRtCreateOpaqueOptions", identifier.encode(), ctypes.cast(payload, c_void_p), _KEEP, byref(handle)
        )
        return handle

    def _made(self, kind: str, function: str, *arguments: Any) -> c_void_p:
        handle = c_void_p()
        self._call(function, *arguments, byref(handle))
        self._owned.append((kind, handle))
        return handle

    def _call(self, function: str, *arguments: Any) -> None:
        status = getattr(self._library, function)(*arguments)
        if status != 0:
            raise no_profiler(f"{function} of LiteRT's C API returned status {status}")


def _library() -> ctypes.CDLL:
    spec = importlib.util.find_spec("ai_edge_litert")
    if spec is None or spec.origin is None:
        raise no_profiler("only tflite-runtime is installed, which has no profiler")
    version = importlib.metadata.version("ai-edge-litert")
    if ".".join(version.split(".")[:2]) not in KNOWN:
        raise no_profiler(f"edgeq knows the profiler of ai-edge-litert {' and '.join(KNOWN)}, this is {version}")
    try:
        return ctypes.CDLL(str(Path(spec.origin).parent / "libLiteRt.so"))
    except OSError as error:
        raise no_profiler(str(error)) from error


def no_profiler(why: str) -> EdgeqError:
    """TFLite can be measured here, but not profiled by operator."""
    return EdgeqError(
        "TFLite's operators can't be timed here", why, "install ai-edge-litert 2.3 for this; tables do without it",
        code="no-profiler",
    )  # fmt: skip
