"""Training steps of exported PyTorch models, by turns in PyTorch eager (and torch.compile) and in ppengine on the same cores. Needs torch and
transformers: a tool for developers.

    .dev/bin/python bench/programs.py build/bin/ppengine [--rounds 3] [--compile] [resnet vit bert unet gpt2]
"""
import argparse, json, os, statistics, subprocess, tempfile, time
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


def time_engine(engine, folder, x, dim, repeat, flags):
    run = subprocess.run([engine, "bench", "train", "--model", f"{folder}/net.pt2", "--data", f"{folder}/data.safetensors", "--loss", "cross_entropy", "--class-dim", str(dim),
                          "--batch-size", str(x.shape[0]), "--warmup", "2", "--repeat", str(repeat), "--json"] + flags, capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(run.stderr)
    return json.loads(run.stdout)["step_milliseconds"] / 1e3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("engine")
    parser.add_argument("models", nargs="*", default=["resnet", "vit", "bert", "unet", "gpt2"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--compile", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    for name in given.models:
        torch.manual_seed(0)
        net, x, y, dim = globals()[name]()
        net.train()
        with tempfile.TemporaryDirectory() as folder:
            torch.export.save(torch.export.export(net, (x,), dynamic_shapes=({0: torch.export.Dim("batch", min=2, max=1024)},), strict=False), f"{folder}/net.pt2")
            save_file({"x": x, "targets": y}, f"{folder}/data.safetensors")
            compiled = torch.compile(net) if given.compile else None
            rounds = [(time_torch(net, x, y, dim, given.repeat), time_engine(given.engine, folder, x, dim, given.repeat, []),
                       time_torch(compiled, x, y, dim, given.repeat) if compiled else float("nan")) for _ in range(given.rounds)]
        eager, ours, fast = (statistics.median(one) for one in zip(*rounds))
        print(f"{name:8} eager {1e3 * eager:8.1f} ms  ppengine {1e3 * ours:8.1f} ms  {eager / ours:.2f} times eager ({min(a / b for a, b, _ in rounds):.2f} to {max(a / b for a, b, _ in rounds):.2f})"
              + (f"  compile {1e3 * fast:8.1f} ms ({fast / ours:.2f})" if compiled else ""), flush=True)


if __name__ == "__main__":
    main()
