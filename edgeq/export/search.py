"""``--max-top1-drop``: the fewest layers in float with which an int8 artifact keeps its top-1, found by measuring."""

from __future__ import annotations

import math
import shutil
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from edgeq.artifact import LayerSearch, Manifest, describe_search
from edgeq.backends.layers import layer_errors
from edgeq.backends.session import Array, SessionOptions
from edgeq.binomial import Paired, Right, paired
from edgeq.data.samples import SampleSet
from edgeq.export.judge import Artifact, classes_of, medians_ms
from edgeq.export.smallest import Found, Layers, smallest
from edgeq.spec.note import Note

#: Most artifacts built and judged in one search: doubling and bisection over 53 layers take 12, the rest leaves out.
MOST_TRIALS = 24
_LATENCY_S = 4.0

#: Builds the artifact with these layers in float into an empty folder.
Build = Callable[[Layers, Path], Artifact]


@dataclass
class Search:
    """One artifact's search. Every trial is built by the exporter and judged by the session that is measured."""

    build: Build
    fp32: Artifact
    selection: SampleSet
    """Labelled images; none was calibrated on."""
    options: SessionOptions
    limit: float
    """Points of top-1 that may be lost, on the selection images."""
    ranking: Array
    """Samples ``[n, C, H, W]`` for the layers' errors."""
    scratch: Path
    on_trial: Callable[[int, str], None] = lambda count, text: None
    _right: dict[Layers, Right] = field(default_factory=dict)
    _failed: int = 0

    def run(self) -> tuple[Artifact, LayerSearch, list[Note]]:
        """The artifact to keep, what was found, and what a reader must know.

        Raises:
            EdgeqError: the artifact without any layer in float can't be built or judged.
        """
        fp32 = self._answers(self.fp32)
        first = self.build((), self._folder("first"))
        self._right[()] = self._answers(first)
        before = paired(fp32, self._right[()])
        ranked = self._ranked(first) if not self._holds(before) else []
        found = smallest(ranked, lambda layers: self._drop(layers, fp32), self.limit + 1e-9, MOST_TRIALS)
        best = first
        if found.layers:
            best = self.build(found.layers, self._folder("best"))
            self._right[found.layers] = self._answers(best)
        after = paired(fp32, self._right[found.layers])
        result = self._describe(found, fp32, after, first, best)
        return best, result, list(self._notes(result, after, found.spent))

    def _holds(self, gap: Paired) -> bool:
        return 100 * gap.drop <= self.limit + 1e-9

    def _answers(self, artifact: Artifact) -> Right:
        assert self.selection.labels is not None
        right: Right = classes_of(artifact, self.selection, self.options) == self.selection.labels
        return right

    def _folder(self, name: str) -> Path:
        folder = self.scratch / name
        folder.mkdir()
        return folder

    def _ranked(self, first: Artifact) -> list[str]:
        """Layers whose own rounding shows, worst first."""
        errors = [error for error in layer_errors(self.fp32, first, self.ranking) if error.local_sqnr_db is not None]
        return [error.name for error in sorted(errors, key=lambda error: error.local_sqnr_db or 0.0)]

    def _drop(self, layers: Layers, fp32: Right) -> float:
        """In points; infinite where the tools refuse this set."""
        if layers not in self._right:
            folder = self._folder(f"trial-{len(self._right) + self._failed}")
            try:
                self._right[layers] = self._answers(self.build(layers, folder))
            except Exception:  # one set of layers that a tool can't convert is no reason to give up the search
                traceback.print_exc()
                self._failed += 1
                return math.inf
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        drop = 100 * paired(fp32, self._right[layers]).drop
        self.on_trial(len(self._right) + self._failed, f"{len(layers)} of them in float: {drop:.1f} points below fp32")
        return drop

    def _describe(self, found: Found, fp32: Right, after: Paired, first: Artifact, best: Artifact) -> LayerSearch:
        layers = first[0].layers
        kept = sum(layer.macs for layer in layers if layer.name in found.layers)
        latency = None
        if found.layers:
            times = medians_ms([first, best], self.selection, self.options, _LATENCY_S)
            latency = times[1] / times[0]
        return LayerSearch(
            max_top1_drop=self.limit,
            reached=self._holds(after),
            n=after.n,
            fp32_top1=float(np.mean(fp32)),
            top1_before=float(np.mean(self._right[()])),
            top1=float(np.mean(self._right[found.layers])),
            drop=100 * after.drop,
            drop_interval=(100 * after.low, 100 * after.high),
            float_layers=list(found.layers),
            layers=len(layers),
            float_macs=kept / sum(layer.macs for layer in layers),
            trials=found.trials,
            size_ratio=best[0].bytes / first[0].bytes,
            latency_ratio=latency,
        )

    def _notes(self, result: LayerSearch, after: Paired, spent: bool) -> list[Note]:
        notes = []
        if result.float_layers:
            notes.append(Note(code="layers-kept-in-float", text=describe_search(result), hint=_again(result)))
        if not result.reached:
            why = f"the {MOST_TRIALS} trials were spent" if spent else "not even with every layer in float"
            notes.append(
                Note(
                    code="top1-drop-not-reached",
                    text=f"top-1 is {result.drop:.1f} points below fp32 on {after.n} images where at most "
                    f"{self.limit:g} were asked for ({why}); the best that was found is kept",
                    hint="try another --calibration-method, more --calibration images, or a larger --max-top1-drop",
                )
            )
        if result.drop_interval[1] - result.drop > self.limit:
            notes.append(
                Note(
                    code="few-selection-images",
                    text=f"on {after.n} images the drop of {result.drop:.1f} points lies between "
                    f"{result.drop_interval[0]:.1f} and {result.drop_interval[1]:.1f} (95 %): {self.limit:g} points "
                    "are within the noise",
                    hint="pass more labelled images: --calibration DIR --selection-count N",
                )
            )
        if self._failed:
            notes.append(
                Note(
                    code="trials-failed",
                    text=f"{self._failed} sets of layers could not be exported and were passed over",
                    hint="the export's log has the causes",
                )
            )
        return notes


def _again(found: LayerSearch) -> str:
    return "the same without a search: " + " ".join(f"--keep-float {name}" for name in found.float_layers)


def manifest_of(best: Manifest, found: LayerSearch, notes: list[Note]) -> Manifest:
    """The manifest of the artifact that is kept."""
    return best.model_copy(update={"search": found, "warnings": [*best.warnings, *notes]})
