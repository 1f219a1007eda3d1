"""What every backend gives: a ``Session`` that turns samples into logits, and says what it really runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from edgeq.artifact import InputInfo
from edgeq.logits import bad_output
from edgeq.spec.errors import EdgeqError
from edgeq.spec.note import Note

Array = npt.NDArray[np.float32]

#: Called with the position of the first sample of a finished block, and the block's logits ``[k, classes]``.
Done = Callable[[int, Array], None]

#: Infers the sample that it is bound to; see ``Session.bind``.
Call = Callable[[], None]


@dataclass(frozen=True)
class SessionOptions:
    """How a session uses the device.

    ``infer_many`` gives the framework ``batch`` samples a call, on each of ``streams`` streams at once; ``threads`` is the
    total, divided among the streams.
    """

    threads: int
    streams: int = 1
    batch: int = 1


#: Where a batch does not give the logits that its samples give alone: ONNX Runtime and PyTorch take the scale of a tensor's
#: activations over the whole batch, OpenVINO (2026.4.1) quantizes none where a linear layer has several rows.
ONE_AT_A_TIME = frozenset((backend, "int8-dynamic") for backend in ("onnxruntime", "pytorch", "openvino"))


def refuse_batch(backend: str, scheme: str, batch: int) -> None:
    """Raises ``EdgeqError`` (code ``no-batch``) where a batch would change the logits of its samples."""
    if batch > 1 and (backend, scheme) in ONE_AT_A_TIME:
        raise EdgeqError(
            f"{backend} takes one sample at a time in {scheme}",
            "a sample's logits would not be those that it gives alone",
            "use batch 1",
            code="no-batch",
        )


def bound(infer: Callable[[Array], Array], batch: Array, logits: Array) -> Call:
    """``Session.bind`` by way of ``infer``, whose result is copied."""
    shape = logits.shape

    def call() -> None:
        found = infer(batch)
        if found.shape != shape:  # a smaller one would be broadcast
            raise bad_output(f"logits have shape {found.shape}, not {shape}")
        np.copyto(logits, found)

    return call


@dataclass(frozen=True)
class Effective:
    """What took effect, read back from the framework wherever it can say so."""

    threads: int
    streams: int
    batch: int
    engine: str
    """Such as ``MLAS``, ``XNNPACK (64 of 64 nodes delegated)``, ``oneDNN``."""
    macs: dict[str, float]
    """Share of multiply-adds executed in each precision (``fp32``, ``fp16``, ``bf16``, ``int8``); sums to 1."""
    float_ops: dict[str, int] = field(default_factory=dict)
    """Operators that run in float, by type and count, in a model that has quantized ones."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Anything else that the framework says of itself (hints in force, delegated nodes, ISA chosen)."""
    warnings: tuple[Note, ...] = ()
    """What a reader of the figures must know: a kernel that is missing, layers that could not be accounted for."""


class Session(Protocol):
    """A loaded model. One owner; ``infer`` and ``infer_many`` are not to be called at the same time."""

    @property
    def input(self) -> InputInfo:
        """Shape, layout and dtype of one sample, and how many samples the artifact takes at once."""
        ...

    @property
    def classes(self) -> int:
        """Number of logits a sample."""
        ...

    def infer(self, batch: Array) -> Array:
        """Infers ``batch``, float32 ``[n, *input.shape]`` and contiguous; returns float32 logits ``[n, classes]``.

        The result is the caller's: a later call does not change it. Uses all threads for this one batch.
        """
        ...

    def bind(self, batch: Array, logits: Array) -> Call:
        """A call that infers ``batch``, float32 ``[1, *input.shape]`` and contiguous, as ``infer`` does, into ``logits``.

        ``logits`` is float32 ``[1, classes]`` and contiguous. The call holds both arrays; their contents may change between
        calls. What can be prepared for a sample is done here, once, and not in the
        call, which is what single-stream times. The call raises where the model's output is of another shape.
        """
        ...

    def infer_many(self, samples: Sequence[Array], done: Done) -> None:
        """Infers all samples (each float32 ``[*input.shape]``), ``options.batch`` a call, on ``options.streams`` streams.

        Calls ``done(position, logits)`` for each finished block, from any thread, never two at the same time for the
        same position; returns when every sample is done. A failure in any stream, or of ``done`` itself, is raised here,
        after the others have stopped. The logits array given to ``done`` is valid only during the call.
        """
        ...

    def effective(self) -> Effective:
        """What really runs. May run an inference; not to be called while timing."""
        ...

    def close(self) -> None:
        """Frees the model. A closed session is not used again."""
        ...
