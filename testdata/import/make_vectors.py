#!/usr/bin/env python3
"""Writes small checkpoints in the quantised forms of other projects, and what they stand for.

    make_vectors.py [FOLDER]

Each folder it makes holds config.json, model.safetensors with one quantised matrix, and
expected.safetensors with "weight", the same matrix in float32. Codes, zero points and scales are
random; packing follows each project's own packer, restated here with plain loops:
  gptq*      AutoGPTQ, qlinear pack(): codes go down a column of words, lowest bits first, and 3-bit
             codes run on from word to word; zero points along a row, stored minus one in the first
             convention and as they are in "gptq_v2"; g_idx names each column's group
  awq*       AutoAWQ, gemm from_linear(): words along the outputs, nibble i is output 0 2 4 6 1 3 5 7
  bitnet*    transformers, bitnet pack_weights(): four quarters of the rows in one byte
  mlx*       mlx, quantize(): a stream of bits along each row, lowest first, value q * scale + bias
  ct_*       compressed-tensors, pack_to_int32(): signed codes plus 2^(bits-1), 32 / bits to a word
"""
import json
import os
import struct
import sys

import numpy as np

ROWS, COLS = 32, 64
STEM = "model.layers.0.mlp.up_proj"
DTYPES = {"float32": "F32", "float16": "F16", "uint8": "U8", "int8": "I8", "int32": "I32", "uint32": "U32", "int64": "I64"}


