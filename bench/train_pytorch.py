#!/usr/bin/env python3
"""The presets in PyTorch, eager or compiled, on the same cores: tokens per second of a training step (forward, backward, AdamW).

    bench/train_pytorch.py tiny|mid|gpt2 [microbatches] [--repeat N] [--compile]

Prints one JSON object like `ppengine bench train --json`, for side-by-side runs (bench/train.py runs both by turns)."""
import argparse, json, statistics, time
import torch

PRESETS = {"tiny": (4, 256, 4, 128, 256, 2), "mid": (8, 512, 8, 256, 8192, 1), "gpt2": (12, 768, 12, 256, 50257, 1)}


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.c_attn, self.c_proj = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.c_fc, self.mlp_proj = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.c_attn(self.ln_1(x)).split(width, dim=2))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp_proj(torch.nn.functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Model(torch.nn.Module):
    def __init__(self, layers, width, heads, length, vocabulary):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(length, width)
        self.h = torch.nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f, self.lm_head = torch.nn.LayerNorm(width), torch.nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("preset", choices=PRESETS)
    parser.add_argument("microbatches", type=int, nargs="?", default=1)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--compile", action="store_true", help="torch.compile the model and the loss; compiling is not measured")
    args = parser.parse_args()
    layers, width, heads, length, vocabulary, sequences = PRESETS[args.preset]
    torch.manual_seed(0)
    model = Model(layers, width, heads, length, vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def loss_of(tokens):
        logits = model(tokens[:, :-1])
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) / args.microbatches

    if args.compile:
        loss_of = torch.compile(loss_of)
    seconds = []
    for step in range(args.repeat + 2):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        for _ in range(args.microbatches):
            loss_of(torch.randint(vocabulary, (sequences, length + 1))).backward()
        optimizer.step()
        if step >= 2:
            seconds.append(time.perf_counter() - begin)
    tokens = args.microbatches * sequences * length
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    rate = 0
    for _ in range(5):
        begin = time.perf_counter()
        a @ b
        rate = max(rate, 2 * 2048**3 / (time.perf_counter() - begin))
    print(json.dumps({"tokens_per_second": tokens / statistics.median(seconds), "step_milliseconds": 1e3 * statistics.median(seconds),
                      "gflops_large_matmul": rate / 1e9, "threads": torch.get_num_threads()}))


if __name__ == "__main__":
    main()
