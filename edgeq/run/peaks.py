"""The most multiply-adds a second that this machine does: every installed library's, each measured in a process of its own.

``python -m edgeq.run.peaks JOB`` is the child: it loads one framework, times its packaged networks (see
``edgeq/backends/peaks.py``) and tells the parent of each. Results are kept on disk like those of the saturation probes.

A peak is a maximum. With a stream a thread, samples are inferred for about half a second in short windows, and the fastest
window counts: nothing can make a window faster than the machine is. Where something else runs on the same cores, no window
has all of them, and the figure would say how busy the machine is; so the multiply-adds for the CPU time that the process
really got, times the threads, count too where they are more. (Streams wait for nothing but their own work, so that CPU time
is spent on multiply-adds alone.)
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from edgeq.backends import REGISTRY, installed, peaks, preload
from edgeq.backends.peaks import NUMPY
from edgeq.events import leave, serve
from edgeq.files import cache_dir, sha256_json
from edgeq.host.cpu import family
from edgeq.host.threads import environment
from edgeq.peaks import Peaks, Rate, best
from edgeq.run.here import conditions, keep, kept, package_files
from edgeq.run.stepping import Watcher, tell, through
from edgeq.spec.errors import EdgeqError
from edgeq.spec.note import Note

#: Every library that gives a peak.
LIBRARIES = (*REGISTRY, NUMPY)

#: Inferences before the first window, in seconds, and for how long they are timed: at least, and where the process gets
#: little CPU time at most, until it has had ``CPU_S`` for each thread.
WARM_UP_S, LEAST_S, MOST_S, CPU_S = 0.1, 0.4, 1.5, 0.3
#: Lengths of windows, in turn. A short one finds all cores free between two time slices of something else; a long one hardly
#: counts that streams start and stop.
WINDOWS_S = (0.004, 0.02)
#: Share of the multiply-adds from which on a network counts for one precision.
ALL = 0.99
#: The process got less than this share of its threads' time in the fastest window: something else ran.
UNDISTURBED = 0.9
#: A disturbed figure this far below the best one would not be the peak without the disturbance either.
NEAR = 0.85
#: Measurements of a library whose figures are disturbed, at most, one a run: some machines are never quiet.
MOST_TRIES = 3


class Timed(BaseModel):
    """What one packaged network showed on this device."""

    model_config = ConfigDict(extra="forbid", defer_build=True)
    name: str
    """Of ``edgeq.backends.peaks.NETS``; numpy's is ``fp32``."""
    computes: str | None = None
    """The precision that really ran; None where it is several, or the framework refused the network."""
    macs_per_s: float | None = None
    """None where this can't be timed, or computes in a wider precision in which another network of the library has been."""
    by_window: float | None = None
    """The fastest window's own figure."""
    disturbed: bool = False
    library: str = ""
    note: Note | None = None
    """Why it was not timed."""


class LibraryPeaks(BaseModel):
    """One library's networks. ``note`` says why there are none, or not all."""

    model_config = ConfigDict(extra="forbid", defer_build=True)
    library: str
    timed: list[Timed] = Field(default_factory=list)
    note: Note | None = None
    tries: int = 1
    """How often it was measured; each figure is the highest."""


class PeaksJob(BaseModel):
    """What a child is told: the networks of ``library`` to time, by name."""

    model_config = ConfigDict(extra="forbid", defer_build=True)
    library: str
    names: list[str]
    threads: int
    cores: int
    """Physical ones that the process may use."""


def measure_peaks(
    libraries: Iterable[str], device: dict[str, Any], threads: int, watcher: Watcher | None = None
) -> Peaks:
    """The machine's peaks with ``threads`` threads, of those of ``libraries`` that are installed.

    What is kept of an earlier call is taken where nothing has changed that it hangs on (``edgeq.run.here.conditions``); a
    peak that was disturbed is measured again, up to ``MOST_TRIES`` times in all, and the highest figure kept. What killed its
    process is not kept.

    Args:
        libraries: Of ``LIBRARIES``: all of them, unless less than the machine's peak is wanted.
        device: ``edgeq.host.describe()``.

    Returns:
        Precisions that nothing could be measured in are absent. Why, and what disturbed the others, is in ``notes``.
    """
    watcher = watcher or (lambda _library, _step: None)
    names = [name for name in libraries if name not in REGISTRY or installed(name)]
    before = {name: kept(_file(name, device, threads), LibraryPeaks) for name in names}
    found = {name: old or _measured(name, None, device, threads, watcher) for name, old in before.items()}
    best_yet = _combined(found.values(), device, threads)
    for name, old in before.items():
        if old is not None and _doubtful(old, best_yet):
            found[name] = _measured(name, old, device, threads, watcher)
    return _combined(found.values(), device, threads)


