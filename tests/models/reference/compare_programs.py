"""Exports small models with torch.export, trains them for ten AdamW steps with PyTorch and with ppengine, and compares losses, gradient
norms, weights and outputs. Written for torch 2.13 and transformers 5; a tool for developers, no part of the tests.

    .dev/bin/python tests/models/reference/compare_programs.py build/bin/ppengine [name ...] [-- ppengine flags]
"""
import copy, json, os, subprocess, sys, tempfile
import torch, torch.nn as nn, torch.nn.functional as F
from safetensors.torch import load_file, save_file

STEPS, LR = 10, 1e-3
MODELS = {}


def model(loss, **options):
    def add(make):
        MODELS[make.__name__] = (make, loss, options)
        return make
    return add


@model("mse")
def mlp():
    return nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 3)), {"input": torch.randn(24, 10)}, torch.randn(24, 3)


@model("cross_entropy")
def classifier():
    return nn.Sequential(nn.Linear(10, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 5)), {"input": torch.randn(24, 10)}, torch.randint(0, 5, (24,))


@model("bce")
def gated():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.scale = nn.Linear(7, 16), nn.Linear(7, 16), nn.Parameter(torch.randn(16))
            self.out = nn.Linear(16, 1)
        def forward(self, x):
            h = F.silu(self.a(x)) * torch.sigmoid(self.b(x)) * self.scale + x.mean(1, keepdim=True)
            return self.out(h / (1 + h.abs())).squeeze(1)
    return Net(), {"x": torch.randn(24, 7)}, torch.rand(24)


@model("cross_entropy")
def cnn():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, stride=2, padding=1, groups=2, bias=False),
                         nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4)), {"input": torch.randn(24, 3, 12, 12)}, torch.randint(0, 4, (24,))


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1 = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU())
        self.down2 = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU())
        self.middle = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.SiLU())
        self.up2 = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.up1 = nn.Conv2d(16, 8, 3, padding=1)
        self.out = nn.Conv2d(8, 3, 1)
    def forward(self, x):
        a = self.down1(x)
        b = self.middle(self.down2(F.max_pool2d(a, 2)))
        c = torch.cat([a, self.up2(b)], 1)
        return self.out(F.relu(self.up1(c)))


@model("cross_entropy", flags=["--class-dim", "1"])
def unet():
    return Unet(), {"x": torch.randn(16, 2, 8, 8)}, torch.randint(0, 3, (16, 8, 8))


@model("mse")
def upsampler():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.c1, self.c2, self.c3 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=2, dilation=2), nn.Conv1d(4, 2, 3, padding=1)
        def forward(self, x):
            y = F.avg_pool2d(F.leaky_relu(self.c1(x)), 2)
            y = F.interpolate(y, scale_factor=2, mode="nearest") + F.interpolate(self.c2(y), size=(8, 8), mode="bilinear", align_corners=False)
            return self.c3(F.pad(y, (1, 1, 0, 0)).flatten(2))
    return Net(), {"x": torch.randn(12, 1, 8, 8)}, torch.randn(12, 2, 80)


@model("cross_entropy")
def resnet():
    from transformers import ResNetConfig, ResNetForImageClassification
    return Logits(ResNetForImageClassification(ResNetConfig(num_channels=3, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=4)), "pixel_values"), \
        {"pixel_values": torch.randn(16, 3, 32, 32)}, torch.randint(0, 4, (16,))


@model("cross_entropy")
def convnext():
    from transformers import ConvNextConfig, ConvNextForImageClassification
    return Logits(ConvNextForImageClassification(ConvNextConfig(num_channels=3, patch_size=4, hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, num_labels=4)), "pixel_values"), \
        {"pixel_values": torch.randn(8, 3, 32, 32)}, torch.randint(0, 4, (8,))


@model("cross_entropy")
def vit():
    from transformers import ViTConfig, ViTForImageClassification
    return Logits(ViTForImageClassification(ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=8, num_labels=4,
                  hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)), "pixel_values"), {"pixel_values": torch.randn(8, 3, 16, 16)}, torch.randint(0, 4, (8,))


