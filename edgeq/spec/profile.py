"""``scenarios/<profile>.toml``: how long, how many queries, judged at which percentile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from edgeq.spec.errors import RequestError, unknown_name
from edgeq.spec.tomlfile import load_toml

_STRICT = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)


def _recorded(value: float) -> float:
    if value not in (0.5, 0.9, 0.95, 0.99):
        raise ValueError("records hold the percentiles 0.50, 0.90, 0.95 and 0.99")
    return value


#: A latency percentile as a share of 1.
Percentile = Annotated[float, AfterValidator(_recorded)]


class SingleStream(BaseModel):
    """One sample a query, the next query when the last is answered. Metric: latency at ``percentile``."""

    model_config = _STRICT
    min_duration_s: float = Field(ge=0)
    min_queries: int = Field(ge=1)
    percentile: Percentile


class MultiStream(SingleStream):
    """``samples_per_query`` samples a query, answered when the last of them is. Metric: latency at ``percentile``."""

    samples_per_query: int = Field(default=8, ge=1)


class Offline(BaseModel):
    """All samples at once. Metric: samples a second."""

    model_config = _STRICT
    min_duration_s: float = Field(ge=0)
    min_samples: int = Field(ge=1)


class Server(BaseModel):
    """Queries that arrive at random (Poisson). Metric: the queries a second served within ``latency_ms``."""

    model_config = _STRICT
    min_duration_s: float = Field(ge=0)
    min_queries: int = Field(ge=1)
    percentile: Percentile
    latency_ms: float = Field(gt=0)


class Profile(BaseModel):
    """One file under ``scenarios/``."""

    model_config = _STRICT
    name: str
    title: str
    mlperf_rules: bool = False
    """True only where every setting follows the MLPerf Inference rules of LoadGen's round."""
    resident_samples: int = Field(ge=1)
    """Preprocessed samples held in memory during a performance run."""
    cell_budget_s: float = Field(gt=0)
    """A cell whose planned LoadGen run is estimated to take longer is skipped, with the estimate."""
    accuracy_budget_s: float = Field(gt=0)
    """The same for an artifact's accuracy run."""
    accuracy_samples: int = Field(default=0, ge=0)
    """Images that the profile's rules ask for in the accuracy run; 0 where any number will do."""
    single_stream: SingleStream = Field(alias="single-stream")
    multi_stream: MultiStream = Field(alias="multi-stream")
    offline: Offline
    server: Server

    def scenario(self, name: str) -> SingleStream | MultiStream | Offline | Server:
        """The settings of the scenario with the contract's name ``name``."""
        found: SingleStream | MultiStream | Offline | Server = getattr(self, name.replace("-", "_"))
        return found


def profile_names(scenarios_dir: Path) -> tuple[str, ...]:
    """The names of all profiles under ``scenarios_dir``, sorted."""
    return tuple(sorted(path.stem for path in scenarios_dir.glob("*.toml")))


def load_profile(scenarios_dir: Path, name: str) -> Profile:
    """Reads ``scenarios_dir/name.toml``.

    Raises:
        RequestError: no such profile (the nearest name is given), or a mistake in the file.
    """
    path = scenarios_dir / f"{name}.toml"
    if not path.is_file():
        names = profile_names(scenarios_dir)
        if not names:
            raise RequestError(
                f"no profiles under {scenarios_dir}",
                "no .toml file there",
                "run from the project's folder, or pass --scenarios DIR",
                code="no-profiles",
            )
        raise unknown_name("profile", name, names)
    profile = load_toml(path, Profile)
    if profile.name != name:
        raise RequestError(
            f"{path}: name is {profile.name!r}",
            f"the file is called {path.name}",
            f"set name = {name!r}",
            code="bad-value",
        )
    return profile
