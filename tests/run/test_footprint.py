"""The estimate of a worker's memory against peaks that were measured, and against a real worker's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.run.footprint import footprint
from edgeq.setting import Setting

SAMPLE, RESIDENT = 4 * 3 * 224 * 224, 64
#: Peak of a process with the framework and no model, as measured where the rest was.
FRAMEWORK = {"tflite": 57_393_152, "onnxruntime": 67_887_104, "openvino": 70_021_120, "pytorch": 544_759_808}

#: (model, backend, scheme, artifact's bytes, streams, batch, ``peak_rss_mb``): 2 threads, 64 samples, x86-64 with VNNI.
MEASURED = [
    ("densenet121", "onnxruntime", "fp32", 32107160, 1, 1, 227.6),
    ("densenet121", "onnxruntime", "fp32", 32107160, 2, 1, 231.2),
    ("densenet121", "onnxruntime", "int8-dynamic", 8659593, 1, 1, 173.9),
    ("densenet121", "onnxruntime", "int8-dynamic", 8659593, 2, 1, 188.5),
    ("densenet121", "onnxruntime", "int8-static", 9201412, 1, 1, 159.1),
    ("densenet121", "onnxruntime", "int8-static", 9201412, 2, 1, 167.3),
    ("densenet121", "openvino", "fp32", 32413643, 1, 1, 263.4),
    ("densenet121", "openvino", "fp32", 32413643, 2, 1, 293.3),
    ("densenet121", "openvino", "int8-dynamic", 8997284, 1, 1, 276.1),
    ("densenet121", "openvino", "int8-dynamic", 8997284, 2, 1, 384.5),
    ("densenet121", "openvino", "int8-static", 9355960, 1, 1, 434.2),
    ("densenet121", "openvino", "int8-static", 9355960, 2, 4, 648.6),
    ("densenet121", "pytorch", "fp32", 32059402, 1, 1, 688.6),
    ("densenet121", "pytorch", "fp32", 32059402, 2, 1, 697.7),
    ("densenet121", "pytorch", "int8-dynamic", 29007590, 1, 1, 681.3),
    ("densenet121", "pytorch", "int8-dynamic", 29007590, 2, 1, 697.7),
    ("densenet121", "pytorch", "int8-static", 8660847, 1, 1, 653.2),
    ("densenet121", "pytorch", "int8-static", 8660847, 2, 4, 684.8),
    ("densenet121", "tflite", "fp32", 32330852, 1, 1, 191.6),
    ("densenet121", "tflite", "fp32", 32330852, 2, 1, 279.1),
    ("densenet121", "tflite", "int8-dynamic", 8785536, 1, 1, 145.1),
    ("densenet121", "tflite", "int8-dynamic", 8785536, 2, 1, 182.9),
    ("densenet121", "tflite", "int8-static", 8793280, 1, 1, 137.7),
    ("densenet121", "tflite", "int8-static", 8793280, 2, 1, 168.0),
    ("mobilenet_v2", "onnxruntime", "fp16", 7026283, 1, 1, 167.4),
    ("mobilenet_v2", "onnxruntime", "fp16", 7026283, 2, 1, 173.7),
    ("mobilenet_v2", "onnxruntime", "fp32", 13992273, 1, 1, 167.6),
    ("mobilenet_v2", "onnxruntime", "fp32", 13992273, 2, 1, 174.4),
    ("mobilenet_v2", "onnxruntime", "int8-dynamic", 3849139, 1, 1, 152.3),
    ("mobilenet_v2", "onnxruntime", "int8-dynamic", 3849139, 2, 1, 163.9),
    ("mobilenet_v2", "onnxruntime", "int8-static", 3896087, 1, 1, 139.0),
    ("mobilenet_v2", "onnxruntime", "int8-static", 3896087, 2, 1, 144.0),
    ("mobilenet_v2", "openvino", "fp16", 7175711, 1, 1, 193.6),
    ("mobilenet_v2", "openvino", "fp16", 7175711, 2, 1, 203.5),
    ("mobilenet_v2", "openvino", "fp32", 14090652, 1, 1, 199.3),
    ("mobilenet_v2", "openvino", "fp32", 14090652, 2, 1, 209.1),
    ("mobilenet_v2", "openvino", "int8-dynamic", 3825387, 1, 1, 201.6),
    ("mobilenet_v2", "openvino", "int8-dynamic", 3825387, 2, 1, 240.5),
    ("mobilenet_v2", "openvino", "int8-static", 4015569, 1, 1, 182.9),
    ("mobilenet_v2", "openvino", "int8-static", 4015569, 2, 4, 208.1),
    ("mobilenet_v2", "pytorch", "fp16", 7010826, 1, 1, 623.5),
    ("mobilenet_v2", "pytorch", "fp16", 7010826, 2, 1, 629.6),
    ("mobilenet_v2", "pytorch", "fp32", 13985866, 1, 1, 645.5),
    ("mobilenet_v2", "pytorch", "fp32", 13985866, 2, 1, 656.0),
    ("mobilenet_v2", "pytorch", "int8-dynamic", 10164278, 1, 1, 642.6),
    ("mobilenet_v2", "pytorch", "int8-dynamic", 10164278, 2, 1, 652.3),
    ("mobilenet_v2", "pytorch", "int8-static", 3910839, 1, 1, 632.3),
    ("mobilenet_v2", "pytorch", "int8-static", 3910839, 2, 4, 656.8),
    ("mobilenet_v2", "tflite", "fp16", 7229584, 1, 1, 136.8),
    ("mobilenet_v2", "tflite", "fp16", 7229584, 2, 1, 168.9),
    ("mobilenet_v2", "tflite", "fp32", 14130812, 1, 1, 143.5),
    ("mobilenet_v2", "tflite", "fp32", 14130812, 2, 1, 180.3),
    ("mobilenet_v2", "tflite", "int8-dynamic", 4048672, 1, 1, 123.6),
    ("mobilenet_v2", "tflite", "int8-dynamic", 4048672, 2, 1, 140.4),
    ("mobilenet_v2", "tflite", "int8-static", 4160416, 1, 1, 119.3),
    ("mobilenet_v2", "tflite", "int8-static", 4160416, 2, 1, 131.4),
    ("vgg19", "onnxruntime", "fp16", 287347423, 1, 1, 1122.3),
    ("vgg19", "onnxruntime", "fp16", 287347423, 2, 1, 1175.2),
    ("vgg19", "onnxruntime", "fp32", 574678121, 1, 1, 1219.2),
    ("vgg19", "onnxruntime", "fp32", 574678121, 2, 1, 1162.5),
    ("vgg19", "onnxruntime", "int8-dynamic", 143801372, 1, 1, 366.9),
    ("vgg19", "onnxruntime", "int8-dynamic", 143801372, 2, 1, 431.1),
    ("vgg19", "onnxruntime", "int8-static", 143941035, 1, 1, 435.1),
    ("vgg19", "onnxruntime", "int8-static", 143941035, 2, 4, 435.0),
    ("vgg19", "openvino", "fp16", 287411807, 1, 1, 1050.2),
    ("vgg19", "openvino", "fp16", 287411807, 2, 1, 1077.9),
    ("vgg19", "openvino", "fp32", 574724304, 1, 1, 1337.2),
    ("vgg19", "openvino", "fp32", 574724304, 2, 1, 1364.7),
    ("vgg19", "openvino", "int8-dynamic", 143834052, 1, 1, 608.4),
    ("vgg19", "openvino", "int8-dynamic", 143834052, 2, 1, 1045.4),
    ("vgg19", "openvino", "int8-static", 143893459, 1, 1, 459.8),
    ("vgg19", "openvino", "int8-static", 143893459, 2, 4, 516.6),
    ("vgg19", "pytorch", "fp32", 574683078, 1, 1, 1253.4),
    ("vgg19", "pytorch", "fp32", 574683078, 2, 1, 1293.4),
    ("vgg19", "pytorch", "int8-dynamic", 203931884, 1, 1, 882.5),
    ("vgg19", "pytorch", "int8-dynamic", 203931884, 2, 1, 907.5),
    ("vgg19", "pytorch", "int8-static", 143976953, 1, 1, 916.2),
    ("vgg19", "pytorch", "int8-static", 143976953, 2, 4, 981.6),
    ("vgg19", "tflite", "fp16", 287397440, 1, 1, 1223.3),
    ("vgg19", "tflite", "fp16", 287397440, 2, 1, 2129.0),
    ("vgg19", "tflite", "fp32", 574697216, 1, 1, 1293.7),
    ("vgg19", "tflite", "fp32", 574697216, 2, 1, 2480.6),
    ("vgg19", "tflite", "int8-dynamic", 143916608, 1, 1, 423.0),
    ("vgg19", "tflite", "int8-dynamic", 143916608, 2, 1, 738.4),
    ("vgg19", "tflite", "int8-static", 144094576, 1, 1, 413.1),
    ("vgg19", "tflite", "int8-static", 144094576, 2, 1, 719.4),
]  # fmt: skip


@pytest.mark.parametrize(("model", "backend", "scheme", "size", "streams", "batch", "peak_mb"), MEASURED)
def test_no_worker_took_more_and_none_much_less(
    model: str, backend: str, scheme: str, size: int, streams: int, batch: int, peak_mb: float
) -> None:
    setting = Setting(threads=2, streams=streams, batch=batch)
    found = footprint(
        backend, scheme, framework=FRAMEWORK[backend], artifact=size, sample=SAMPLE, resident=RESIDENT, setting=setting
    )
    assert found.most >= peak_mb * 1e6, "a cell would be started that the kernel kills"
    assert found.least <= peak_mb * 1e6, "a cell would be refused that fits"


@given(
    streams=st.integers(1, 8), batch=st.integers(1, 32), size=st.integers(1, 10**9),
    backend=st.sampled_from([*FRAMEWORK, "own"]),
    scheme=st.sampled_from(["fp32", "fp16", "int8-static", "int8-dynamic"]),
)  # fmt: skip
def test_it_grows_with_all_that_it_hangs_on(streams: int, batch: int, size: int, backend: str, scheme: str) -> None:
    def most(streams: int, batch: int, size: int) -> int:
        setting = Setting(threads=8, streams=streams, batch=batch)
        return footprint(
            backend, scheme, framework=10**8, artifact=size, sample=SAMPLE, resident=4, setting=setting
        ).most

    here = most(streams, batch, size)
    assert here > 10**8 + size + 4 * SAMPLE
    assert most(streams + 1, batch, size) > here
    assert most(streams, batch + 1, size) > here
    assert most(streams, batch, size + 10**6) > here


def test_the_words_add_up() -> None:
    found = footprint(
        "tflite",
        "fp32",
        framework=60 * 10**6,
        artifact=575 * 10**6,
        sample=SAMPLE,
        resident=64,
        setting=Setting(threads=4),
    )
    assert found.most == found.framework + found.model + found.activations + found.samples
    assert math.isclose(found.least * 1.5, found.most, rel_tol=1e-6)
    assert found.words().startswith(f"{found.most / 1e6:.0f} MB (framework 60, model ")
