#!/usr/bin/env python3
"""Writes the version-1 sample files of this folder by hand, from docs/format.md alone.

Usage: make_v1.py [FOLDER]. Independent of the library: bytes are laid out here once more.
"""
import json
import os
import struct
import sys

MAGIC = b"CELLM\x01"


def hexes(text):
    return bytes.fromhex(text)


def container(header, tensors, separators, unaligned=()):
    """tensors: (name, dtype, shape, bytes). Names in `unaligned` follow the tensor before at once."""
    start = 0
    while True:
        entries, offset, blocks = [], start, []
        for name, dtype, shape, data in tensors:
            if name not in unaligned:
                offset = (offset + 63) // 64 * 64
            entries.append({"name": name, "offset_bytes": offset, "nbytes": len(data),
                            "shape": shape, "dtype": dtype})
            blocks.append((offset, data))
            offset += len(data)
        text = json.dumps({**header, "tensors": entries}, separators=separators).encode()
        wanted = (10 + len(text) + 63) // 64 * 64
        if wanted == start:
            break
        start = wanted
    out = bytearray(MAGIC + struct.pack("<I", len(text)) + text)
    for offset, data in blocks:
        out += bytes(offset - len(out)) if offset > len(out) else b""
        out += data
    return bytes(out)


BASE = {
    "model_type": "llama", "vocab_size": 2, "hidden_dim": 4, "intermediate_size": 8,
    "num_layers": 1, "num_heads": 2, "num_kv_heads": 1, "head_dim": 2, "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": 2,
    "source_text_config": {"model_type": "llama", "attention_bias": True},
}

# The published vectors V1 to V15, one tensor (and its scales) each.
VECTORS = [
    ("v01", "f16", [5], hexes("003C 00C0 0038 0100 FF7B")),
    ("v02", "bf16", [3], hexes("803F 20C0 4940")),
    ("v03.weight", "i8", [1, 4], hexes("4081200D")),
    ("v03.weight.qscale", "f16", [1], hexes("0820")),
    ("v04.weight", "i8", [2, 2], hexes("7F81 0180")),
    ("v04.weight.qscale", "f16", [2], hexes("003C 0038")),
    ("v05.weight", "i4", [1, 5], hexes("1F8B87")),
    ("v05.weight.qscale", "f16", [1], hexes("662E")),
    ("v06.weight", "i4", [1, 4], hexes("F098")),
    ("v06.weight.qscale", "f16", [1], hexes("0040")),
    ("v07.weight", "i4", [1, 4], hexes("9FF1")),
    ("v07.weight.qscale", "f16", [1, 2], hexes("003C 0038")),
    ("v08.weight", "i2", [1, 4], hexes("E4")),
    ("v08.weight.qscale", "f16", [1], hexes("003C")),
    ("v09.weight", "i2", [1, 6], hexes("1B01")),
    ("v09.weight.qscale", "f16", [1], hexes("0040")),
    ("v10.weight", "q1_0_g128", [1, 128], hexes("0038 05" + "00" * 15)),
    ("v11.weight", "q1_0_g128", [1, 128], hexes("0034" + "FF" * 16)),
    ("v12.weight", "f8e4m3", [1, 13], hexes("00 01 07 08 2C 30 38 3C 40 B8 77 7F F7")),
    ("v13.biases", "f32", [1, 1], struct.pack("<f", -1.0)),
    ("v13.scales", "f32", [1, 1], struct.pack("<f", 0.5)),
    ("v13.weight", "u32", [1, 1], hexes("10325476")),
    ("v14.biases", "f32", [1, 1], struct.pack("<f", 0.0)),
    ("v14.scales", "f32", [1, 1], struct.pack("<f", 0.25)),
    ("v14.weight", "u32", [1, 1], hexes("EFCDAB89")),
    ("v15.weight", "u32", [1, 1], hexes("88C6FA0D")),
    ("v15.weight.biases", "f16", [1, 1], hexes("0000")),
    ("v15.weight.scales", "f16", [1, 1], hexes("003C")),
]

# What readers must bear: spaces in the JSON, null keys, a list of end ids, scales that begin at an
# odd byte or state their weight's shape, words that state the shape of their weights.
TOLERATED_HEADER = {
    **BASE, "model_type": "qwen3", "head_dim": None, "eos_token_id": [2, 1], "rope_theta": 1000000,
    "max_position_embeddings": None, "source_text_config": None, "something_new": {"a": [1, 2]},
    "rope_scaling_type": "llama3", "rope_scaling_factor": 8.0,
    "rope_scaling_original_max_position_embeddings": 256,
}
TOLERATED = [
    ("model.layers.0.self_attn.k_proj.weight", "f16", [3, 4], bytes(24)),
    ("odd.weight", "i8", [1, 3], hexes("010203")),
    ("odd.weight.qscale", "f16", [1, 3], hexes("003C")),
    ("words.biases", "f32", [2, 1], struct.pack("<2f", 0.0, -1.0)),
    ("words.scales", "f32", [2, 1], struct.pack("<2f", 0.25, 0.5)),
    ("words.weight", "u32", [2, 8], hexes("EFCDAB89 10325476")),
]

# The smallest file that a reader opens and that has a tensor: one value, 1.0.
SMALLEST_HEADER = {
    "model_type": "llama", "vocab_size": 1, "hidden_dim": 1, "intermediate_size": 1,
    "num_layers": 1, "num_heads": 1, "num_kv_heads": 1, "rms_norm_eps": 1e-05, "rope_theta": 1e4,
}
SMALLEST = [("a", "f16", [1], hexes("003C"))]


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    compact, spaced = (",", ":"), (", ", ": ")
    files = {
        "v1_vectors.cellm": container(BASE, VECTORS, compact),
        "v1_tolerances.cellm": container(TOLERATED_HEADER, TOLERATED, spaced,
                                         unaligned=("odd.weight.qscale",)),
        "v1_smallest.cellm": container(SMALLEST_HEADER, SMALLEST, compact),
    }
    for name, data in files.items():
        with open(os.path.join(folder, name), "wb") as out:
            out.write(data)


if __name__ == "__main__":
    main()