def kept_peaks(device: dict[str, Any], threads: int) -> Peaks | None:
    """What ``measure_peaks`` of all libraries kept, without measuring anything; None unless all that are installed are there.

    Imports no framework.
    """
    names = [name for name in LIBRARIES if name not in REGISTRY or installed(name)]
    found = [kept(_file(name, device, threads), LibraryPeaks) for name in names]
    whole = [result for result in found if result is not None]
    return _combined(whole, device, threads) if len(whole) == len(names) else None


def _file(library: str, device: dict[str, Any], threads: int) -> Path:
    code = [*package_files("backends"), Path(__file__), *peaks.files_of(library)]
    kept_for = conditions(library, device, threads, code) | {"cores": device["cores"]}
    return cache_dir() / "peaks" / f"{library}-{sha256_json(kept_for)[:16]}.json"


def _measured(
    library: str, old: LibraryPeaks | None, device: dict[str, Any], threads: int, watcher: Watcher
) -> LibraryPeaks:
    """What a library shows now, or showed before where that was more; kept where it can be."""
    result, whole = _measure(library, device, threads, watcher)
    if not whole:
        return old or result
    if old is not None:
        known = {each.name: each for each in old.timed}
        result.timed = [_higher(each, known.get(each.name)) for each in result.timed]
        result.tries = old.tries + 1
    result.note = keep(_file(library, device, threads), result)
    return result


def _higher(new: Timed, old: Timed | None) -> Timed:
    if old is None or old.computes != new.computes or old.macs_per_s is None or new.macs_per_s is None:
        return new
    best_of = max(old, new, key=lambda each: each.macs_per_s or 0.0)
    return best_of.model_copy(update={"disturbed": old.disturbed and new.disturbed})


def _doubtful(result: LibraryPeaks, found: Peaks) -> bool:
    """Whether a figure would be the machine's peak, or might, had nothing disturbed it, and is worth another try."""
    return result.tries < MOST_TRIES and any(
        each.disturbed and (each.macs_per_s or 0.0) >= NEAR * found.by[each.computes].macs_per_s
        for each in result.timed
        if each.computes in found.by
    )


def _combined(found: Iterable[LibraryPeaks], device: dict[str, Any], threads: int) -> Peaks:
    results = list(found)
    timed = [each for result in results for each in result.timed]
    rates = [
        Rate(each.computes, each.library, each.macs_per_s)
        for each in timed
        if each.computes is not None and each.macs_per_s is not None
    ]
    notes = [result.note for result in results if result.note is not None]
    notes += [each.note for each in timed if each.note is not None and each.computes is None]
    result = best(rates, threads, frozenset(device["isa"]), notes)
    given = {(peak.library, peak.computed) for peak in result.by.values()}
    busy = [each for each in timed if each.disturbed and (each.library, each.computes) in given]
    if busy:
        names = " and ".join(sorted({f"{each.computes} ({each.library})" for each in busy}))
        text = f"something else ran while the peak of {names} was measured: it is of CPU time, and may be too low"
        hint = f"end other programs, remove {cache_dir() / 'peaks'}, then start a new run"
        result.notes.append(Note(code="peak-disturbed", text=text, hint=hint))
    return result


def _measure(library: str, device: dict[str, Any], threads: int, watcher: Watcher) -> tuple[LibraryPeaks, bool]:
    """What a library's networks show, and whether that is to be kept: no child died of it, or hung."""
    names = peaks.fitting(library, family(device["machine"]), frozenset(device["isa"]))
    variables = environment(threads)
    if library == NUMPY:  # a product a thread: its BLAS has one each
        variables |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = through(
        "edgeq.run.peaks",
        library,
        names,
        lambda left: PeaksJob(library=library, names=left, threads=threads, cores=device["cores"]),
        variables,
        watcher,
        doubt="run: edgeq doctor",
    )
    timed = [Timed.model_validate(value) for value in done.found]
    timed += [Timed(name=name, note=why) for name, why in done.killed.items()]
    return LibraryPeaks(library=library, timed=timed, note=done.note), done.note is None and not done.killed


