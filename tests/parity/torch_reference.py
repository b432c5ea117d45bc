#!/usr/bin/python3
"""GPT-2 and Llama training in PyTorch, fp64: what the C++ trainer is compared with.

Written from torch.nn.functional, autograd and torch.optim.AdamW alone; shares no code with it.

  torch_reference.py DIR...   reads each DIR's case.json, weights.f32, inputs.i32, targets.i32;
                              writes steps.f64 (loss, gradient norm per step) and weights.f64.
"""
import json
import math
import os
import sys

import numpy
import torch
import torch.nn.functional as F


def load(directory, name, dtype):
    return numpy.fromfile(os.path.join(directory, name), dtype=dtype)


def read_weights(directory, parameters):
    values = load(directory, "weights.f32", numpy.float32)
    weights, offset = {}, 0
    for name, shape in parameters:
        size = math.prod(shape)
        array = values[offset : offset + size].astype(numpy.float64).reshape(shape)
        weights[name] = torch.tensor(array, requires_grad=True)
        offset += size
    assert offset == len(values)
    return weights


def causal(q, k, v):
    """(batch, heads, time, channels) each; heads of k and v are repeated by the caller."""
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
    future = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
    mixed = F.softmax(scores.masked_fill(future, -math.inf), dim=-1) @ v
    return mixed.transpose(1, 2).flatten(2)


def attention(x, weights, prefix, heads):
    batch, time, width = x.shape
    qkv = x @ weights[prefix + "c_attn.weight"] + weights[prefix + "c_attn.bias"]
    q, k, v = (t.view(batch, time, heads, -1).transpose(1, 2) for t in qkv.split(width, dim=2))
    mixed = causal(q, k, v)
    return mixed @ weights[prefix + "c_proj.weight"] + weights[prefix + "c_proj.bias"]


def mlp(x, weights, prefix):
    hidden = x @ weights[prefix + "c_fc.weight"] + weights[prefix + "c_fc.bias"]
    hidden = F.gelu(hidden, approximate="tanh")
    return hidden @ weights[prefix + "c_proj.weight"] + weights[prefix + "c_proj.bias"]


def gpt2_logits(ids, weights, case):
    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], weights[name + ".weight"], weights[name + ".bias"],
                            case["norm_epsilon"])

    x = F.embedding(ids, weights["wte.weight"]) + weights["wpe.weight"][: ids.shape[1]]
    for i in range(case["layers"]):
        x = x + attention(norm(x, f"h.{i}.ln_1"), weights, f"h.{i}.attn.", case["heads"])
        x = x + mlp(norm(x, f"h.{i}.ln_2"), weights, f"h.{i}.mlp.")
    return norm(x, "ln_f") @ weights[case["head"]].T


def inverse_frequencies(size, case):
    inverse = case["rope_theta"] ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    scaling = case["rope_scaling"]
    if scaling is None:
        return inverse
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    wavelength = 2 * math.pi / inverse
    smooth = (scaling["original_context_length"] / wavelength - low) / (high - low)
    # Long waves are stretched, short ones kept, in between a mixture.
    smooth = smooth.clamp(0, 1)
    return (1 - smooth) * inverse / scaling["factor"] + smooth * inverse


