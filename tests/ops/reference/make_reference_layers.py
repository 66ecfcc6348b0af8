"""Computes what PyTorch gives for norms, activations, softmax, embedding, cross entropy and the optimizers, in double.

Run by hand when a case is added:  python tests/ops/reference/make_reference_layers.py
The tests read the JSON files that it writes beside itself; they need no Python.
"""
import json
import os

import torch
import torch.nn.functional as F

torch.manual_seed(3)
torch.set_default_dtype(torch.float64)
HERE = os.path.dirname(os.path.abspath(__file__))


def inputs(*shape, scale=1.0):
    """Random values that f32 holds exactly, so that both sides start from the same numbers."""
    return (torch.randn(*shape) * scale).float().double()


def flat(tensor):
    return [float(f"{v:.9g}") for v in tensor.detach().reshape(-1).tolist()]


def write(name, cases):
    with open(os.path.join(HERE, name + ".json"), "w") as file:
        json.dump(cases, file, separators=(",", ":"))
        file.write("\n")


def norm():
    cases = []
    for kind, rows, width, scale in (("layer", 3, 5, 1), ("layer", 2, 67, 100), ("rms", 3, 5, 1), ("rms", 2, 67, 100)):
        x, gamma, beta, diff = inputs(rows, width, scale=scale), inputs(width), inputs(width), inputs(rows, width)
        for t in (x, gamma, beta):
            t.requires_grad_()
        y = F.layer_norm(x, (width,), gamma, beta, 1e-5) if kind == "layer" else F.rms_norm(x, (width,), gamma, 1e-5)
        y.backward(diff)
        case = dict(kind=kind, rows=rows, width=width, x=x, gamma=gamma, beta=beta, diff=diff, y=y, diff_x=x.grad, diff_gamma=gamma.grad,
                    diff_beta=beta.grad if kind == "layer" else torch.zeros(width))
        cases.append({k: flat(v) if torch.is_tensor(v) else v for k, v in case.items()})
    write("norm", cases)


def activation():
    kinds = {"gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "gelu_erf": F.gelu, "silu": F.silu, "relu": F.relu}
    x = torch.cat([torch.linspace(-12, 12, 97), torch.tensor([-1e4, -100.0, -0.001, 0.001, 100.0, 1e4])]).float().double()
    cases = []
    for kind, function in kinds.items():
        at = x.clone().requires_grad_()
        y = function(at)
        y.backward(torch.ones_like(y))
        cases.append(dict(kind=kind, x=flat(x), y=flat(y), slope=flat(at.grad)))
    write("activation", cases)


def softmax():
    cases = []
    for rows, width, scale in ((3, 7, 1), (2, 50, 1000)):
        x, diff = inputs(rows, width, scale=scale).requires_grad_(), inputs(rows, width)
        y = F.softmax(x, -1)
        y.backward(diff)
        cases.append(dict(rows=rows, width=width, x=flat(x), diff=flat(diff), y=flat(y), diff_x=flat(x.grad)))
    write("softmax", cases)


def embedding():
    batch, length, width, vocabulary, positions = 2, 5, 3, 11, 7
    ids = torch.randint(0, 4, (batch, length))  # repeats on purpose
    tokens, places, diff = inputs(vocabulary, width), inputs(positions, width), inputs(batch, length, width)
    tokens.requires_grad_(), places.requires_grad_()
    y = F.embedding(ids, tokens) + places[:length]
    y.backward(diff)
    write("embedding", [dict(batch=batch, length=length, width=width, vocabulary=vocabulary, positions=positions, ids=ids.reshape(-1).tolist(),
                             tokens=flat(tokens), places=flat(places), diff=flat(diff), y=flat(y), diff_tokens=flat(tokens.grad),
                             diff_places=flat(places.grad))])


def cross_entropy():
    cases = []
    for rows, classes, scale in ((4, 5, 1), (3, 131, 10), (2, 33, 1e4)):
        x = inputs(rows, classes, scale=scale).requires_grad_()
        targets = torch.randint(0, classes, (rows,))
        targets[1] = -100  # PyTorch's own mark for "ignore"
        losses = F.cross_entropy(x, targets, reduction="none")
        (losses.sum() * 0.25).backward()
        cases.append(dict(rows=rows, classes=classes, weight=0.25, x=flat(x), targets=targets.tolist(), losses=flat(losses), diff=flat(x.grad)))
    write("cross_entropy", cases)


def optimizer():
    """Three steps each, in f32 as the kernels run."""
    cases = []
    settings = [("adamw", dict(lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)),
                ("adamw", dict(lr=0.001, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0)),
                ("sgd", dict(lr=0.1)), ("sgd", dict(lr=0.1, weight_decay=0.01)), ("sgd", dict(lr=0.1, momentum=0.9, weight_decay=0.01))]
    for name, options in settings:
        start, gradients = inputs(37), [inputs(37) for _ in range(3)]
        p = torch.nn.Parameter(start.float().clone())
        one = (torch.optim.AdamW if name == "adamw" else torch.optim.SGD)([p], foreach=False, **options)
        after = []
        for gradient in gradients:
            p.grad = gradient.float()
            one.step()
            after.append(flat(p))
        cases.append(dict(name=name, start=flat(start), gradients=[flat(g) for g in gradients], after=after,
                          **{k: list(v) if isinstance(v, tuple) else v for k, v in options.items()}))
    write("optimizer", cases)


for make in (norm, activation, softmax, embedding, cross_entropy, optimizer):
    make()
