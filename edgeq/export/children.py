"""Export child processes: started, listened to, stopped; and several families of them side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from edgeq.events import Child, cause_of_death
from edgeq.export.prepare import PrepareJob, log_path
from edgeq.files import write_error, write_json
from edgeq.host.memory import oom_kills
from edgeq.host.threads import environment
from edgeq.spec.errors import EdgeqError

Job = TypeVar("Job")
Result = TypeVar("Result")


class ChildDied(EdgeqError):
    """An export child that ended without saying why."""


class Children:
    """The export children that are alive, so that an interrupt can end them all."""

    def __init__(self) -> None:
        self._alive: set[Child] = set()
        self._lock = threading.Lock()
        self.stopped = False

    def run(self, module: str, step: str, of: PrepareJob, job: Any) -> Iterator[dict[str, Any]]:
        """Runs ``module`` with ``job`` and yields its events; ``of`` says for which model and with what threads.

        Raises:
            EdgeqError: what the child reported as the user's error, or a folder that can't be written.
            ChildDied: it ended by a signal or a non-zero exit code without a word.
        """
        log = log_path(of.models_dir, of.model, step)
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(log, error) from error
        job_file = log.with_suffix(".job.json")
        write_json(job_file, job)
        oom = oom_kills()
        child = Child.start(module, job_file, log, environment(of.threads))
        with self._lock:
            self._alive.add(child)
            if self.stopped:
                child.process.kill()
        try:
            for event in child.events():
                if event is None:
                    continue
                if event["event"] == "error":
                    fields = {name: event[name] for name in ("what", "why", "hint", "code", "exit_code")}
                    raise EdgeqError(**fields)
                yield event
        finally:
            with self._lock:
                self._alive.discard(child)
            child.kill()
        code = child.process.returncode
        if code != 0:
            cause, text = cause_of_death(code, log, oom_kills().since(oom))
            raise ChildDied(f"the export of {of.model} ({step}) died", text, f"the whole story is in {log}", code=cause)

    def stop(self) -> None:
        """Ends all children; whoever listens to one sees it die."""
        with self._lock:
            self.stopped = True
            for child in self._alive:
                child.process.kill()


class _Waiting(Generic[Job]):
    """Jobs that wait, and how much of the room is taken by those at work."""

    def __init__(self, jobs: Sequence[Job], room: int | None, need: Callable[[Job], int]) -> None:
        self._jobs, self._room, self._need = list(jobs), room, need
        self._taken: list[Job] = []
        self._changed = threading.Condition()

    def take(self) -> Job | None:
        """The first job that there is room for, or any where none is at work; waits for it. None where none is left."""
        with self._changed:
            while self._jobs:
                job = next((job for job in self._jobs if self._fits(job)), None)
                if job is not None:
                    self._jobs.remove(job)
                    self._taken.append(job)
                    return job
                self._changed.wait()
            return None

    def _fits(self, job: Job) -> bool:
        if not self._taken or self._room is None:
            return True
        return sum(map(self._need, self._taken)) + self._need(job) <= self._room

    def give_back(self, job: Job) -> None:
        with self._changed:
            self._taken.remove(job)
            self._changed.notify_all()

    def clear(self) -> None:
        with self._changed:
            self._jobs.clear()
            self._changed.notify_all()


def side_by_side(
    jobs: Sequence[Job],
    width: int,
    work: Callable[[Job], Iterator[Result]],
    children: Children,
    *,
    room: int | None = None,
    need: Callable[[Job], int] = lambda job: 0,
) -> Iterator[Result]:
    """Yields all results of ``work(job)`` of all jobs, as they come, at most ``width`` jobs at work at once.

    The first failure is raised here once the others are stopped; so are they where the caller stops listening.

    Args:
        room: What jobs at work may take together, by ``need``, such as bytes of memory; None for no limit. A job that
            needs more than that is at work alone.
        need: How much of it a job takes.
    """
    waiting = _Waiting(jobs, room, need)
    results: SimpleQueue[Result | BaseException | None] = SimpleQueue()

    def serve() -> None:
        try:
            while (job := waiting.take()) is not None:
                try:
                    for result in work(job):
                        results.put(result)
                except BaseException:
                    waiting.clear()
                    raise
                finally:
                    waiting.give_back(job)
        except BaseException as error:
            results.put(error)
        finally:
            results.put(None)

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(min(width, len(jobs)))]
    for thread in threads:
        thread.start()
    running = len(threads)
    try:
        while running:
            result = results.get()
            if result is None:
                running -= 1
            elif isinstance(result, BaseException):
                raise result
            else:
                yield result
    finally:
        waiting.clear()
        if running:
            children.stop()
        for thread in threads:
            thread.join()
