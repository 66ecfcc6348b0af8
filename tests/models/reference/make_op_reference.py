"""References of tests/runs/test_program_ops.cpp: programs whose modules are single ops of op_table.py, each with a weight and a bias of its own, and
PyTorch's outputs and gradients of one step. Made with torch 2.13.

    .dev/bin/python tests/models/reference/make_op_reference.py                 # the committed ones
    .dev/bin/python tests/models/reference/make_op_reference.py FOLDER name...  # others
"""
import json, logging, math, os, shutil, sys, types, warnings, zipfile
import torch, torch.nn as nn
from safetensors.torch import save_file
from make_program_reference import shrink
from op_table import OPS

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
BATCH, SIZE = 4, 66  # samples; ops of a program


class One(nn.Module):
    """An op behind x * w + b; its output, and a number that depends on all of it."""
    def __init__(self, name):
        super().__init__()
        self.shape, self.call = OPS[name]
        generator = torch.Generator().manual_seed(len(name) * 131 + sum(map(ord, name)))
        self.w = nn.Parameter(torch.randn(self.shape, generator=generator) * 0.5 + 0.2)
        self.b = nn.Parameter(torch.randn(self.shape, generator=generator) * 0.5)
    def forward(self, base, s):
        y = self.call(base[:, :math.prod(self.shape)].reshape(-1, *self.shape) * self.w + self.b, s)
        y = y if y.is_floating_point() else y.float()
        width = math.prod(y.shape[1:])
        return y, (y.reshape(-1, width) * s.wave[:width]).sum() / base.shape[0]


class Ops(nn.Module):
    def __init__(self, names):
        super().__init__()
        torch.manual_seed(3)
        self.names = names
        self.op = nn.ModuleDict({"_" + name: One(name) for name in names})
        self.w1, self.w2, self.w3, self.b3 = (nn.Parameter(torch.randn(shape) * 0.4) for shape in [(3, 2, 3), (3, 2, 3, 3), (3, 2, 2, 3, 2), (3,)])
        self.img = nn.Parameter(torch.randn(1, 3, 5, 4))
        self.register_buffer("wave", torch.cos(torch.arange(1200.0)), persistent=False)
    def forward(self, base, y, ids, mask, k, grid, grid3):
        s = types.SimpleNamespace(y=y, ids=ids, mask=mask, k=k, grid=grid, grid3=grid3, w1=self.w1, w2=self.w2, w3=self.w3, b3=self.b3, wave=self.wave,
                                  img=self.img.expand(base.shape[0], -1, -1, -1))
        results = [self.op["_" + name](base, s) for name in self.names]
        return (sum(loss for _, loss in results), *(out for out, _ in results))


def inputs():
    torch.manual_seed(5)
    return dict(base=torch.randn(BATCH, 120), y=torch.rand(BATCH, 4, 6), ids=torch.randint(0, 4, (BATCH, 6)), mask=torch.rand(BATCH, 4, 6) > 0.6,
                k=torch.randint(0, 4, (BATCH,)), grid=torch.rand(BATCH, 4, 5, 2) * 2 - 1, grid3=torch.rand(BATCH, 2, 3, 2, 3) * 2 - 1)


def slim(path):
    """Leaves sizes and types of values alone: the rest is never read."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    for name in entries:
        if name.endswith("models/model.json"):
            model = json.loads(entries[name])
            graph = model["graph_module"]["graph"]
            graph["tensor_values"] = {k: {"dtype": v["dtype"], "sizes": v["sizes"]} for k, v in graph["tensor_values"].items()}
            graph["nodes"] = [node for node in graph["nodes"] if node["target"] not in ("_operator.le", "_operator.ge", "_operator.mul")]
            for node in graph["nodes"]:
                node["metadata"].pop("stack_trace", None)
            entries[name] = json.dumps(model, separators=(",", ":")).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in entries.items():
            archive.writestr(zipfile.ZipInfo(name), content)


def make(names, folder):
    """net.pt2, data.safetensors, names.txt, and expected.safetensors: outputs as NAME, gradients as NAME.w and NAME.b."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    net, data = Ops(names).train(), inputs()
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(net, tuple(data.values()), dynamic_shapes=tuple({0: batch} for _ in data), strict=False)
    torch.export.save(program, f"{folder}/net.pt2")
    shrink(f"{folder}/net.pt2")
    slim(f"{folder}/net.pt2")
    save_file(data, f"{folder}/data.safetensors")
    loss, *outputs = net(*data.values())
    loss.backward()
    expected = {f"{name}": out.detach().contiguous() for name, out in zip(names, outputs)}
    for name, parameter in net.named_parameters():
        expected["gradient." + name] = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
    save_file(expected, f"{folder}/expected.safetensors")
    with open(f"{folder}/names.txt", "w") as file:
        file.write("".join(name + "\n" for name in names))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        make(sys.argv[2:], sys.argv[1])
    else:
        here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "ops")
        names = list(OPS)
        for i in range(0, len(names), SIZE):
            make(names[i:i + SIZE], os.path.join(here, str(i // SIZE)))
