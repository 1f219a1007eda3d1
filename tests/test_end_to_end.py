"""Real models through the whole spine: export, LoadGen in child processes, tables."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgeq.export.job import ExportRequest, export
from edgeq.host import cpu
from edgeq.host.device import describe
from edgeq.report import write_report
from edgeq.run.record import Record, read_record
from edgeq.run.runner import Runner, RunRequest, Watcher
from edgeq.spec.names import BACKENDS, STUDY_SCENARIOS
from edgeq.spec.profile import Profile, load_profile

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]
MODEL = "mobilenet_v2"


def _profile(repo: Path) -> Profile:
    """The quick profile, a tenth as long."""
    profile = load_profile(repo / "scenarios", "quick")
    short = {
        s.replace("-", "_"): profile.scenario(s).model_copy(update={"min_duration_s": 0.3}) for s in STUDY_SCENARIOS
    }
    return profile.model_copy(update={"resident_samples": 8, "cell_budget_s": 120.0, **short})


def _models(repo: Path, folder: Path) -> Path:
    (folder / MODEL).mkdir(parents=True)
    shutil.copy(repo / "models" / MODEL / "model.toml", folder / MODEL)
    return folder


def _run(repo: Path, models: Path, results: Path, backends: tuple[str, ...], dataset: Path | None) -> list[Record]:
    request = RunRequest(
        models_dir=models, results=results, models=(MODEL,), backends=backends, schemes=("fp32", "int8-static"),
        scenarios=STUDY_SCENARIOS, profile=_profile(repo), threads=cpu.physical_cores(), target=cpu.target(),
        device={**describe(), "slug": "here"}, dataset=dataset,
    )  # fmt: skip
    return Runner(request, Watcher()).run()


def _loads_only_its_own_framework(repo: Path, results: Path) -> None:
    """Runs a TFLite worker once more by its own job file, and asks it which modules it has loaded."""
    (job,) = results.glob(f"here/*/{MODEL}/tflite/fp32/offline/job.json")
    code = (
        "import sys\n"
        "from edgeq.run.worker import main\n"
        f"code = main(['worker', {str(job)!r}])\n"
        "heavy = ['torch', 'torchvision', 'onnxruntime', 'openvino', 'pandas', 'PIL', 'ai_edge_litert']\n"
        "print('loaded:', code, [name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=repo, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded: 0 ['ai_edge_litert']", done.stderr
    assert read_record(job.with_name("record.json")).peak_rss_mb is not None


def test_mobilenet_on_four_frameworks(repo: Path, tmp_path: Path) -> None:
    models = _models(repo, tmp_path / "models")
    request = ExportRequest(
        models_dir=models, models=[MODEL], backends=BACKENDS, schemes=["fp32", "int8-static"], weights="random",
        target=cpu.target(), threads=cpu.physical_cores(), calibration_count=16,
    )  # fmt: skip
    outcomes = list(export(request, lambda what, done, total: None))
    assert [outcome.outcome for outcome in outcomes] == ["exported"] * 8, [o.manifest.reason for o in outcomes]
    for outcome in outcomes:
        found = outcome.manifest.check
        assert found is not None
        if outcome.scheme == "fp32":
            assert found.max_rel_error <= 1e-3
            assert found.macs == {"fp32": 1.0}
        else:
            assert found.quantized_macs > 0.9, f"{outcome.backend}: {found.macs}"
            assert found.size_ratio is not None
            assert found.size_ratio < 0.4
    records = _run(repo, models, tmp_path / "results", BACKENDS, None)
    assert len(records) == 4 * 2 * 3
    assert {str(record.cell): record.reason for record in records if record.status != "ok"} == {}
    for record in records:
        assert record.accuracy is None
        assert record.output_check is not None
        assert record.output_check.stable
        assert record.effective is not None
        assert record.effective.threads == cpu.physical_cores()
        assert "output-differs" not in {note.code for note in record.warnings}
    _loads_only_its_own_framework(repo, tmp_path / "results")
    tables = write_report(tmp_path / "results", None, tmp_path / "report", {"md", "csv"})
    text = next(path for path in tables if path.name == "report.md").read_text(encoding="utf-8")
    assert "random, seed 0" in text
    for backend in BACKENDS:
        assert backend in text


def test_int8_static_keeps_the_accuracy_on_real_images(repo: Path, tmp_path: Path, shared_data: Path) -> None:
    models = _models(repo, tmp_path / "models")
    images = shared_data / "nips17-rot180"
    backends = ("openvino", "tflite", "onnxruntime")
    request = ExportRequest(
        models_dir=models, models=[MODEL], backends=backends, schemes=["fp32", "int8-static"],
        weights=str(shared_data / "mobilenet_v2-rot180.safetensors"), calibration=images, target=cpu.target(),
        threads=cpu.physical_cores(),
    )  # fmt: skip
    for outcome in export(request, lambda what, done, total: None):
        assert outcome.outcome == "exported", outcome.manifest.reason
    records = _run(repo, models, tmp_path / "results", backends, images)
    top1: dict[tuple[str, str], float] = {}
    for record in records:
        assert record.status == "ok", record.reason
        assert record.accuracy is not None
        assert (record.accuracy.n, record.accuracy.excluded_calibration) == (372, 128)
        top1.setdefault((record.cell.backend, record.cell.scheme), record.accuracy.top1)
        assert top1[record.cell.backend, record.cell.scheme] == record.accuracy.top1, "one accuracy an artifact"
        assert "accuracy-loss" not in {note.code for note in record.warnings}
    assert len({top1[backend, "fp32"] for backend in backends}) == 1
    assert 0.78 <= top1["tflite", "fp32"] <= 0.82
    for backend in backends:
        assert top1[backend, "fp32"] - top1[backend, "int8-static"] <= 0.03
