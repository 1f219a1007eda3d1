"""After a cell is measured: what ran, whether int8 saturates here, and where the time of an inference goes.

All of it comes last, so that it moves no figure: a probe before the real session would have made the framework's first
load and inference for it (lazily made kernels, thread pools), taken memory that is then the cell's peak, and set global
state such as PyTorch's quantized engine. Nothing here fails a cell: the measurement is whole, and what could not be told is
a warning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from edgeq.backends import profile_operators
from edgeq.backends.probes import probe, probe_note, recipe_of
from edgeq.backends.session import Array, Session, SessionOptions
from edgeq.data.layout import to_layout
from edgeq.events import emit
from edgeq.loadgen.protocols import Layout
from edgeq.operators import OperatorProfile
from edgeq.run.phases import OPERATORS, SATURATION
from edgeq.run.probing import info, keep_probe, kept_probe
from edgeq.run.record import EffectiveInfo
from edgeq.run.trial import CHECK_LIMIT_S, LOAD_LIMIT_S, Trial
from edgeq.spec.errors import EdgeqError
from edgeq.spec.note import Note

#: Seconds to spend on the operator profile, and the longest inference that it is still made for.
PROFILE_S, MAX_PROFILED_S = 0.5, 3.0

T = TypeVar("T")


def what_ran(trial: Trial, session: Session) -> None:
    """Adds ``effective``, read back from the framework; some load the model once more to tell."""
    emit("phase", name="reading what ran", limit_s=LOAD_LIMIT_S)
    effective = _told(trial, session.effective, "effective-unknown", "the framework did not say what it runs")
    if effective is not None:
        fields = EffectiveInfo.model_fields
        trial.known["effective"] = EffectiveInfo(**{k: v for k, v in vars(effective).items() if k in fields})
        trial.notes += effective.warnings


def saturation(trial: Trial) -> None:
    """Adds ``probe`` to an int8 cell: a convolution with a known answer, by the artifact's recipe (trap 1).

    It is run once a device and recipe, and again where the framework or anything else changed that it hangs on.
    """
    manifest = trial.manifest
    if manifest is None or not manifest.scheme.startswith("int8"):
        return
    recipe = recipe_of(manifest)
    if recipe is None:
        trial.notes.append(
            Note(
                code="no-probe",
                text="edgeq has no saturation probe for the recipe of this artifact: whether int8 saturates on this "
                "device was not tested",
                hint="compare its accuracy, or its agreement with fp32, on this device",
            )
        )
        return
    place = trial.job.device, trial.job.threads
    kept = probed = kept_probe(manifest.backend, recipe, *place)
    if probed is None:
        emit("phase", name=SATURATION, limit_s=LOAD_LIMIT_S)
        what = "the saturation probe did not run"
        probed = _told(trial, lambda: probe(manifest.backend, recipe, trial.job.threads), "no-probe", what)
        if probed is None:
            return
        try:
            keep_probe(manifest.backend, probed, *place)
        except EdgeqError as error:
            text = f"the saturation probe could not be kept, and is run again next time: {error.what}: {error.why}"
            trial.notes.append(Note(code="not-kept", text=text, hint=error.hint))
    trial.known["probe"] = info(probed).model_copy(update={"kept": kept is not None})
    if not probed.ok:
        trial.notes.append(probe_note(manifest.backend, probed, trial.job.target))


def operators(trial: Trial, reference: Array, layout: Layout) -> None:
    """Adds ``profile``: time by operator, of inferences with all threads and one stream, whatever the cell's scenario.

    Args:
        trial: Its canary says whether there is time.
        reference: Samples, NCHW, ``[n, channels, height, width]``.
        layout: The artifact's.
    """
    manifest, file = trial.manifest, trial.file
    if manifest is None or file is None:
        return
    inference_s = trial.known["canary"].ms_per_sample / 1e3 * trial.at_once
    if inference_s > MAX_PROFILED_S:
        text = f"an inference takes {inference_s:.1f} s: too slow to profile its operators in about {PROFILE_S:g} s"
        trial.notes.append(Note(code="no-profile", text=text))
        return
    emit("phase", name=OPERATORS, limit_s=LOAD_LIMIT_S + CHECK_LIMIT_S)
    options = SessionOptions(threads=trial.job.threads)
    samples = to_layout(reference, layout)

    def measured() -> OperatorProfile:
        return profile_operators(manifest, file, options, samples, PROFILE_S)

    profile = _told(trial, measured, "no-profile", "the operators were not profiled")
    if profile is None:
        return
    trial.known["profile"] = profile
    if profile.inferences == 1:
        text = (
            f"the operators were profiled in a single inference, without warm-up, as one takes "
            f"{profile.profiled_ms / 1e3:.1f} s: times by operator are indicative"
        )
        trial.notes.append(Note(code="single-inference", text=text, hint="--threads, or a faster device, allows more"))


def _told(trial: Trial, ask: Callable[[], T], code: str, what: str) -> T | None:
    """What ``ask`` returns; where it raises, None and a warning that says why."""
    try:
        return ask()
    except EdgeqError as error:
        trial.notes.append(Note(code=code, text=f"{what}: {error.what}: {error.why}", hint=error.hint))
    except Exception as error:  # frameworks raise what they like; the measurement is whole without this
        trial.notes.append(Note(code=code, text=f"{what}: {type(error).__name__}: {error}"))
    return None
