"""Training steps of exported PyTorch models, by turns in PyTorch eager, torch.compile and ppengine on the same cores. Needs torch and
transformers: a tool for developers.

    .dev/bin/python bench/programs.py [resnet vit bert unet gpt2] [--rounds 3] [--no-compile] [--isa native|avx2|avx512] [--binary build/bin/ppengine]

Prints the medians over the rounds; ratios above 1: ppengine is the faster one. gpt2 is also run as the built-in family of the same sizes."""
import argparse, json, os, pathlib, statistics, subprocess, sys, tempfile, time

import isa

ROOT = pathlib.Path(__file__).resolve().parent.parent
parser = argparse.ArgumentParser()
parser.add_argument("models", nargs="*", default=["resnet", "vit", "bert", "unet", "gpt2"])
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--repeat", type=int, default=5, help="steps measured in a round")
parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
parser.add_argument("--binary", default=ROOT / "build/bin/ppengine")
parser.add_argument("--folder", help="keep exported programs here, and take those that are there")
isa.add(parser)
given = parser.parse_args()
isa.apply(given)  # before torch reads the environment

import torch, torch.nn as nn, torch.nn.functional as F
from safetensors.torch import save_file


class Logits(nn.Module):
    def __init__(self, inner, name):
        super().__init__()
        self.inner, self.name = inner, name
    def forward(self, x):
        return self.inner(**{self.name: x}).logits


class Unet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        block = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(4, b), nn.SiLU(), nn.Conv2d(b, b, 3, padding=1), nn.GroupNorm(4, b), nn.SiLU())
        self.d1, self.d2, self.d3 = block(3, width), block(width, 2 * width), block(2 * width, 4 * width)
        self.u2, self.u1 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2), nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.e2, self.e1, self.out = block(4 * width, 2 * width), block(2 * width, width), nn.Conv2d(width, 4, 1)
    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.d3(F.max_pool2d(b, 2))
        b = self.e2(torch.cat([b, self.u2(c)], 1))
        return self.out(self.e1(torch.cat([a, self.u1(b)], 1)))


def resnet():
    from transformers import ResNetConfig, ResNetForImageClassification
    net = ResNetForImageClassification(ResNetConfig(layer_type="basic", hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], num_labels=10))
    return Logits(net, "pixel_values"), torch.randn(8, 3, 64, 64), torch.randint(0, 10, (8,)), -1


def vit():
    from transformers import ViTConfig, ViTForImageClassification
    net = ViTForImageClassification(ViTConfig(hidden_size=384, num_hidden_layers=12, num_attention_heads=6, intermediate_size=1536, image_size=64, patch_size=8, num_labels=10,
                                              hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    return Logits(net, "pixel_values"), torch.randn(4, 3, 64, 64), torch.randint(0, 10, (4,)), -1


def bert():
    from transformers import BertConfig, BertForMaskedLM
    net = BertForMaskedLM(BertConfig(vocab_size=8192, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024, hidden_dropout_prob=0.0,
                                     attention_probs_dropout_prob=0.0))
    return Logits(net, "input_ids"), torch.randint(0, 8192, (4, 128)), torch.randint(0, 8192, (4, 128)), -1


def unet():
    return Unet(), torch.randn(4, 3, 64, 64), torch.randint(0, 4, (4, 64, 64)), 1


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel
    net = GPT2LMHeadModel(GPT2Config(vocab_size=8192, n_positions=256, n_embd=512, n_layer=8, n_head=8, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False,
                                     tie_word_embeddings=False))
    return Logits(net, "input_ids"), torch.randint(0, 8192, (2, 256)), torch.randint(0, 8192, (2, 256)), -1


def time_torch(net, x, y, dim, repeat):
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    times = []
    for i in range(repeat + 2):
        begin = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(net(x).movedim(dim, 1), y).backward()
        optimizer.step()
        if i >= 2:
            times.append(time.perf_counter() - begin)
    return statistics.median(times)


def time_engine(flags):
    run = subprocess.run([str(one) for one in [given.binary, "bench", "train", "--microbatches", 1, "--warmup", 2, "--repeat", given.repeat, "--json", *flags]],
                         capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr)
    return json.loads(run.stdout)["step_milliseconds"] / 1e3


def family_flags(folder, net, x):
    """gpt2 as the built-in family: the same configuration in a model folder without weights, made-up data of the same size."""
    net.inner.config.save_pretrained(f"{folder}/family")
    net.inner.save_pretrained(f"{folder}/family")
    return ["--model", f"{folder}/family", "--data", "synthetic", "--batch-size", x.shape[0], "--seq-len", x.shape[1]]


def measure(name, folder):
    torch.manual_seed(0)
    net, x, y, dim = globals()[name]()
    net.train()
    if not os.path.exists(f"{folder}/net.pt2"):
        dynamic = ({0: torch.export.Dim("batch", min=2, max=1024)},)
        torch.export.save(torch.export.export(net, (x,), dynamic_shapes=dynamic, strict=False), f"{folder}/net.pt2")
        save_file({"x": x, "targets": y}, f"{folder}/data.safetensors")
    program = ["--model", f"{folder}/net.pt2", "--data", f"{folder}/data.safetensors", "--loss", "cross_entropy", "--class-dim", dim, "--batch-size", x.shape[0]]
    sides = {"ppengine": lambda: time_engine(program), "eager": lambda: time_torch(net, x, y, dim, given.repeat)}
    if not given.no_compile:
        compiled = torch.compile(net)
        sides["compile"] = lambda: time_torch(compiled, x, y, dim, given.repeat)
    if name == "gpt2":
        family = family_flags(folder, net, x)
        sides["family"] = lambda: time_engine(family)
    for side in sides.values():  # compiles, caches
        side()
    rounds = [{side: run() for side, run in sides.items()} for _ in range(given.rounds)]
    text = f"{name:7} ppengine {1e3 * statistics.median(one['ppengine'] for one in rounds):7.1f} ms"
    for side in list(sides)[1:]:
        ratios = [one[side] / one["ppengine"] for one in rounds]
        text += f"; {side} {1e3 * statistics.median(one[side] for one in rounds):7.1f} ms, {statistics.median(ratios):.2f} times ({min(ratios):.2f} to {max(ratios):.2f})"
    print(text, flush=True)


torch.set_num_threads(len(os.sched_getaffinity(0)))
for model in given.models:
    if given.folder:
        os.makedirs(f"{given.folder}/{model}", exist_ok=True)
        measure(model, f"{given.folder}/{model}")
    else:
        with tempfile.TemporaryDirectory() as temporary:
            measure(model, temporary)
