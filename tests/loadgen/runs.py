"""Starts one LoadGen run in a process of its own, and short plans for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeq.loadgen.plan import ANSWER_S, Plan, plan_run
from edgeq.spec.profile import MultiStream, Offline, Profile, Server, SingleStream

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = ("single-stream", "multi-stream", "offline")


def profile(
    min_duration_s: float = 0.05, min_queries: int = 64, percentile: float = 0.9, resident_samples: int = 64
) -> Profile:
    stream: dict[str, Any] = {"min_duration_s": min_duration_s, "min_queries": min_queries, "percentile": percentile}
    return Profile(
        name="test",
        title="test",
        resident_samples=resident_samples,
        cell_budget_s=10,
        accuracy_budget_s=10,
        single_stream=SingleStream(**stream),
        multi_stream=MultiStream(**stream),
        offline=Offline(min_duration_s=min_duration_s, min_samples=64),
        server=Server(**stream, latency_ms=10),
    )  # type: ignore[call-arg]


def plan(
    scenario: str, count: int = 500, canary_s: float = 2e-5, *, answer_s: float = ANSWER_S, **settings: Any
) -> Plan:
    return plan_run(profile(**settings), scenario, canary_s, count, answer_s=answer_s).plan


def accuracy_plan(scenario: str, count: int, **settings: Any) -> Plan:
    return plan_run(profile(**settings), scenario, 1e-4, count, mode="accuracy").plan


@dataclass(frozen=True)
class Run:
    reply: dict[str, Any]
    code: int
    stdout: str
    stderr: str

    @property
    def outcome(self) -> dict[str, Any]:
        assert "outcome" in self.reply, (self.reply, self.stderr)
        found: dict[str, Any] = self.reply["outcome"]
        return found


def run(system: str, plan: Plan, log_dir: Path, *, cwd: Path | None = None, **request: Any) -> Run:
    """Runs ``tests/loadgen/worker.py``; a crash of the child shows as ``code`` below 0, a hang as a timeout."""
    reply = log_dir.with_name(log_dir.name + "-reply.json")
    asked = {"system": system, "plan": plan.as_dict(), "log_dir": str(log_dir), "reply": str(reply)}
    child = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("worker.py"))],
        input=json.dumps({"count": plan.total_samples, **asked, **request}),
        cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    answer = json.loads(reply.read_text()) if reply.is_file() else {}
    return Run(answer, child.returncode, child.stdout, child.stderr)
