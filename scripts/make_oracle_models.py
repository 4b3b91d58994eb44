#!/usr/bin/env python3
"""Tiny random checkpoints of families that the zoo lacks, with the logits of a plain forward pass.

Usage: scripts/make_oracle_models.py [FOLDER]        default: testdata/oracle

Writes FOLDER/<name>/config.json, model.safetensors (bf16) and reference.safetensors: tokens [T] int32,
positions [P] int32 and logits [P, vocab] float32, computed in float64 by the numpy code below, which
shares nothing with the engine. Where a rotary kind looks at the length, <name>/reference_short.safetensors
holds a second, shorter text. The same numbers come out every time (numpy's Philox generator, seeded
by the name). tests/model/oracle_test.cc reads the folders.

Weights are random, so that nothing is 1 or 0 by luck: norms weigh differently by channel, biases are
not zero, head_dim is not hidden / heads, several query heads share a key head, the vocabulary is no
multiple of anything, and the text is longer than every window and every original context.
"""
import json
import math
import os
import struct
import sys
import zlib

import numpy as np

T_LONG, T_SHORT, VOCAB, D, H, K, HEAD, INNER = 72, 24, 97, 32, 4, 2, 16, 48


# ------------------------------------------------------------------------------------------- elementary
def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def gelu_tanh(x):
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x ** 3)))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def unit(x, eps):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps)


def softcap(x, cap):
    return cap * np.tanh(x / cap) if cap else x


