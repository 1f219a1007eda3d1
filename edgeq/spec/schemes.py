"""What each scheme means in each framework: what is stored, and what is computed. Written once, here.

``docs/schemes.md`` is this table, printed by ``python -m edgeq.spec.schemes``; a test keeps the two equal.
What really ran on a device is not claimed here: each record reads it from the framework (``effective.macs``).
"""

from __future__ import annotations

from dataclasses import dataclass

from edgeq.spec.names import BACKENDS, SCHEMES
from edgeq.spec.note import Note


@dataclass(frozen=True)
class Meaning:
    """One framework's reading of one scheme. ``not_offered`` is the reason where the framework lacks it."""

    stored: str
    computed: str
    tool: str
    not_offered: Note | None = None


_MEANINGS: dict[tuple[str, str], Meaning] = {
    ("openvino", "fp32"): Meaning(
        "IR, float32 weights",
        "float32: the precision hint is set to f32, because the plugin's own default is bf16 or f16 on some CPUs",
        "openvino.convert_model, save_model",
    ),
    ("openvino", "fp16"): Meaning(
        "IR, weights compressed to float16",
        "float16 where the CPU plugin lists FP16 among its capabilities, else float32: then only storage is halved",
        "openvino.save_model(compress_to_fp16=True)",
    ),
    ("openvino", "int8-static"): Meaning(
        "IR with FakeQuantize, int8 weights per channel, activation ranges from calibration",
        "convolution and linear layers in int8; what the plugin leaves in float stays float32",
        "nncf.quantize, mixed preset; on x86-64 without VNNI the first layer's weights are held to 7 bits",
    ),
    ("openvino", "int8-dynamic"): Meaning(
        "IR, weights of convolution and linear layers compressed to int8, symmetric, per channel",
        "convolutions in float32 with decompressed weights (1x1 ones at each inference); linear layers with activations "
        "quantized at run time where the plugin has the kernel, else float32",
        "nncf.compress_weights(INT8_SYM)",
    ),
    ("tflite", "fp32"): Meaning(
        "flatbuffer, float32 weights",
        "float32 (XNNPACK)",
        "litert-torch",
    ),
    ("tflite", "fp16"): Meaning(
        "flatbuffer, float16 weights behind DEQUANTIZE",
        "float32 (XNNPACK): weights are widened when the file is loaded",
        "litert-quantizer, float casting",
    ),
    ("tflite", "int8-static"): Meaning(
        "flatbuffer, int8 weights per channel, int8 activations, float32 input and output",
        "int8 (XNNPACK), between one QUANTIZE and one DEQUANTIZE",
        "litert-quantizer, static_wi8_ai8",
    ),
    ("tflite", "int8-dynamic"): Meaning(
        "flatbuffer, int8 weights per channel of convolution and linear layers; activations, depthwise weights and those of "
        "a small first convolution that pads are float32",
        "convolution and linear layers in int8, activations quantized at run time; depthwise layers in float32, for which "
        "XNNPACK has no dynamic kernel, and a small first convolution, before which padding would cost more than int8 gains",
        "litert-quantizer, dynamic_wi8_afp32 without DEPTHWISE_CONV_2D",
    ),
    ("onnxruntime", "fp32"): Meaning("ONNX, float32", "float32 (MLAS)", "torch.onnx.export"),
    ("onnxruntime", "fp16"): Meaning(
        "ONNX, float16 weights, each behind a Cast; for aarch64 float16 operators too; float32 input and output",
        "float32: weights are widened when the file is loaded; on aarch64 float16 where the CPU has float16 arithmetic, "
        "for the operators for which the CPU provider has a kernel",
        "initializers rewritten; for aarch64 onnxconverter-common, convert_float_to_float16",
    ),
    ("onnxruntime", "int8-static"): Meaning(
        "ONNX, QDQ, 8-bit weights per channel on a symmetric grid (u8 x u8 on x86-64 without VNNI, u8 x s8 with VNNI, "
        "s8 x s8 on aarch64), min-max activation ranges from calibration",
        "int8, with batch norms that no convolution takes up as depthwise convolutions of one tap",
        "onnxruntime.quantization: quant_pre_process, quantize_static",
    ),
    ("onnxruntime", "int8-dynamic"): Meaning(
        "ONNX, uint8 weights of convolution and linear layers; depthwise convolutions float32",
        "ConvInteger, one scale a tensor, and DynamicQuantizeMatMul, with activations quantized at run time; depthwise "
        "convolutions in float32, because one scale for all their channels destroys them",
        "onnxruntime.quantization: quant_pre_process, quantize_dynamic",
    ),
    ("pytorch", "fp32"): Meaning(
        "TorchScript, frozen, float32, channels-last", "float32 (oneDNN)", "torch.fx fuse, torch.jit.trace, freeze"
    ),
    ("pytorch", "fp16"): Meaning(
        "TorchScript, frozen, float16 weights, channels-last; float32 input and output, cast inside",
        "float16: by oneDNN on CPUs with float16 arithmetic, else by a slow reference kernel",
        "torch.fx fuse, torch.jit.trace, half, freeze",
    ),
    ("pytorch", "int8-static"): Meaning(
        "TorchScript, int8 weights per channel, uint8 activations, ranges from calibration",
        "convolution and linear layers in int8 (oneDNN or FBGEMM on x86, QNNPACK on ARM); for x86 without VNNI activations "
        "have 7 bits and depthwise layers stay float32",
        "torch.ao.quantization FX, ReLU6 fused",
    ),
    ("pytorch", "int8-dynamic"): Meaning(
        "TorchScript, int8 weights per channel of linear layers only",
        "linear layers in int8 with activations quantized at run time; convolutions stay float32, "
        "because PyTorch has no dynamic convolution",
        "torch.ao.quantization.quantize_dynamic",
    ),
}


def meaning(backend: str, scheme: str) -> Meaning:
    """What ``scheme`` means in ``backend``. Raises ``KeyError`` for names outside the contract."""
    return _MEANINGS[backend, scheme]


def as_markdown() -> str:
    """The whole table as the page ``docs/schemes.md``."""
    lines = [
        "# What each scheme means in each framework",
        "",
        "Printed by `python -m edgeq.spec.schemes`; edit `edgeq/spec/schemes.py`, not this page. What really ran on a",
        "device is in each record: `effective.macs` is the share of multiply-adds executed in each precision.",
        "",
    ]
    for scheme in SCHEMES:
        lines += [f"## {scheme}", "", "| framework | stored | computed | tool |", "|---|---|---|---|"]
        for backend in BACKENDS:
            found = meaning(backend, scheme)
            computed = found.computed if found.not_offered is None else f"not offered: {found.not_offered.text}"
            lines.append(f"| {backend} | {found.stored} | {computed} | {found.tool} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    print(as_markdown(), end="")
