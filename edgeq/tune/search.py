"""One artifact's search: a first look at every candidate, then rounds of those that came near the fastest."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from edgeq.artifact import Manifest
from edgeq.backends.session import ONE_AT_A_TIME
from edgeq.host.state import snapshot, used_cpus
from edgeq.logits import Array, distance
from edgeq.run.steadiness import host_notes, neighbour_notes
from edgeq.setting import QUERY, Candidate, Setting, Tuned, default_setting
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import OFFLINE, SINGLE_STREAM
from edgeq.spec.note import Note
from edgeq.tune.candidates import candidates
from edgeq.tune.child import Turned
from edgeq.tune.choice import Choice, choose, survivors
from edgeq.tune.workers import Workers

#: Of ``budget_s``: what one sample may take at most; what a turn may, lest it be left out; and what the first look may.
BEARABLE, A_TURN, FIRST_LOOK = 1 / 60, 1 / 12, 1 / 2
#: Rounds after the first look that there are at least, whatever they cost: two show hardly any gain.
FEWEST = 3
#: Queries of a first turn: output, warming up, timed.
FIRST_QUERIES = 4
#: How far logits may lie from those of the default setting, as a share of the largest: threads and batches add up in
#: another order, and what is rounded to int8 or float16 afterwards may fall on the other side of an edge. Seen on x86:
#: 8e-7 in fp32 and 3e-4 in int8-dynamic with PyTorch, no difference at all with the others.
CLOSE, CLOSE_ROUNDED = 1e-3, 1e-2

#: Share of the device's CPUs that others may keep busy. Beyond that they decide, and not the setting: beside neighbours one
#: thread beats two that wait for each other, and small calls beat large ones.
TOO_BUSY = 0.25
#: Codes of what no further artifact would fare better with.
FATAL = ("disk-full", "cannot-write")

#: Called with what is going on.
OnProgress = Callable[[str], None]
#: A candidate of a scenario.
Entry = tuple[str, Setting]


@dataclass(frozen=True)
class Limits:
    """How thoroughly to search, and how long."""

    rounds: int = 5
    seconds: float = 0.4
    """Of timed queries in each turn."""
    budget_s: float = 120.0
    """For an artifact; a slow one gets fewer rounds and fewer candidates."""


@dataclass
class Search:
    """One artifact's.

    Attributes:
        rates: Samples a second by round, the first look first.
        lost: Why a candidate was not tried, or went out.
    """

    workers: Workers
    manifest: Manifest
    scenarios: Sequence[str]
    threads: int
    limits: Limits
    on_progress: OnProgress
    order: random.Random
    rates: dict[Entry, list[float]] = field(default_factory=dict)
    lost: dict[Entry, Note] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began, self._default = time.monotonic(), self._defaults()
        self._logits: dict[Entry, Path] = {}
        self._best: dict[Entry, float] = {}
        """Samples a second of the fastest query in a candidate's first turn."""
        self._cost: dict[Entry, float] = {}
        """Seconds that a candidate's latest turn took."""

    def _defaults(self) -> dict[str, Setting]:
        return {each: default_setting(each, self.threads, self.manifest) for each in self.scenarios}

    def run(self) -> dict[str, Choice]:
        """The choice for each scenario whose default could be measured; of the others, ``lost`` has the reason.

        Raises:
            EdgeqError: the artifact can't be loaded, or is too slow for a search (``too-slow``); others kept the
                device busy (``too-busy``); the disk is full.
        """
        before, own_s = snapshot(), _children_s()
        sample_s = self._canary()
        batches = (self.manifest.backend, self.manifest.scheme) not in ONE_AT_A_TIME
        entries = [
            (scenario, setting)
            for scenario in self.scenarios
            for setting in candidates(scenario, self.threads, self._default[scenario], batches=batches)
        ]
        self._first_look(entries, sample_s)
        self._same_output()
        alive = self._near()
        for number in range(1, self._rounds(alive) + 1):
            self.on_progress(f"round {number}, {len(alive)} settings")
            self._round(alive)
            alive = [entry for entry in alive if entry not in self.lost and self._default_alive(entry[0])]
        self.workers.close()
        self._look_around(before, _children_s() - own_s)
        return {scenario: self._choose(scenario) for scenario in self.scenarios if self._default_alive(scenario)}

    def tuned(self, scenario: str, choice: Choice, key: str) -> Tuned:
        """``choice`` as it is stored."""
        ratio = choice.ratio
        return Tuned(
            scenario=scenario, key=key, setting=choice.setting, default=self._default[scenario],
            gain=ratio.middle if ratio else 1.0,
            gain_low=ratio.low if ratio else None, gain_high=ratio.high if ratio else None,
            when=datetime.now(UTC).isoformat(timespec="seconds"), notes=self.notes,
            candidates=[
                Candidate(setting=setting, samples_per_second=self.rates.get(entry, []), note=self.lost.get(entry))
                for entry in dict.fromkeys([*self.rates, *self.lost])
                for setting in [entry[1]]
                if entry[0] == scenario
            ],
        )  # fmt: skip

    def _look_around(self, before: Mapping[str, Any], own_s: float) -> None:
        """Notes what disturbed the search, in which the children used ``own_s`` CPU seconds; raises ``too-busy``."""
        after, own_cpus = snapshot(), own_s / (time.monotonic() - self._began)
        used, cpus = used_cpus(before, after), (after.get("cpu_ticks") or {}).get("cpus", 0)
        if used is not None and used - own_cpus > TOO_BUSY * cpus:
            raise EdgeqError(
                "not tuned", f"other processes kept {used - own_cpus:.1f} of the device's {cpus} CPUs busy meanwhile",
                "run edgeq tune again on a quiet machine", code="too-busy",
            )  # fmt: skip
        notes = [*host_notes(before, after), *neighbour_notes(before, after, own_cpus)]
        hint = "run edgeq tune --again on a quiet machine"
        self.notes += [note.model_copy(update={"hint": hint}) for note in notes]

    def why_lost(self, scenario: str) -> Note:
        """Why there is no choice for ``scenario``: what became of its default setting."""
        return self.lost[scenario, self._default[scenario]]

    def _canary(self) -> float:
        """Seconds a sample with all threads on it."""
        self.on_progress("first inference")
        bearable = self.limits.budget_s * BEARABLE
        setting = Setting(threads=self.threads)
        sample_s = 1 / self.workers.turn(setting, None, bearable, must=True).rate
        if sample_s > bearable:
            raise EdgeqError(
                "not tuned", f"{sample_s:.1f} s a sample: a search would take hours",
                "run it with the defaults", code="too-slow",
            )  # fmt: skip
        return sample_s

    def _first_look(self, entries: Sequence[Entry], sample_s: float) -> None:
        short, over = [], self._began + FIRST_LOOK * self.limits.budget_s
        for entry in entries:
            takes = least_s(*entry, sample_s)
            if takes > A_TURN * self.limits.budget_s and not self._is_default(entry):
                text = f"not tried: a turn would take about {takes:.0f} s"
                self.lost[entry] = Note(code="too-slow", text=text, hint="edgeq tune --budget allows it more")
            else:
                short.append(entry)
        for number, entry in enumerate(self._in_turn(short), start=1):
            self.on_progress(f"first look, {number} of {len(short)}")
            if time.monotonic() > over and not self._is_default(entry):
                self.lost[entry] = Note(
                    code="no-time", text="not tried: time was up", hint="edgeq tune --budget allows more"
                )
            else:
                self._turn(entry)

    def _in_turn(self, entries: Sequence[Entry]) -> list[Entry]:
        """In random order, but a process's turns, and a session's, one after the other: it may be that only one fits."""
        place = {entry: self.order.random() for entry in sorted(entries, key=str)}
        process = {(each.threads, each.streams): place[name, each] for name, each in place}
        session = {each: place[name, each] for name, each in place}
        return sorted(
            entries, key=lambda entry: (process[entry[1].threads, entry[1].streams], session[entry[1]], place[entry])
        )

    def _turn(self, entry: Entry) -> None:
        scenario, setting = entry
        must = self._is_default(entry)
        try:
            found = self._try(scenario, setting, must=must)
        except EdgeqError as error:
            if error.code in (*FATAL, "artifact-changed"):
                raise
            self.lost[entry] = Note.of(error)
            return
        self.rates.setdefault(entry, []).append(found.rate)
        self._cost[entry] = found.seconds
        self._best.setdefault(entry, found.best)
        if found.logits is not None:
            self._logits[entry] = found.logits

    def _try(self, scenario: str, setting: Setting, *, must: bool) -> Turned:
        """A turn; of the default, which all are compared with, a second try where the first was lost."""
        try:
            return self.workers.turn(setting, scenario, self.limits.seconds, must=must)
        except EdgeqError:
            if not must:
                raise
        return self.workers.turn(setting, scenario, self.limits.seconds, must=must)

    def _same_output(self) -> None:
        """Loses candidates whose logits are not the default setting's."""
        close = CLOSE if self.manifest.scheme == "fp32" else CLOSE_ROUNDED
        for entry, path in self._logits.items():
            expected = self._logits.get((entry[0], self._default[entry[0]]))
            if expected is None or entry in self.lost:
                continue
            off = difference(np.load(path), np.load(expected))
            if off > close:
                text = f"its logits lie {off:.1%} of the largest from those of the default setting"
                self.lost[entry] = Note(code="other-output", text=text, hint="report this with the artifact's manifest")

    def _near(self) -> list[Entry]:
        """Those that go on to the rounds: of scenarios whose default could be measured, and where it has a rival."""
        found: list[Entry] = []
        for scenario in self.scenarios:
            looks = {
                s: best for (name, s), best in self._best.items() if name == scenario and (name, s) not in self.lost
            }
            if self._default[scenario] in looks:
                near = survivors(looks, self._default[scenario])
                found += [(scenario, setting) for setting in near] if len(near) > 1 else []
        return found

    def _rounds(self, alive: Sequence[Entry]) -> int:
        """As many as were asked for, or as the budget has room for; ``few-rounds`` says so."""
        asked, a_round = self.limits.rounds, sum(self._cost[entry] for entry in alive)
        left = self.limits.budget_s - (time.monotonic() - self._began)
        fits = asked if a_round == 0 else max(min(FEWEST, asked), int(left / a_round))
        if fits < asked:
            text = f"{fits} rounds instead of {asked}: one takes about {a_round:.0f} s"
            self.notes.append(Note(code="few-rounds", text=text, hint="edgeq tune --budget allows more"))
        return min(asked, fits)

    def _round(self, alive: Sequence[Entry]) -> None:
        for entry in self._in_turn(alive):
            if entry not in self.lost and self._default_alive(entry[0]):
                self._turn(entry)

    def _choose(self, scenario: str) -> Choice:
        rounds = {
            setting: rates[1:]
            for (name, setting), rates in self.rates.items()
            if name == scenario and (name, setting) not in self.lost
        }
        default = self._default[scenario]
        whole = {setting: rates for setting, rates in rounds.items() if len(rates) == len(rounds[default])}
        return choose(whole, default)

    def _is_default(self, entry: Entry) -> bool:
        return entry[1] == self._default[entry[0]]

    def _default_alive(self, scenario: str) -> bool:
        entry = (scenario, self._default[scenario])
        return entry in self.rates and entry not in self.lost


def least_s(scenario: str, setting: Setting, sample_s: float) -> float:
    """About how long a first turn takes at least, at ``sample_s`` a sample on all threads."""
    at_once = setting.streams * setting.batch
    size = 1 if scenario == SINGLE_STREAM else at_once if scenario == OFFLINE else max(QUERY, at_once)
    return FIRST_QUERIES * size * sample_s


def difference(found: Array, expected: Array) -> float:
    """The largest error as a share of the largest logit, of the samples that both have: they are the same, in turn."""
    count = min(len(found), len(expected))
    return distance(found[:count], expected[:count]).max_rel_error


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
