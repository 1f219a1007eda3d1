from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeq.artifact import Reference, write_manifest
from edgeq.backends import installed, open_session
from edgeq.backends.probes import packaged
from edgeq.backends.session import SessionOptions
from edgeq.data.layout import to_layout
from edgeq.deploy import pack
from edgeq.deploy.checkout import build_wheel, checkout
from edgeq.deploy.contents import BundleRequest
from edgeq.deploy.pack import Bundle, make_bundle
from edgeq.files import sha256_file
from edgeq.host import cpu
from tests.deploy.sshd import Link, Sshd, running_sshd
from tests.model_folders import profile_toml

Bundler = Callable[[BundleRequest, Path], Bundle]

MODEL = """
name = "tiny"
title = "Tiny"
input_shape = [3, 16, 16]
classes = 256
macs = 1
parameters = 1
[source]
package = "nowhere"
constructor = "tiny"
[preprocess]
resize = 16
crop = 16
mean = [0.5, 0.5, 0.5]
std = [0.25, 0.25, 0.25]
"""


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running_sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def link(sshd: Sshd) -> Iterator[Link]:
    made = Link(sshd.port)
    yield made
    made.close()


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, ``tiny``, in two schemes of TFLite (a packaged probe plays it), and a short profile."""
    if not installed("tflite"):
        pytest.skip("tflite is not installed")
    folder = tmp_path_factory.mktemp("project")
    (folder / "scenarios").mkdir()
    (folder / "scenarios" / "quick.toml").write_text(profile_toml("quick"))
    artifacts = folder / "models" / "tiny" / "artifacts"
    (artifacts / "tflite").mkdir(parents=True)
    (folder / "models" / "tiny" / "model.toml").write_text(MODEL)
    samples = np.random.default_rng(0).standard_normal((4, 3, 16, 16)).astype(np.float32)
    for scheme in ("fp16", "int8-static"):
        manifest, source = packaged("tflite", scheme)
        session = open_session(manifest, source, SessionOptions(threads=1))
        logits = np.concatenate([session.infer(each[None]) for each in to_layout(samples, session.input.layout)])
        session.close()
        reference = artifacts / f"reference-{scheme}.npz"
        np.savez(reference, samples=samples, logits=logits)
        file = artifacts / "tflite" / f"{scheme}.tflite"
        shutil.copy(source, file)
        entry = manifest.files[0].model_copy(update={"name": file.name, "sha256": sha256_file(file)})
        stands = Reference(file=f"../{reference.name}", sha256=sha256_file(reference))
        made = {"model": "tiny", "files": [entry], "reference": stands, "key": f"key of {scheme}"}
        write_manifest(file.with_suffix(".json"), manifest.model_copy(update=made))
    return folder


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """edgeq's own wheel, built once."""
    return build_wheel(checkout(), tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def bundler(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Iterator[Bundler]:
    """Makes bundles with that wheel, and without downloading LoadGen: a device of the tests has it."""
    sdist = tmp_path_factory.mktemp("loadgen") / "mlcommons_loadgen-6.0.17.tar.gz"
    sdist.write_bytes(b"not built in tests")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEQ_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        patch.setattr(pack, "packed", lambda *_: ([sdist], []))
        patch.setattr(pack, "build_wheel", lambda *_: wheel)
        yield lambda request, out: make_bundle(request, out, lambda *_: None, lambda _step: None)


def request_of(project: Path, **changes: Any) -> BundleRequest:
    """For this machine, all that ``project`` has."""
    fields: dict[str, Any] = {
        "models_dir": project / "models",
        "scenarios_dir": project / "scenarios",
        "models": ("tiny",),
        "backends": ("tflite",),
        "schemes": ("fp16", "int8-static"),
        "target": cpu.target(),
        "profiles": ("quick",),
    }
    return BundleRequest(**{**fields, **changes})


@pytest.fixture(scope="session")
def bundle(project: Path, bundler: Bundler, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of ``project`` for this machine."""
    out = tmp_path_factory.mktemp("bundle") / f"edgeq-{cpu.target()}.pyz"
    return bundler(request_of(project), out).path