def save(path, tensors):
    header, data = {}, b""
    for name, value in sorted(tensors.items()):
        dtype = None
        if isinstance(value, tuple):
            value, dtype = value
        value = np.ascontiguousarray(value)
        raw = value.tobytes()
        header[name] = {"dtype": dtype or DTYPES[value.dtype.name], "shape": list(value.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def folder(name, config, tensors, expected):
    path = os.path.join(OUT, name)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(dict({"model_type": "llama"}, **config), f, indent=1)
        f.write("\n")
    save(os.path.join(path, "model.safetensors"), {STEM + "." + k: v for k, v in tensors.items()})
    save(os.path.join(path, "expected.safetensors"), {"weight": expected.astype("<f4")})


def stream(codes, bits):
    """1-D codes as 32-bit words, lowest bits first, running on across words."""
    total = 0
    for i, c in enumerate(codes):
        total |= int(c) << (bits * i)
    words = (len(codes) * bits + 31) // 32
    return np.array([(total >> (32 * w)) & 0xFFFFFFFF for w in range(words)], "<u4")


def half_scales(rng, *shape):
    return (rng.uniform(0.01, 0.1, shape)).astype("<f2")


def bf16_bits(values):
    """float32 that are exact in bf16, as the 16 bits that a file stores."""
    return (np.ascontiguousarray(values, "<f4").view("<u4") >> 16).astype("<u2")


def gptq(name, bits, group, convention, act_order=False, symmetric=False):
    rng = np.random.default_rng(bits * 1000 + group)
    groups = COLS // group
    codes = rng.integers(0, 1 << bits, (COLS, ROWS))
    # Stored minus one, a zero point of 0 has no form in the first convention.
    zeros = rng.integers(1, 1 << bits, (groups, ROWS))
    if symmetric:
        zeros[:] = 1 << (bits - 1)
    scales = half_scales(rng, groups, ROWS)
    g_idx = np.arange(COLS) // group
    if act_order:
        g_idx = rng.permutation(g_idx)
    qweight = np.stack([stream(codes[:, r], bits) for r in range(ROWS)], 1)
    stored = zeros - (1 if convention == "gptq" else 0)
    qzeros = np.stack([stream(stored[g], bits) for g in range(groups)])
    expected = ((codes - zeros[g_idx]).astype("<f4") * scales[g_idx].astype("<f4")).T
    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": act_order, "sym": symmetric}
    if convention != "gptq":
        config["checkpoint_format"] = convention
    folder(name, {"quantization_config": config},
           {"qweight": qweight.view("<i4"), "qzeros": qzeros.view("<i4"), "scales": scales, "g_idx": g_idx.astype("<i4")},
           expected)


def awq(name, group):
    rng = np.random.default_rng(7)
    groups, order = COLS // group, [0, 2, 4, 6, 1, 3, 5, 7]
    codes, zeros = rng.integers(0, 16, (COLS, ROWS)), rng.integers(0, 16, (groups, ROWS))
    scales = half_scales(rng, groups, ROWS)

    def pack(values):
        out = np.zeros((values.shape[0], values.shape[1] // 8), "<u4")
        for word in range(out.shape[1]):
            for i in range(8):
                out[:, word] |= (values[:, word * 8 + order[i]] << (4 * i)).astype("<u4")
        return out.view("<i4")
    g = np.arange(COLS) // group
    expected = ((codes - zeros[g]).astype("<f4") * scales[g].astype("<f4")).T
    folder(name, {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm", "zero_point": True}},
           {"qweight": pack(codes), "qzeros": pack(zeros), "scales": scales}, expected)


def bitnet(name, linear_class):
    rng = np.random.default_rng(8)
    codes = rng.integers(0, 3, (ROWS, COLS)).astype("u1")
    quarter = ROWS // 4
    packed = np.zeros((quarter, COLS), "u1")
    for i in range(4):
        packed |= codes[i * quarter:(i + 1) * quarter] << (2 * i)
    scale = np.array([0.40625], "<f4")  # exact in bf16
    factor = scale[0] if linear_class == "autobitlinear" else np.float32(1) / scale[0]
    folder(name, {"quantization_config": {"quant_method": "bitnet", "linear_class": linear_class, "quantization_mode": "offline"}},
           {"weight": packed, "weight_scale": (bf16_bits(scale), "BF16")}, (codes.astype("<f4") - 1) * np.float32(factor))


def mlx(name, bits, group, bf16):
    rng = np.random.default_rng(100 + bits)
    codes = rng.integers(0, 1 << bits, (ROWS, COLS))
    shape = (ROWS, COLS // group)
    scales, biases = half_scales(rng, *shape), -half_scales(rng, *shape)
    if bf16:
        scales, biases = [(np.asarray(v, "<f4").view("<u4") & 0xFFFF0000).view("<f4") for v in (scales, biases)]
    words = np.stack([stream(codes[r], bits) for r in range(ROWS)])
    s, b = [np.repeat(np.asarray(v, "<f4"), group, 1) for v in (scales, biases)]
    # The product of a code and a short scale is exact in float64, so there is one rounding.
    expected = (codes.astype("f8") * s.astype("f8") + b.astype("f8")).astype("<f4")
    if bf16:
        scales, biases = (bf16_bits(scales), "BF16"), (bf16_bits(biases), "BF16")
    folder(name, {"quantization": {"group_size": group, "bits": bits}}, {"weight": words, "scales": scales, "biases": biases}, expected)


def compressed(name, bits, group, symmetric):
    rng = np.random.default_rng(200 + bits + group + symmetric)
    group = group or COLS
    groups, low = COLS // group, -(1 << (bits - 1))
    codes = rng.integers(low, -low, (ROWS, COLS))
    zeros = np.zeros((ROWS, groups), "i8") if symmetric else rng.integers(low, -low, (ROWS, groups))
    scales = half_scales(rng, ROWS, groups)
    per = 32 // bits

    def pack(values):  # along the last axis, padded with zeros
        values = values - low
        values = np.pad(values, [(0, 0), (0, -values.shape[1] % per)])
        out = np.zeros((values.shape[0], values.shape[1] // per), "<u4")
        for i in range(per):
            out |= (values[:, i::per] << (bits * i)).astype("<u4")
        return out.view("<i4")
    tensors = {"weight_packed": pack(codes), "weight_scale": scales, "weight_shape": np.array([ROWS, COLS], "<i8")}
    if not symmetric:
        tensors["weight_zero_point"] = np.ascontiguousarray(pack(zeros.T).T)
    expected = (codes - np.repeat(zeros, group, 1)).astype("<f4") * np.repeat(scales.astype("<f4"), group, 1)
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": "group" if groups > 1 else "channel",
               "group_size": group if groups > 1 else None}
    folder(name, {"quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized",
                                          "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}}, tensors, expected)


def compressed_int8(name):
    rng = np.random.default_rng(300)
    codes, scales = rng.integers(-128, 128, (ROWS, COLS)).astype("i1"), half_scales(rng, ROWS, 1)
    weights = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
    folder(name, {"quantization_config": {"quant_method": "compressed-tensors", "format": "int-quantized",
                                          "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}},
           {"weight": codes, "weight_scale": scales}, codes.astype("<f4") * scales.astype("<f4"))


OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
gptq("gptq4", 4, 32, "gptq")
gptq("gptq4_v2", 4, 32, "gptq_v2")
gptq("gptq4_act_order", 4, 16, "gptq", act_order=True)
gptq("gptq4_symmetric", 4, 32, "gptq", symmetric=True)
gptq("gptq2", 2, 32, "gptq")
gptq("gptq3", 3, 64, "gptq")
gptq("gptq8", 8, 32, "gptq")
awq("awq4", 32)
bitnet("bitnet_auto", "autobitlinear")
bitnet("bitnet_plain", "bitlinear")
for bits, group, bf16 in ((2, 32, False), (3, 64, True), (4, 32, False), (5, 32, True), (6, 64, False), (8, 32, True)):
    mlx("mlx%d" % bits, bits, group, bf16)
compressed("ct_pack4", 4, 32, True)
compressed("ct_pack4_zeros", 4, 32, False)
compressed("ct_pack8_channel", 8, 0, True)
compressed_int8("ct_int8")