class Logits(nn.Module):
    def __init__(self, inner, name):
        super().__init__()
        self.inner, self.name = inner, name
        inner.config.use_cache = False
    def forward(self, x):
        return self.inner(**{self.name: x}).logits


def language(inner, vocabulary=61, length=12, samples=8):
    ids = torch.randint(0, vocabulary, (samples, length + 1))
    return Logits(inner, "input_ids"), {"x": ids[:, :-1].contiguous()}, ids[:, 1:].contiguous()


@model("cross_entropy")
def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel
    return language(GPT2LMHeadModel(GPT2Config(vocab_size=61, n_positions=32, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0)))


@model("cross_entropy")
def llama():
    from transformers import LlamaConfig, LlamaForCausalLM
    return language(LlamaForCausalLM(LlamaConfig(vocab_size=61, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32)))


@model("cross_entropy")
def qwen3():
    from transformers import Qwen3Config, Qwen3ForCausalLM
    return language(Qwen3ForCausalLM(Qwen3Config(vocab_size=61, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=4, max_position_embeddings=32)))


@model("cross_entropy")
def gemma2():
    from transformers import Gemma2Config, Gemma2ForCausalLM
    return language(Gemma2ForCausalLM(Gemma2Config(vocab_size=61, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=4, max_position_embeddings=32,
                    sliding_window=8, attn_implementation="eager", query_pre_attn_scalar=4)))


@model("cross_entropy")
def bert():
    from transformers import BertConfig, BertForMaskedLM
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = BertForMaskedLM(BertConfig(vocab_size=61, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, max_position_embeddings=32,
                                                    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
        def forward(self, input_ids, attention_mask):
            return self.inner(input_ids=input_ids, attention_mask=attention_mask).logits
    mask = torch.ones(8, 12, dtype=torch.long)
    mask[::2, 9:] = 0
    targets = torch.randint(0, 61, (8, 12))
    targets[:, ::3] = -100
    return Net(), {"input_ids": torch.randint(0, 61, (8, 12)), "attention_mask": mask}, targets


@model("cross_entropy")
def t5():
    from transformers import T5Config, T5ForConditionalGeneration
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = T5ForConditionalGeneration(T5Config(vocab_size=61, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, dropout_rate=0.0))
            self.inner.config.use_cache = False
        def forward(self, input_ids, decoder_input_ids):
            return self.inner(input_ids=input_ids, decoder_input_ids=decoder_input_ids).logits
    return Net(), {"input_ids": torch.randint(0, 61, (8, 12)), "decoder_input_ids": torch.randint(0, 61, (8, 7))}, torch.randint(0, 61, (8, 7))


@model("cross_entropy")
def encoder():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
            self.embed, self.layers, self.head = nn.Embedding(61, 16), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 5)
        def forward(self, x):
            return self.head(self.layers(self.embed(x)).mean(1))
    return Net(), {"x": torch.randint(0, 61, (8, 12))}, torch.randint(0, 5, (8,))


@model("cross_entropy")
def lstm():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.rnn, self.head = nn.Embedding(31, 8), nn.LSTM(8, 12, num_layers=2, batch_first=True, bidirectional=True), nn.Linear(24, 31)
        def forward(self, x):
            return self.head(self.rnn(self.embed(x))[0])
    ids = torch.randint(0, 31, (8, 8))
    return Net(), {"x": ids[:, :-1].contiguous()}, ids[:, 1:].contiguous()


@model("mse")
def gru():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.GRU(5, 9, batch_first=True), nn.Linear(9, 1)
        def forward(self, x):
            return self.head(self.rnn(x)[0][:, -1])
    return Net(), {"x": torch.randn(12, 6, 5)}, torch.randn(12, 1)


@model("output")
def own_loss():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 5)
        def forward(self, x, labels):
            logits = self.b(torch.relu(self.a(x)))
            return F.cross_entropy(logits, labels, label_smoothing=0.1), logits
    return Net(), {"x": torch.randn(16, 6), "labels": torch.randint(0, 5, (16,))}, None