def attend(q, k, v, scale, window, cap):
    """q [H,T,d], k and v [K,T,d]; window: the last so many tokens, the query's own included."""
    t, group = q.shape[1], q.shape[0] // k.shape[0]
    i, j = np.arange(t)[:, None], np.arange(t)[None, :]
    seen = (j <= i) & ((j > i - window) if window else True)
    out = [softmax(np.where(seen, softcap(q[h] @ k[h // group].T * scale, cap), -np.inf)) @ v[h // group]
           for h in range(len(q))]
    return np.stack(out, 1).reshape(t, -1)


# --------------------------------------------------------------------------------------------- rotary
def frequencies(rope, width, base, max_pos, n):
    """rope: a scaling dictionary. (frequencies, factor on cos and sin) for a text of n tokens."""
    kind = rope.get("rope_type", rope.get("type", "default"))
    j = np.arange(width // 2, dtype=np.float64)
    inv = base ** (-2.0 * j / width)
    f = rope.get("factor")
    orig = rope.get("original_max_position_embeddings") or max_pos
    if kind == "default":
        return inv, 1.0
    if kind == "linear":
        return inv / f, 1.0
    if kind == "dynamic":
        if n > max_pos:
            base = base * (f * n / max_pos - (f - 1)) ** (width / (width - 2))
        return base ** (-2.0 * j / width), 1.0
    if kind == "llama3":
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        wave = 2 * math.pi / inv
        s = (orig / wave - low) / (high - low)
        middle = (1 - s) * inv / f + s * inv
        return np.where(wave > orig / low, inv / f, np.where(wave < orig / high, inv, middle)), 1.0
    if kind == "yarn":
        f = f or max_pos / orig

        def corner(beta):
            return width * math.log(orig / (2 * math.pi * beta)) / (2 * math.log(base))
        lo, hi = corner(rope.get("beta_fast") or 32), corner(rope.get("beta_slow") or 1)
        if rope.get("truncate", True):
            lo, hi = math.floor(lo), math.ceil(hi)
        lo, hi = max(lo, 0), min(hi, width - 1)
        if lo == hi:
            hi += 0.001
        ramp = np.clip((j - lo) / (hi - lo), 0, 1)

        def magnitude(scale):
            return 0.1 * scale * math.log(f) + 1 if f > 1 else 1.0
        m = rope.get("attention_factor")
        if m is None:
            a, b = rope.get("mscale"), rope.get("mscale_all_dim")
            m = magnitude(a) / magnitude(b) if a and b else magnitude(1)
        return inv / f * ramp + inv * (1 - ramp), m
    if kind == "longrope":
        f = f or max_pos / orig
        factors = np.array(rope["long_factor" if n > orig else "short_factor"], np.float64)
        m = rope.get("attention_factor")
        if m is None:
            m = 1.0 if f <= 1 else math.sqrt(1 + math.log(f) / math.log(orig))
        return inv / factors, m
    raise ValueError(kind)


def table(inv, m, t):
    # The angle is a float32 product in the reference implementation: position and frequency rounded.
    angle = (np.arange(t, dtype=np.float32)[:, None] * inv.astype(np.float32)[None, :]).astype(np.float64)
    return np.cos(angle) * m, np.sin(angle) * m


def rotate(x, cos_sin):
    cos, sin = cos_sin
    n = cos.shape[1]
    a, b, rest = x[..., :n], x[..., n:2 * n], x[..., 2 * n:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)


# ---------------------------------------------------------------------------------------------- model
QK_NORMED = ("qwen3", "exaone4", "olmo3", "lfm2_moe", "qwen3_5_moe_text")
POST = ("olmo3", "exaone4")
GRANITE = ("granitemoe", "granitemoeshared", "granitemoehybrid")


class Model:
    def __init__(self, config, weights):
        self.c = dict(config.get("text_config", config))
        if "text_config" in config:
            self.c["tie_word_embeddings"] = config.get("tie_word_embeddings", False)
        prefix = next(p for p in ("model.language_model.", "language_model.model.", "model.")
                      if p + "embed_tokens.weight" in weights)
        self.w = {n[len(prefix):] if n.startswith(prefix) else n: x for n, x in weights.items()}
        self.f = self.c["model_type"]
        self.d = self.c.get("head_dim") or self.c["hidden_size"] // self.c["num_attention_heads"]
        self.eps = self.c.get("norm_eps") or self.c["rms_norm_eps"]
        self.offset = 1.0 if self.f in ("gemma2", "qwen3_5_moe_text") else 0.0

    # -- what differs by layer
    def sliding(self, l):
        c, f, w = self.c, self.f, self.c.get("sliding_window")
        if f in ("mistral", "phi3", "ministral3"):
            return w
        if f == "gemma2":
            return None if l % 2 else w
        if f in ("olmo3", "exaone4", "qwen3") and w:
            types = c.get("layer_types")
            if types is None:
                types = ["full_attention" if (i + 1) % 4 == 0 else "sliding_attention" for i in range(l + 1)]
            return w if types[l] == "sliding_attention" else None
        if f == "qwen2" and c.get("use_sliding_window"):
            return w if l >= c["max_window_layers"] else None
        return None

    def rope_of(self, l):
        """(dictionary, base) of layer l, or None where it does not rotate."""
        c, f = self.c, self.f
        scaling = c.get("rope_scaling") or c.get("rope_parameters") or {}
        base = scaling.get("rope_theta", c.get("rope_theta", 10000.0))
        if f == "granitemoehybrid" and c.get("position_embedding_type") != "rope":
            return None
        if f == "exaone4" and c.get("sliding_window") and not self.sliding(l):
            return None
        if f == "olmo3":
            return ({}, 500000.0) if self.sliding(l) else (scaling, c.get("rope_theta", 500000.0))
        if f == "lfm2_moe":
            base = c.get("rope_theta", 1e6)
        return scaling, base

    def scale(self):
        c = self.c
        if self.f in GRANITE:
            return c["attention_multiplier"]
        return c["query_pre_attn_scalar"] ** -0.5 if self.f == "gemma2" else self.d ** -0.5

    # -- parts
    def lin(self, x, name):
        y = x @ self.w[name + ".weight"].T
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def norm(self, x, name):
        return unit(x, self.eps) * (self.w[name + ".weight"] + self.offset)

    def attention(self, x, l):
        c, p, d, t = self.c, f"layers.{l}.self_attn.", self.d, len(x)
        gate = None
        if self.f == "phi3":
            h, k_ = c["num_attention_heads"], c["num_key_value_heads"]
            q, k, v = np.split(self.lin(x, p + "qkv_proj"), [h * d, (h + k_) * d], -1)
        else:
            q, k, v = (self.lin(x, p + n + "_proj") for n in "qkv")
        if self.f == "olmo3":
            q, k = self.norm(q, p + "q_norm"), self.norm(k, p + "k_norm")
        if self.f == "qwen3_5_moe_text":  # head by head [query | gate]
            both = q.reshape(t, -1, 2 * d)
            q, gate = both[..., :d].reshape(t, -1), both[..., d:].reshape(t, -1)
        q, k, v = (a.reshape(t, -1, d).transpose(1, 0, 2) for a in (q, k, v))
        if self.f in QK_NORMED and self.f != "olmo3":
            names = ("q_layernorm", "k_layernorm") if self.f == "lfm2_moe" else ("q_norm", "k_norm")
            q, k = self.norm(q, p + names[0]), self.norm(k, p + names[1])
        rope = self.rope_of(l)
        if rope is not None:
            part = {"phi3": 1.0, "qwen3_5_moe_text": 0.25}.get(self.f)
            width = int(d * c.get("partial_rotary_factor", part)) if part else d
            max_pos = c["max_position_embeddings"]
            scaling = dict(rope[0])
            if c.get("original_max_position_embeddings"):
                scaling["original_max_position_embeddings"] = c["original_max_position_embeddings"]
            # minicpm's own code builds its table once, for the longest context.
            n = max_pos if self.f == "minicpm" else t
            cos_sin = table(*frequencies(scaling, width, rope[1], max_pos, n), t)
            q, k = rotate(q, cos_sin), rotate(k, cos_sin)
            if self.f == "ministral3":
                turns = np.floor(np.arange(t) / scaling["original_max_position_embeddings"])
                q = q * (1 + scaling["llama_4_scaling_beta"] * np.log(1 + turns))[:, None]
        o = attend(q, k, v, self.scale(), self.sliding(l), c.get("attn_logit_softcapping"))
        if gate is not None:
            o = o * sigmoid(gate)
        return self.lin(o, p + ("out_proj" if self.f == "lfm2_moe" else "o_proj"))

    def short_conv(self, x, name):
        taps = self.w[name + ".weight"][:, 0]
        n, t = taps.shape[1], len(x)
        padded = np.concatenate([np.zeros((n - 1, x.shape[1])), x])
        y = sum(padded[m:m + t] * taps[:, m] for m in range(n))
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def lfm2_conv(self, x, l):
        p = f"layers.{l}.conv."
        b, c, x = np.split(self.lin(x, p + "in_proj"), 3, -1)
        return self.lin(c * self.short_conv(b * x, p + "conv"), p + "out_proj")

    def delta(self, x, l):
        """Gated delta rule: the state forgets, then learns what it predicts wrongly."""
        c, p, t = self.c, f"layers.{l}.linear_attn.", len(x)
        hk, hv, dk, dv = (c["linear_" + n] for n in ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim"))
        u = silu(self.short_conv(self.lin(x, p + "in_proj_qkv"), p + "conv1d"))
        q, k, v = np.split(u, [hk * dk, 2 * hk * dk], -1)
        q, k = (a.reshape(t, hk, dk) for a in (q, k))
        q, k = (a / np.sqrt((a * a).sum(-1, keepdims=True) + 1e-6) for a in (q, k))
        q, k = np.repeat(q * dk ** -0.5, hv // hk, 1), np.repeat(k, hv // hk, 1)
        v = v.reshape(t, hv, dv)
        beta = sigmoid(self.lin(x, p + "in_proj_b"))
        g = -np.exp(self.w[p + "A_log"]) * np.log1p(np.exp(self.lin(x, p + "in_proj_a") + self.w[p + "dt_bias"]))
        state, out = np.zeros((hv, dk, dv)), np.empty((t, hv, dv))
        for i in range(t):
            state = state * np.exp(g[i])[:, None, None]
            error = beta[i][:, None] * (v[i] - np.einsum("hkv,hk->hv", state, k[i]))
            state = state + k[i][:, :, None] * error[:, None, :]
            out[i] = np.einsum("hkv,hk->hv", state, q[i])
        z = self.lin(x, p + "in_proj_z").reshape(t, hv, dv)
        y = self.w[p + "norm.weight"] * unit(out, self.eps) * silu(z)
        return self.lin(y.reshape(t, hv * dv), p + "out_proj")

    def qwen_experts(self, x, l):
        c, p = self.c, f"layers.{l}.mlp."
        probability = softmax(self.lin(x, p + "gate"))
        top = np.argsort(-probability, -1, kind="stable")[:, :c["num_experts_per_tok"]]
        a = np.take_along_axis(probability, top, -1)
        w_in, w_out = self.w[p + "experts.gate_up_proj"], self.w[p + "experts.down_proj"]
        out = self.experts(x, top, a / a.sum(-1, keepdims=True), lambda r, e: self.fused_mlp(r, w_in[e], w_out[e]))
        shared = self.gated(x, p + "shared_expert.", "gate_proj", "up_proj", "down_proj")
        return out + sigmoid(self.lin(x, p + "shared_expert_gate")) * shared

    def mamba(self, x, l):
        c, p, t = self.c, f"layers.{l}.mamba.", len(x)
        heads, groups, n = c["mamba_n_heads"], c["mamba_n_groups"], c["mamba_d_state"]
        width = c["mamba_expand"] * c["hidden_size"]
        d = width // heads
        z, xbc, dt = np.split(self.lin(x, p + "in_proj"), [width, 2 * width + 2 * groups * n], -1)
        xbc = silu(self.short_conv(xbc, p + "conv1d"))
        x, b, c_ = np.split(xbc, [width, width + groups * n], -1)
        x = x.reshape(t, heads, d)
        b, c_ = (np.repeat(a.reshape(t, groups, n), heads // groups, 1) for a in (b, c_))
        dt = np.log1p(np.exp(dt + self.w[p + "dt_bias"]))
        decay = np.exp(-np.exp(self.w[p + "A_log"]) * dt)
        state, y = np.zeros((heads, d, n)), np.empty((t, heads, d))
        for i in range(t):
            state = state * decay[i][:, None, None] + (dt[i][:, None] * x[i])[:, :, None] * b[i][:, None, :]
            y[i] = np.einsum("hdn,hn->hd", state, c_[i]) + self.w[p + "D"][:, None] * x[i]
        u = y.reshape(t, width) * silu(z)
        return self.lin(unit(u, self.eps) * self.w[p + "norm.weight"], p + "out_proj")

    def gated(self, x, p, gate, up, down, act=silu):
        return self.lin(act(self.lin(x, p + gate)) * self.lin(x, p + up), p + down)

    def fused_mlp(self, x, w_in, w_out):
        g, u = np.split(x @ w_in.T, 2, -1)
        return (silu(g) * u) @ w_out.T

    def experts(self, x, chosen, weights, one):
        """one(rows of x, expert): the expert's output."""
        out = np.zeros_like(x)
        for t in range(len(x)):
            for e, a in zip(chosen[t], weights[t]):
                out[t] += a * one(x[t:t + 1], e)[0]
        return out

    def granite_mlp(self, x, l):
        c, p = self.c, f"layers.{l}.block_sparse_moe."
        out = 0.0
        if c["num_local_experts"]:
            w = self.w
            published = p + "input_linear.weight" in w
            router = w[p + "router.layer.weight"] if published else w[p + "router.weight"]
            w_in = w[p + "input_linear.weight"] if published else w[p + "experts.gate_up_proj"]
            w_out = w[p + "output_linear.weight"] if published else w[p + "experts.down_proj"]
            logits = x @ router.T
            top = np.argsort(-logits, -1, kind="stable")[:, :c["num_experts_per_tok"]]
            out = self.experts(x, top, softmax(np.take_along_axis(logits, top, -1)),
                               lambda a, e: self.fused_mlp(a, w_in[e], w_out[e]))
        if self.f != "granitemoe":
            s = f"layers.{l}.shared_mlp."
            out = out + self.fused_mlp(x, self.w[s + "input_linear.weight"], self.w[s + "output_linear.weight"])
        return out

    def lfm2_mlp(self, x, l):
        c, p = self.c, f"layers.{l}.feed_forward."
        if l < c["num_dense_layers"]:
            return self.gated(x, p, "w1", "w3", "w2")
        s = sigmoid(self.lin(x, p + "gate"))
        top = np.argsort(-(s + self.w[p + "expert_bias"]), -1, kind="stable")[:, :c["num_experts_per_tok"]]
        a = np.take_along_axis(s, top, -1)
        a = a / (a.sum(-1, keepdims=True) + 1e-6) * c["routed_scaling_factor"]
        return self.experts(x, top, a, lambda r, e: self.gated(r, f"{p}experts.{e}.", "w1", "w3", "w2"))

    def mlp(self, x, l):
        p = f"layers.{l}.mlp."
        if self.f in GRANITE:
            return self.granite_mlp(x, l)
        if self.f == "lfm2_moe":
            return self.lfm2_mlp(x, l)
        if self.f == "qwen3_5_moe_text":
            return self.qwen_experts(x, l)
        if self.f == "phi3":
            return self.fused_mlp(x, self.w[p + "gate_up_proj.weight"], self.w[p + "down_proj.weight"])
        return self.gated(x, p, "gate_proj", "up_proj", "down_proj", gelu_tanh if self.f == "gemma2" else silu)

    def mixer(self, x, l):
        kind = (self.c.get("layer_types") or [""] * (l + 1))[l]
        if self.f == "lfm2_moe" and kind == "conv":
            return self.lfm2_conv(x, l)
        if self.f == "granitemoehybrid" and kind == "mamba":
            return self.mamba(x, l)
        if kind == "linear_attention":
            return self.delta(x, l)
        return self.attention(x, l)

    def block(self, h, l):
        c, p = self.c, f"layers.{l}."
        if self.f in POST:
            h = h + self.norm(self.mixer(h, l), p + "post_attention_layernorm")
            return h + self.norm(self.mlp(h, l), p + "post_feedforward_layernorm")
        if self.f == "gemma2":
            h = h + self.norm(self.mixer(self.norm(h, p + "input_layernorm"), l), p + "post_attention_layernorm")
            m = self.mlp(self.norm(h, p + "pre_feedforward_layernorm"), l)
            return h + self.norm(m, p + "post_feedforward_layernorm")
        first, second = "input_layernorm", "post_attention_layernorm"
        if self.f == "lfm2_moe":
            first, second = "operator_norm", "ffn_norm"
        r = 1.0
        if self.f in GRANITE:
            r = c["residual_multiplier"]
        if self.f == "minicpm":
            r = c["scale_depth"] / math.sqrt(c["num_hidden_layers"])
        h = h + r * self.mixer(self.norm(h, p + first), l)
        return h + r * self.mlp(self.norm(h, p + second), l)

    def logits(self, tokens):
        c = self.c
        h = self.w["embed_tokens.weight"][tokens]
        if self.f == "gemma2":
            h = h * math.sqrt(c["hidden_size"])
        if self.f in GRANITE:
            h = h * c["embedding_multiplier"]
        if self.f == "minicpm":
            h = h * c["scale_emb"]
        for l in range(c["num_hidden_layers"]):
            for _ in range(2 if c.get("layer_sharing") else 1):
                h = self.block(h, l)
        h = self.norm(h, "embedding_norm" if self.f == "lfm2_moe" else "norm")
        if self.f == "minicpm":
            h = h / (c["hidden_size"] / c["dim_model_base"])
        tied = c.get("tie_word_embeddings", False) or c.get("share_embedding", False)
        head = next((n for n in ("lm_head.weight", "language_model.lm_head.weight") if n in self.w), None)
        z = h @ self.w["embed_tokens.weight" if tied or head is None else head].T
        if self.f in GRANITE:
            z = z / c["logits_scaling"]
        return softcap(z, c.get("final_logit_softcapping"))


# -------------------------------------------------------------------------------------------- tensors
def linear(shapes, name, out, inp, bias=False):
    shapes[name + ".weight"] = (out, inp)
    if bias:
        shapes[name + ".bias"] = (out,)


def attention_shapes(s, p, c, qkv_bias, o_bias, out="o_proj"):
    q, k = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
    for name, width in (("q_proj", q), ("k_proj", k), ("v_proj", k)):
        linear(s, p + name, width, c["hidden_size"], qkv_bias)
    linear(s, p + out, c["hidden_size"], q, o_bias)


def shapes_of(config, prefix="model.", published=True, head=True):
    c = config.get("text_config", config)
    f, s, hidden, inner = c["model_type"], {}, c["hidden_size"], c["intermediate_size"]
    q, k = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
    s[prefix + "embed_tokens.weight"] = (c["vocab_size"], hidden)
    if head:
        s[("language_model." if prefix.startswith("language_model.") else "") + "lm_head.weight"] = (VOCAB, hidden)
    s[prefix + ("embedding_norm" if f == "lfm2_moe" else "norm") + ".weight"] = (hidden,)
    for l in range(c["num_hidden_layers"]):
        p = f"{prefix}layers.{l}."
        kind = (c.get("layer_types") or [""] * 99)[l]
        norms = ["input_layernorm", "post_attention_layernorm"]
        if f == "gemma2":
            norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
        if f in POST:
            norms = ["post_attention_layernorm", "post_feedforward_layernorm"]
        if f == "lfm2_moe":
            norms = ["operator_norm", "ffn_norm"]
        for n in norms:
            s[p + n + ".weight"] = (hidden,)
        if kind == "conv":
            linear(s, p + "conv.in_proj", 3 * hidden, hidden, c["conv_bias"])
            linear(s, p + "conv.out_proj", hidden, hidden, c["conv_bias"])
            s[p + "conv.conv.weight"] = (hidden, 1, c["conv_L_cache"])
            if c["conv_bias"]:
                s[p + "conv.conv.bias"] = (hidden,)
        elif kind == "mamba":
            heads = c["mamba_n_heads"]
            width = c["mamba_expand"] * hidden
            xbc = width + 2 * c["mamba_n_groups"] * c["mamba_d_state"]
            linear(s, p + "mamba.in_proj", width + xbc + heads, hidden)
            linear(s, p + "mamba.out_proj", hidden, width)
            s[p + "mamba.conv1d.weight"] = (xbc, 1, c["mamba_d_conv"])
            s[p + "mamba.conv1d.bias"] = (xbc,)
            s[p + "mamba.norm.weight"] = (width,)
            for n in ("A_log", "D", "dt_bias"):
                s[p + "mamba." + n] = (heads,)
        elif kind == "linear_attention":
            delta_shapes(s, p + "linear_attn.", c)
        elif f == "phi3":
            linear(s, p + "self_attn.qkv_proj", q + 2 * k, hidden)
            linear(s, p + "self_attn.o_proj", hidden, q)
        else:
            bias = f == "qwen2" or c.get("attention_bias", False)
            attention_shapes(s, p + "self_attn.", c, bias, bias and f != "qwen2",
                             "out_proj" if f == "lfm2_moe" else "o_proj")
            if f == "qwen3_5_moe_text":
                linear(s, p + "self_attn.q_proj", 2 * q, hidden)
            names = ("q_layernorm", "k_layernorm") if f == "lfm2_moe" else ("q_norm", "k_norm")
            if f in QK_NORMED:
                s[f"{p}self_attn.{names[0]}.weight"] = (q if f == "olmo3" else c["head_dim"],)
                s[f"{p}self_attn.{names[1]}.weight"] = (k if f == "olmo3" else c["head_dim"],)
        mlp_shapes(s, p, c, l, published)
    return s


def delta_shapes(s, p, c):
    hk, hv, dk, dv = (c["linear_" + n] for n in ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim"))
    wide, hidden = 2 * hk * dk + hv * dv, c["hidden_size"]
    for name, rows in (("qkv", wide), ("z", hv * dv), ("b", hv), ("a", hv)):
        linear(s, p + "in_proj_" + name, rows, hidden)
    linear(s, p + "out_proj", hidden, hv * dv)
    s[p + "conv1d.weight"] = (wide, 1, c["linear_conv_kernel_dim"])
    s[p + "A_log"] = s[p + "dt_bias"] = (hv,)
    s[p + "norm.weight"] = (dv,)


def mlp_shapes(s, p, c, l, published):
    f, hidden, inner = c["model_type"], c["hidden_size"], c["intermediate_size"]
    if f in GRANITE:
        e, m = c["num_local_experts"], p + "block_sparse_moe."
        if e:
            s[m + ("router.layer.weight" if published else "router.weight")] = (e, hidden)
            s[m + ("input_linear.weight" if published else "experts.gate_up_proj")] = (e, 2 * inner, hidden)
            s[m + ("output_linear.weight" if published else "experts.down_proj")] = (e, hidden, inner)
        if f != "granitemoe":
            width = c["shared_intermediate_size"]
            linear(s, p + "shared_mlp.input_linear", 2 * width, hidden)
            linear(s, p + "shared_mlp.output_linear", hidden, width)
    elif f == "lfm2_moe":
        m = p + "feed_forward."
        if l < c["num_dense_layers"]:
            ends = [(m, inner)]
        else:
            ends = [(f"{m}experts.{e}.", c["moe_intermediate_size"]) for e in range(c["num_experts"])]
            linear(s, m + "gate", c["num_experts"], hidden)
            s[m + "expert_bias"] = (c["num_experts"],)
        for at, width in ends:
            linear(s, at + "w1", width, hidden)
            linear(s, at + "w3", width, hidden)
            linear(s, at + "w2", hidden, width)
    elif f == "qwen3_5_moe_text":
        e, m, width = c["num_experts"], p + "mlp.", c["shared_expert_intermediate_size"]
        linear(s, m + "gate", e, hidden)
        s[m + "experts.gate_up_proj"] = (e, 2 * c["moe_intermediate_size"], hidden)
        s[m + "experts.down_proj"] = (e, hidden, c["moe_intermediate_size"])
        linear(s, m + "shared_expert.gate_proj", width, hidden)
        linear(s, m + "shared_expert.up_proj", width, hidden)
        linear(s, m + "shared_expert.down_proj", hidden, width)
        linear(s, m + "shared_expert_gate", 1, hidden)
    elif f == "phi3":
        linear(s, p + "mlp.gate_up_proj", 2 * inner, hidden)
        linear(s, p + "mlp.down_proj", hidden, inner)
    else:
        bias = c.get("mlp_bias", False)
        for name, out, inp in (("gate_proj", inner, hidden), ("up_proj", inner, hidden), ("down_proj", hidden, inner)):
            linear(s, p + "mlp." + name, out, inp, bias)


def to_bf16(x):
    u = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(u):
    return (u.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def draw(rng, name, shape, offset):
    x = rng.standard_normal(shape)
    if name.endswith("norm.weight"):
        return 0.3 * x + (0.0 if offset else 1.0)
    if name.endswith("A_log"):
        return np.log(1.0 + 3.0 * rng.random(shape))
    if name.endswith(("expert_bias", "dt_bias", ".D")):
        return 0.5 * x
    if name.endswith("bias"):
        return 0.2 * x
    if "conv" in name and len(shape) == 3 and shape[1] == 1:
        return 0.5 * x
    if name.endswith("embed_tokens.weight"):
        return 0.5 * x
    # Scores that tell keys apart, yet do not magnify the rounding of half-precision keys.
    wide = 1.2 if "q_proj" in name or "k_proj" in name or "router" in name else 1.0
    return wide * x / math.sqrt(shape[-1])


def write_safetensors(path, tensors):
    header, blobs, at = {}, [], 0
    for name, (dtype, array) in tensors.items():
        blob = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + b"".join(blobs))


# --------------------------------------------------------------------------------------------- models
def base(model_type, layers=3, **more):
    return dict(model_type=model_type, vocab_size=VOCAB, hidden_size=D, intermediate_size=INNER,
                num_hidden_layers=layers, num_attention_heads=H, num_key_value_heads=K, head_dim=HEAD,
                max_position_embeddings=256, rms_norm_eps=1e-3, tie_word_embeddings=False, **more)


def granite(model_type, **more):
    return base(model_type, embedding_multiplier=6.0, residual_multiplier=0.4, attention_multiplier=0.17,
                logits_scaling=3.0, num_experts_per_tok=2, **more)


MAMBA = dict(mamba_n_heads=4, mamba_n_groups=2, mamba_d_state=8, mamba_d_conv=4, mamba_expand=2)
LONG = [1.0, 1.3, 1.9, 2.6, 3.1, 4.4, 6.0, 8.5]
SHORT = [1.0, 1.0, 1.05, 1.1, 1.2, 1.2, 1.3, 1.5]
WINDOWS = ["sliding_attention", "full_attention", "sliding_attention"]
MINISTRAL = base("ministral3", rope_parameters=dict(
    rope_type="yarn", rope_theta=1e4, factor=8.0, original_max_position_embeddings=16, beta_fast=4.0, beta_slow=1.0,
    mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3))

# name: (configuration, arguments of shapes_of)
MODELS = {
    "mistral": (base("mistral", sliding_window=17, rope_theta=1e6), {}),
    "llama_yarn": (base("llama", attention_bias=True, mlp_bias=True, rope_theta=500.0, rope_scaling=dict(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=4.0)), {}),
    "llama_yarn_untruncated": (base("llama", 2, rope_parameters=dict(
        rope_type="yarn", rope_theta=500.0, factor=8.0, original_max_position_embeddings=32, beta_fast=4.0,
        truncate=False, mscale=0.7, mscale_all_dim=0.4)), {}),
    "llama_longrope": (base("llama", original_max_position_embeddings=32, rope_scaling=dict(
        type="longrope", short_factor=SHORT, long_factor=LONG)), {}),
    "llama_dynamic": (dict(base("llama", rope_theta=300.0, rope_scaling=dict(rope_type="dynamic", factor=4.0)),
                           max_position_embeddings=32), {}),
    "llama_linear": (base("llama", 2, rope_scaling=dict(type="linear", factor=2.5)), {}),
    "mobilellm": (base("mobilellm", 2, layer_sharing=True, share_embedding=True), dict(head=False)),
    "ministral3": (MINISTRAL, {}),
    "mistral3_wrapper": (dict(model_type="mistral3", tie_word_embeddings=True, vision_config=dict(model_type="pixtral"),
                              text_config=MINISTRAL), dict(prefix="language_model.model.")),
    "minicpm": (base("minicpm", scale_emb=12, scale_depth=1.4, dim_model_base=8), {}),
    "minicpm_longrope": (base("minicpm", scale_emb=4.0, scale_depth=1.1, dim_model_base=16, rope_scaling=dict(
        rope_type="longrope", short_factor=SHORT, long_factor=LONG, original_max_position_embeddings=64)), {}),
    "qwen2_window": (base("qwen2", use_sliding_window=True, sliding_window=11, max_window_layers=1, rope_theta=1e6), {}),
    "qwen3_window": (base("qwen3", use_sliding_window=True, sliding_window=19, layer_types=WINDOWS, attention_bias=True,
                          rope_theta=1e6), {}),
    "qwen3_5_moe": (dict(model_type="qwen3_5_moe", text_config=base(
        "qwen3_5_moe_text", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
        shared_expert_intermediate_size=40, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
        linear_value_head_dim=12, linear_conv_kernel_dim=4,
        layer_types=["linear_attention", "full_attention", "linear_attention"])), dict(prefix="model.language_model.")),
    "phi3_longrope": (base("phi3", partial_rotary_factor=0.5, original_max_position_embeddings=32, rope_scaling=dict(
        type="longrope", short_factor=SHORT[:4], long_factor=LONG[:4])), {}),
    "gemma2": (dict(base("gemma2", hidden_activation="gelu_pytorch_tanh", sliding_window=13, query_pre_attn_scalar=24,
                         attn_logit_softcapping=5.0, final_logit_softcapping=12.0), tie_word_embeddings=True),
               dict(head=False)),
    "lfm2_moe": (dict(base("lfm2_moe", 4, norm_eps=1e-3, conv_bias=False, conv_L_cache=3, num_dense_layers=1, num_experts=5,
                           num_experts_per_tok=2, moe_intermediate_size=24, use_expert_bias=True, norm_topk_prob=True,
                           routed_scaling_factor=1.5, layer_types=["conv", "full_attention", "conv", "full_attention"]),
                      tie_word_embeddings=True), dict(head=False)),
    "granitemoe": (granite("granitemoe", num_local_experts=4), {}),
    "granitemoe_fused": (granite("granitemoe", num_local_experts=4, layers=2), dict(published=False)),
    "granitemoe_narrow": (dict(granite("granitemoe", num_local_experts=3, layers=1), intermediate_size=24),
                          dict(published=False)),
    "granitemoeshared": (granite("granitemoeshared", num_local_experts=4, shared_intermediate_size=40, layers=2), {}),
    "granitemoehybrid_dense": (granite("granitemoehybrid", num_local_experts=0, shared_intermediate_size=40,
                                       position_embedding_type="rope", layer_types=["attention"] * 3, **MAMBA), {}),
    "granitemoehybrid": (granite("granitemoehybrid", num_local_experts=4, shared_intermediate_size=40,
                                 layer_types=["mamba", "attention", "mamba"], **MAMBA), {}),
    "olmo3": (base("olmo3", 4, sliding_window=9, rope_theta=300.0, rope_scaling=dict(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=4.0, attention_factor=1.2)), {}),
    "exaone4": (dict(base("exaone4", sliding_window=None, layer_types=["full_attention"] * 3, rope_theta=1e4,
                          rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                            original_max_position_embeddings=32)), tie_word_embeddings=True),
                dict(head=False)),
    "exaone4_window": (base("exaone4", 4, sliding_window=15, sliding_window_pattern=4), {}),
}
# Kinds that choose by the length of the text.
WITH_SHORT = ("llama_longrope", "llama_dynamic", "phi3_longrope", "minicpm_longrope")


def make(folder, name):
    config, how = MODELS[name]
    rng = np.random.Generator(np.random.Philox(zlib.crc32(name.encode())))
    def offset(n):  # norms whose stored weight is added to one
        return config["model_type"] == "gemma2" or ("qwen3_5" in name and "linear_attn" not in n)
    stored = {n: to_bf16(draw(rng, n, shape, offset(n))) for n, shape in shapes_of(config, **how).items()}
    model = Model(config, {n: from_bf16(x) for n, x in stored.items()})
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as f:
        f.write(json.dumps(config, indent=1) + "\n")
    write_safetensors(os.path.join(folder, "model.safetensors"), {n: ("BF16", x) for n, x in stored.items()})
    tokens = rng.integers(0, VOCAB, T_LONG)
    for file, length in (("reference", T_LONG), ("reference_short", T_SHORT)):
        if file == "reference_short" and name not in WITH_SHORT:
            continue
        positions = np.array([0, 1, 2, 7, 8, 9, 12, 16, 17, 18, 23, 31, 32, 33, 47, 48, 63, 64, 70, 71])
        positions = positions[positions < length].astype(np.int32)
        logits = model.logits(tokens[:length])[positions].astype(np.float32)
        write_safetensors(os.path.join(folder, file + ".safetensors"),
                          {"tokens": ("I32", tokens[:length].astype(np.int32)), "positions": ("I32", positions),
                           "logits": ("F32", logits)})
        print(f"{name:26s} {file:16s} largest logit {np.abs(logits).max():.3f}")


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "testdata/oracle"
    for name in MODELS:
        make(os.path.join(folder, name), name)


if __name__ == "__main__":
    main()
