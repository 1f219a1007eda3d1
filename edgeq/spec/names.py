"""The contract's names: backends, schemes, scenarios, and the cell they span."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from edgeq.spec.errors import RequestError, unknown_name

BACKENDS = ("openvino", "tflite", "onnxruntime", "pytorch")
SCHEMES = ("fp32", "fp16", "int8-static", "int8-dynamic")
SINGLE_STREAM, MULTI_STREAM, OFFLINE = "single-stream", "multi-stream", "offline"
SCENARIOS = (SINGLE_STREAM, MULTI_STREAM, OFFLINE, "server")
STUDY_SCENARIOS = SCENARIOS[:3]

#: The backend that runs no model, for overhead figures; its cells have no model and no scheme either.
NULL = "null"
NO_MODEL = "none"


@dataclass(frozen=True, order=True)
class Cell:
    """One thing to measure: a model on a backend at a scheme in a scenario."""

    model: str
    backend: str
    scheme: str
    scenario: str

    def __str__(self) -> str:
        return f"{self.model}/{self.backend}/{self.scheme}/{self.scenario}"

    def as_dict(self) -> dict[str, str]:
        return asdict(self)

    @classmethod
    def parse(cls, text: str) -> Cell:
        """Reads ``model/backend/scheme/scenario``.

        Raises:
            RequestError: not four parts, or an unknown backend, scheme or scenario.
        """
        parts = text.strip("/").split("/")
        if len(parts) != 4:
            raise RequestError(
                f"{text!r} is not a cell",
                "a cell has four parts",
                "write model/backend/scheme/scenario, such as mobilenet_v2/tflite/fp32/offline",
                code="bad-cell",
            )
        model, backend, scheme, scenario = parts
        check_names("backend", [backend], (*BACKENDS, NULL))
        check_names("scheme", [scheme], (*SCHEMES, NO_MODEL))
        check_names("scenario", [scenario], SCENARIOS)
        return cls(model, backend, scheme, scenario)


def check_names(kind: str, names: Iterable[str], valid: Iterable[str]) -> tuple[str, ...]:
    """Returns ``names`` without repeats, in the order of ``valid``: fp32 comes first, which others are compared with.

    Raises:
        RequestError: a name is not in ``valid``; the message names the nearest valid one.
    """
    names, valid = tuple(names), tuple(valid)
    for name in names:
        if name not in valid:
            raise unknown_name(kind, name, valid)
    return tuple(name for name in valid if name in names)