@model("cross_entropy")
def tied():
    """A weight with two names, one that is not trained, and a part of a tensor that is written in place."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.mix, self.head = nn.Embedding(11, 6), nn.Linear(6, 6), nn.Linear(6, 11, bias=False)
            self.head.weight = self.embed.weight
            self.shift = nn.Parameter(torch.randn(6), requires_grad=False)
            self.mix.bias.requires_grad_(False)
        def forward(self, ids):
            h = self.mix(self.embed(ids)) + self.shift
            h[:, 0, ::2] = h[:, 1, ::2] * 0.5
            return self.head(h.relu_() + self.embed(ids.flip(1)))
    return Net(), {"ids": torch.randint(0, 11, (12, 5))}, torch.randint(0, 11, (12, 5))


@model("mse")
def tail():
    """Ops that are used here and there."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.table, self.pos = nn.Linear(6, 8), nn.Parameter(torch.randn(5, 8)), nn.Parameter(torch.randn(1, 4, 8))
            self.register_buffer("scale", torch.rand(8))
        def forward(self, x, index):
            h = self.a(x).view(-1, 4, 2).repeat(1, 1, 4) + self.pos
            h = h * self.scale + self.table[index].unsqueeze(1)
            h = torch.einsum("btd,bsd->bts", h, h.flip(1)) / 3
            h = torch.where(h > 0, h, h.exp() - 1).clamp(-2, 2)
            v, i = h.topk(2, dim=-1)
            g = torch.gather(h, 2, i) + v.cumsum(1) - h.std(dim=-1, keepdim=True)
            return torch.cat([g.flatten(1), h.amax(1), h.logsumexp(2), torch.roll(h, 1, 1)[:, 0]], 1)
    return Net(), {"x": torch.randn(12, 6), "index": torch.randint(0, 5, (12,))}, torch.randn(12, 20)


def loss_of(kind, output, target, options):
    first = next(iter(output.values())) if isinstance(output, dict) else output[0] if isinstance(output, (tuple, list)) else output
    if kind == "output":
        return first, 1
    if kind == "mse":
        return F.mse_loss(first, target, reduction="sum"), target.numel()
    if kind == "bce":
        return F.binary_cross_entropy_with_logits(first, target, reduction="sum"), target.numel()
    if "--class-dim" not in options.get("flags", []):
        first = first.movedim(-1, 1)
    return F.cross_entropy(first, target, reduction="sum", ignore_index=-100), int((target >= 0).sum())


def train_torch(net, inputs, target, kind, options, microbatches, batch):
    torch.manual_seed(11)
    net.train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=LR, weight_decay=0.01)
    samples = next(iter(inputs.values())).shape[0]
    losses, norms = [], []
    for step in range(STEPS):
        index = [(step * batch + i) % samples for i in range(batch)]
        optimizer.zero_grad()
        total = 0.0
        valid = None
        if target is not None:
            whole = target[index]
            valid = int((whole >= 0).sum()) if kind == "cross_entropy" else whole.numel()
        size = batch // microbatches
        for m in range(microbatches):
            part = index[m * size:(m + 1) * size]
            output = net(*[v[part] for v in inputs.values()])
            loss, _ = loss_of(kind, output, None if target is None else target[part], options)
            loss = loss * size / batch if kind == "output" else loss / valid
            loss.backward()
            total += loss.item()
        norms.append(torch.sqrt(sum((p.grad ** 2).sum() for p in net.parameters() if p.grad is not None)).item())
        losses.append(total)
        optimizer.step()
    return losses, norms


def worst(a, b):
    a, b = torch.as_tensor(a, dtype=torch.float64), torch.as_tensor(b, dtype=torch.float64)
    if a.shape != b.shape:
        return float("inf")
    value = ((a - b).abs().max() / b.abs().max().clamp_min(1e-6)).item() if a.numel() else 0.0
    return value if value == value else float("inf")