def rotate(x, case):
    """x (batch, heads, time, size): complex numbers whose parts lie half a head apart."""
    size = x.shape[3]
    angles = torch.outer(torch.arange(x.shape[2], dtype=torch.float64),
                         inverse_frequencies(size, case))
    turned = torch.complex(x[..., : size // 2], x[..., size // 2 :]) * torch.polar(
        torch.ones_like(angles), angles)
    return torch.cat([turned.real, turned.imag], dim=-1)


def llama_logits(ids, weights, case):
    def norm(x, name):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + case["norm_epsilon"])
        return x * scale * weights[name + ".weight"]

    def linear(x, name):
        return F.linear(x, weights[name + ".weight"], weights.get(name + ".bias"))

    def heads_of(x, heads):
        return x.unflatten(2, (heads, -1)).transpose(1, 2)

    def self_attention(x, prefix):
        q = rotate(heads_of(linear(x, prefix + "q_proj"), case["heads"]), case)
        k = rotate(heads_of(linear(x, prefix + "k_proj"), case["kv_heads"]), case)
        v = heads_of(linear(x, prefix + "v_proj"), case["kv_heads"])
        shared = case["heads"] // case["kv_heads"]
        k, v = (t.repeat_interleave(shared, dim=1) for t in (k, v))
        return linear(causal(q, k, v), prefix + "o_proj")

    x = F.embedding(ids, weights["model.embed_tokens.weight"])
    for i in range(case["layers"]):
        p = f"model.layers.{i}."
        x = x + self_attention(norm(x, p + "input_layernorm"), p + "self_attn.")
        y = norm(x, p + "post_attention_layernorm")
        gated = F.silu(linear(y, p + "mlp.gate_proj")) * linear(y, p + "mlp.up_proj")
        x = x + linear(gated, p + "mlp.down_proj")
    return norm(x, "model.norm") @ weights[case["head"]].T


def logits_of(ids, weights, case):
    return {"gpt2": gpt2_logits, "llama": llama_logits}[case["family"]](ids, weights, case)


def norm_of(gradients):
    return math.sqrt(sum(float((g * g).sum()) for g in gradients))


def learning_rate(case, step):
    if step <= case["warmup_steps"]:
        return case["peak"] * step / case["warmup_steps"]
    share = (step - case["warmup_steps"]) / (case["steps"] - case["warmup_steps"])
    return case["final"] + (case["peak"] - case["final"]) * (1 + math.cos(math.pi * share)) / 2


def rank_gradients(inputs, targets, weights, case, global_valid):
    """This rank's contribution and its sum of losses."""
    loss = F.cross_entropy(logits_of(inputs, weights, case).flatten(0, 1), targets.flatten(),
                           ignore_index=-1, reduction="sum")
    gradients = list(torch.autograd.grad(loss / global_valid, list(weights.values())))
    valid = int((targets >= 0).sum())
    if case["clip_before_reduce"] and valid > 0:
        mean_norm = norm_of(gradients) * global_valid / valid
        factor = min(1.0, case["clip_norm"] / mean_norm)
        gradients = [g * factor for g in gradients]
    return gradients, float(loss)


def train(directory):
    with open(os.path.join(directory, "case.json"), encoding="utf-8") as file:
        case = json.load(file)
    weights = read_weights(directory, case["parameters"])
    shape = (case["steps"], case["dp"], -1, case["sequence_length"])
    inputs = torch.tensor(load(directory, "inputs.i32", numpy.int32)).long().reshape(shape)
    targets = torch.tensor(load(directory, "targets.i32", numpy.int32)).long().reshape(shape)
    decay = [w for w in weights.values() if w.dim() == 2]
    keep = [w for w in weights.values() if w.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": case["weight_decay"]},
         {"params": keep, "weight_decay": 0.0}],
        lr=0.0, betas=(case["beta1"], case["beta2"]), eps=case["epsilon"])
    results = []
    for step in range(1, case["steps"] + 1):
        global_valid = int((targets[step - 1] >= 0).sum())
        total, loss = None, 0.0
        for rank in range(case["dp"]):
            gradients, rank_loss = rank_gradients(
                inputs[step - 1, rank], targets[step - 1, rank], weights, case, global_valid)
            total = gradients if total is None else [a + b for a, b in zip(total, gradients)]
            loss += rank_loss
        norm = norm_of(total)
        factor = 1.0 if case["clip_before_reduce"] else min(1.0, case["clip_norm"] / norm)
        for weight, gradient in zip(weights.values(), total):
            weight.grad = gradient * factor
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(case, step)
        optimizer.step()
        results += [loss / global_valid, norm]
    numpy.array(results).tofile(os.path.join(directory, "steps.f64"))
    flat = [w.detach().numpy().ravel() for w in weights.values()]
    numpy.concatenate(flat).tofile(os.path.join(directory, "weights.f64"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    for case_directory in sys.argv[1:]:
        train(case_directory)
