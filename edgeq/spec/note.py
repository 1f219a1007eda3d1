"""A warning or a reason, as it stands in records and manifests."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from edgeq.spec.errors import EdgeqError


class Note(BaseModel):
    """``code`` is stable and for programs; ``text`` says what is so; ``hint`` says what to do about it."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    code: str
    text: str
    hint: str = ""

    @classmethod
    def of(cls, error: EdgeqError) -> Note:
        return cls(code=error.code, text=f"{error.what}: {error.why}", hint=error.hint)