def time_net(library: str, name: str, threads: int, cores: int, known: set[str]) -> Timed:
    """Times one network in this process. What edgeq's session refuses becomes a note; anything else is raised.

    Args:
        known: Precisions that this library has been timed in; the network's is added.
    """
    with tempfile.TemporaryDirectory(prefix="edgeq-peaks-") as folder:
        try:
            net = (
                peaks.open_numpy(threads) if library == NUMPY else peaks.open_net(library, name, threads, Path(folder))
            )
        except EdgeqError as error:
            return Timed(name=name, note=Note.of(error))
        try:
            return _timed(net, name, threads, cores, known)
        finally:
            net.close()


def _timed(net: peaks.Runnable, name: str, threads: int, cores: int, known: set[str]) -> Timed:
    computes = next((precision for precision, part in net.executed.items() if part >= ALL), None)
    if computes is None:
        text = f"{net.library} computes its network {name} in several precisions: {net.executed}"
        return Timed(name=name, library=net.library, note=Note(code="mixed-precision", text=text))
    promised = "int8" if name.startswith("int8") else name
    if computes in known and computes != promised:
        return Timed(name=name, library=net.library, computes=computes)
    known.add(computes)
    found = fastest(net.run, threads, cores)
    macs_per_s = max(found.by_window, found.by_cpu) * net.macs
    return Timed(
        name=name,
        library=net.library,
        computes=computes,
        macs_per_s=macs_per_s,
        by_window=found.by_window * net.macs,
        disturbed=found.busy < UNDISTURBED,
    )


class Speed(BaseModel):
    """Samples a second, and what they were drawn from."""

    by_window: float
    """In the fastest window."""
    by_cpu: float
    """For the CPU time of all windows, as if all threads had had a CPU each throughout."""
    busy: float
    """CPU time over wall time and threads in the fastest window."""


def fastest(run: Callable[[int], None], threads: int, cores: int, clock: Clock | None = None) -> Speed:
    """Runs windows of samples until there has been enough time (see the module's constants).

    Args:
        run: Computes so many samples on ``threads`` threads.
        cores: Physical ones that the process may use. CPU time counts for no more than these: it tells nothing of what two
            threads do to each other on one core.
        clock: Wall and CPU time; tests have their own.
    """
    now = clock or Clock()
    parallel = min(threads, cores)
    began, samples = now.wall(), 0
    while samples < 2 * threads or now.wall() - began < WARM_UP_S:
        run(threads)
        samples += threads
    a_sample = (now.wall() - began) / samples
    counts = [max(1, round(length / a_sample / threads)) * threads for length in WINDOWS_S]
    began, cpu_began, samples, windows = now.wall(), now.cpu(), 0, 0
    best_rate, busy = 0.0, 0.0
    while True:
        count = counts[windows % len(counts)]
        wall, cpu = now.wall(), now.cpu()
        run(count)
        took, used = now.wall() - wall, now.cpu() - cpu
        if count / took > best_rate:
            best_rate, busy = count / took, used / took / parallel
        samples, windows = samples + count, windows + 1
        spent, had = now.wall() - began, now.cpu() - cpu_began
        if windows >= len(counts) and (spent >= MOST_S or (spent >= LEAST_S and had >= CPU_S * parallel)):
            return Speed(by_window=best_rate, by_cpu=samples / had * parallel, busy=busy)


class Clock:
    """Seconds of wall time, and of CPU time of this process's threads together."""

    def wall(self) -> float:
        return time.perf_counter()

    def cpu(self) -> float:
        return time.process_time()


def _work(job: PeaksJob) -> None:
    if job.library != NUMPY:
        preload(job.library)
    known: set[str] = set()
    for name in job.names:
        tell(name, partial(time_net, job.library, name, job.threads, job.cores, known))


def main(argv: Sequence[str]) -> int:
    """Exit code 0 with every network told of, 1 with the error told to the parent."""
    return serve(argv, PeaksJob, _work)


if __name__ == "__main__":
    leave(main(sys.argv))