def compare(engine, name, flags, batch, microbatches):
    make, kind, options = MODELS[name]
    torch.manual_seed(7)
    net, inputs, target = make()
    batch = min(batch, next(iter(inputs.values())).shape[0])
    folder = tempfile.mkdtemp(prefix=f"program-{name}-", dir=os.environ.get("TMPDIR", "/tmp"))
    net.train()
    dim = torch.export.Dim("batch", min=2, max=4096)
    ep = torch.export.export(net, tuple(inputs.values()), dynamic_shapes=tuple({0: dim} for _ in inputs), strict=False)
    torch.export.save(ep, f"{folder}/net.pt2")
    names = [s.arg.name for s in ep.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    data = {n: v.contiguous() for n, v in zip(names, inputs.values())}
    if target is not None:
        data["targets"] = target
    save_file(data, f"{folder}/data.safetensors")
    common = ["--data", f"{folder}/data.safetensors", "--loss", kind, "--batch-size", str(batch), "--json"] + options.get("flags", []) + flags
    run = subprocess.run([engine, "train", "--model", f"{folder}/net.pt2", "--steps", str(STEPS), "--lr", str(LR), "--weight-decay", "0.01", "--microbatches", str(microbatches),
                          "--save", f"{folder}/out"] + common, capture_output=True, text=True)
    if run.returncode != 0:
        return f"train failed ({run.returncode}): {run.stderr.strip()[-600:]}"
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    exact = copy.deepcopy(net).double()
    train_torch(exact, {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}, target.double() if target is not None and target.is_floating_point() else target,
                kind, options, microbatches, batch)
    losses, norms = train_torch(net, inputs, target, kind, options, microbatches, batch)
    saved = load_file(f"{folder}/out/model.safetensors")
    result = {"loss": worst([l["loss"] for l in lines], losses), "norm": worst([l["grad_norm"] for l in lines], norms)}
    # Where a gradient is zero but for rounding (a bias in front of a norm), AdamW makes steps of noise: PyTorch differs from itself there.
    wide = exact.state_dict()
    apart = {k: worst(saved[k], v) for k, v in net.state_dict().items() if not worst(v, wide[k]) > 5e-5}
    furthest = max(apart, key=apart.get)
    result["weights"] = apart[furthest]
    noisy = len(net.state_dict()) - len(apart)
    net.load_state_dict(saved, strict=True)
    net.eval()
    run = subprocess.run([engine, "eval", "--model", f"{folder}/out", "--outputs", f"{folder}/outputs.safetensors"] + common, capture_output=True, text=True)
    if run.returncode != 0:
        return f"{result} eval failed ({run.returncode}): {run.stderr.strip()[-600:]}"
    with torch.no_grad():
        output = net(*inputs.values())
    output = list(output.values()) if isinstance(output, dict) else list(output) if isinstance(output, (tuple, list)) else [output]
    got = load_file(f"{folder}/outputs.safetensors")
    result["outputs"] = max(worst(got["output" if len(output) == 1 else f"output.{i}"], o) for i, o in enumerate(output) if o.dim() > 0 and o.shape[0] == next(iter(inputs.values())).shape[0])
    bad = {k: v for k, v in result.items() if not v < (1e-4 if k == "outputs" else 2e-4)}
    return ("WRONG " if bad else "fine  ") + "  ".join(f"{k} {v:.1e}" for k, v in result.items()) + f"  ({furthest}; {noisy} noisy)"


if __name__ == "__main__":
    sys.modules["compare_programs"] = sys.modules["__main__"]
    import program_zoo  # noqa: F401  more models
    arguments = sys.argv[2:]
    flags = arguments[arguments.index("--") + 1:] if "--" in arguments else []
    names = arguments[:arguments.index("--")] if "--" in arguments else arguments
    for name in names or MODELS:
        try:
            print(f"{name:12} {compare(sys.argv[1], name, flags, 8, 2)}", flush=True)
        except Exception as error:
            print(f"{name:12} {type(error).__name__}: {str(error)[:600]}", flush=True)
