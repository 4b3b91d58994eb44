#!/usr/bin/env python3
"""Writes small PyTorch checkpoints without PyTorch: the pickle module with stand-ins of the same
names, and a ZIP archive of stored entries, as torch.save() lays them out.

    make_vectors.py [FOLDER]
"""
import collections
import io
import json
import os
import pickle
import struct
import sys
import types
import zipfile


def module(name):
    made = types.ModuleType(name)
    sys.modules[name] = made
    return made


torch, utils = module("torch"), module("torch._utils")
torch._utils = utils


def named(name, where, holder):
    def f(*args):
        raise RuntimeError("only its name is used")
    f.__name__ = f.__qualname__ = name
    f.__module__ = where
    setattr(holder, name, f)
    return f


rebuild = named("_rebuild_tensor_v2", "torch._utils", utils)
parameter = named("_rebuild_parameter", "torch._utils", utils)
KINDS = {name: type(name + "Storage", (), {"__module__": "torch"})
         for name in ("Float", "Half", "BFloat16", "Long", "Byte", "Double")}
for name, kind in KINDS.items():
    setattr(torch, name + "Storage", kind)


class Storage:
    def __init__(self, key, kind, count, data):
        self.key, self.kind, self.count, self.data = key, kind, count, data


class Call:
    """Pickles as a call of `function`."""

    def __init__(self, function, *args):
        self.function, self.args = function, args

    def __reduce__(self):
        return self.function, self.args


def tensor(storage, shape, offset=0, stride=None):
    if stride is None:
        stride, step = [], 1
        for dim in reversed(shape):
            stride.insert(0, step)
            step *= dim
    return Call(rebuild, storage, offset, tuple(shape), tuple(stride), False, collections.OrderedDict())


class Pickler(pickle.Pickler):
    def persistent_id(self, value):
        if isinstance(value, Storage):
            return ("storage", KINDS[value.kind], value.key, "cpu", value.count)
        return None


def archive(path, root, storages, protocol=2, compress=False, prefix="archive"):
    out = io.BytesIO()
    Pickler(out, protocol).dump(root)
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", method) as z:
        def write(name, data):
            z.writestr(zipfile.ZipInfo(prefix + "/" + name, (1980, 1, 1, 0, 0, 0)), data, method)
        write("data.pkl", out.getvalue())
        write("byteorder", b"little")
        for s in storages:
            write("data/" + s.key, s.data)
        write("version", b"3\n")


def floats(*values):
    return struct.pack("<%df" % len(values), *values)


OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
os.makedirs(OUT, exist_ok=True)
f32 = Storage("0", "Float", 12, floats(*range(12)))
f16 = Storage("1", "Half", 3, struct.pack("<3e", 1.0, -2.0, 0.5))
bf16 = Storage("2", "BFloat16", 2, struct.pack("<2H", 0x3F80, 0xC000))
i64 = Storage("3", "Long", 2, struct.pack("<2q", 7, -1))
state = collections.OrderedDict()
state["whole"] = tensor(f32, (3, 4))
state["tied"] = tensor(f32, (3, 4))
state["last_row"] = tensor(f32, (1, 4), 8)
state["half"] = tensor(f16, (3,))
state["brain"] = Call(parameter, tensor(bf16, (2,)), True, collections.OrderedDict())
state["numbers"] = tensor(i64, (2,))
everything = [f32, f16, bf16, i64]
archive(os.path.join(OUT, "plain.bin"), state, everything)
archive(os.path.join(OUT, "protocol4.bin"), state, everything, protocol=4)
archive(os.path.join(OUT, "wrapped.pt"), {"epoch": 3, "state_dict": dict(state), "lr": 0.5, "betas": [0.9, 0.99]}, everything)
archive(os.path.join(OUT, "compressed.bin"), state, everything, compress=True)
archive(os.path.join(OUT, "transposed.bin"), {"w": tensor(f32, (4, 3), stride=(1, 4))}, [f32])
archive(os.path.join(OUT, "past_the_end.bin"), {"w": tensor(f32, (3, 4), 4)}, [f32])
archive(os.path.join(OUT, "no_storage.bin"), {"w": tensor(f32, (3, 4))}, [f16])
archive(os.path.join(OUT, "executes.bin"), {"w": Call(os.system, "echo harm")}, [])
archive(os.path.join(OUT, "no_tensors.bin"), {"w": 1}, [])
with open(os.path.join(OUT, "old_form.bin"), "wb") as f:
    f.write(pickle.dumps(0x1950a86a20f9469cfc6c, 2) + pickle.dumps(1001, 2))
shards = os.path.join(OUT, "sharded")
os.makedirs(shards, exist_ok=True)
archive(os.path.join(shards, "pytorch_model-00001-of-00002.bin"), {"a": tensor(f32, (3, 4))}, [f32])
archive(os.path.join(shards, "pytorch_model-00002-of-00002.bin"), {"b": tensor(f16, (3,))}, [f16])
with open(os.path.join(shards, "pytorch_model.bin.index.json"), "w") as f:
    json.dump({"metadata": {}, "weight_map": {"a": "pytorch_model-00001-of-00002.bin", "b": "pytorch_model-00002-of-00002.bin"}}, f, indent=1)
    f.write("\n")
with open(os.path.join(shards, "config.json"), "w") as f:
    f.write("{\"model_type\": \"llama\"}\n")
