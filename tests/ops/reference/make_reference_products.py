"""Computes what PyTorch gives for linear, causal attention with grouped heads, and rotary embedding, with gradients, in double.

Run by hand when a case is added:  python tests/ops/reference/make_reference_products.py
The tests read the JSON files that it writes beside itself; they need no Python.
"""
import json
import os

import torch
import torch.nn.functional as F

torch.manual_seed(5)
torch.set_default_dtype(torch.float64)
HERE = os.path.dirname(os.path.abspath(__file__))


def inputs(*shape):
    """Random values that f32 holds exactly, so that both sides start from the same numbers."""
    return torch.randn(*shape).float().double().requires_grad_()


def write(name, cases):
    def flat(value):
        return [float(f"{v:.9g}") for v in value.detach().reshape(-1).tolist()] if torch.is_tensor(value) else value

    with open(os.path.join(HERE, name + ".json"), "w") as file:
        json.dump([{key: flat(value) for key, value in case.items()} for case in cases], file, separators=(",", ":"))
        file.write("\n")


def linear():
    cases = []
    for rows, width_in, width_out in ((1, 3, 2), (5, 7, 11)):
        x, w, b, residual, diff = inputs(rows, width_in), inputs(width_out, width_in), inputs(width_out), inputs(rows, width_out), inputs(rows, width_out)
        y = F.linear(x, w, b) + residual
        y.backward(diff.detach())
        cases.append({"rows": rows, "in": width_in, "out": width_out, "x": x, "w": w, "b": b, "residual": residual, "diff": diff, "y": y,
                      "diff_x": x.grad, "diff_w": w.grad, "diff_b": b.grad})
    write("linear", cases)


def attention():
    cases = []
    for batch, length, heads, kv_heads, width in ((1, 3, 2, 2, 4), (2, 9, 4, 2, 5), (1, 70, 2, 1, 3)):
        q, k, v = inputs(batch, length, heads, width), inputs(batch, length, kv_heads, width), inputs(batch, length, kv_heads, width)
        diff = inputs(batch, length, heads, width)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=True).transpose(1, 2)
        y.backward(diff.detach())
        cases.append({"batch": batch, "length": length, "heads": heads, "kv_heads": kv_heads, "width": width, "q": q, "k": k, "v": v, "diff": diff,
                      "y": y, "diff_q": q.grad, "diff_k": k.grad, "diff_v": v.grad})
    write("attention", cases)


def rotary():
    batch, length, heads, width = 2, 5, 2, 6
    x, diff = inputs(batch, length, heads, width), inputs(batch, length, heads, width)
    angles = torch.outer(torch.arange(length).double(), 10000.0 ** (-torch.arange(0, width, 2).double() / width))
    cos, sin = torch.cat([angles.cos()] * 2, -1)[:, None], torch.cat([angles.sin()] * 2, -1)[:, None]
    rotated = torch.cat([-x[..., width // 2:], x[..., : width // 2]], -1)  # rotate_half of transformers' Llama
    y = x * cos + rotated * sin
    y.backward(diff.detach())
    write("rotary", [{"batch": batch, "length": length, "heads": heads, "width": width, "x": x, "diff": diff, "cos": angles.cos(), "sin": angles.sin(),
                      "y": y, "diff_x": x.grad}])


linear()
attention()
rotary()
