"""More models for compare_programs.py: what users write, one small model per kind of layer."""
import torch, torch.nn as nn, torch.nn.functional as F
from compare_programs import model


def images(samples=12, channels=3, size=12):
    return {"x": torch.randn(samples, channels, size, size)}


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.a, self.b = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
    def forward(self, x):
        return x + self.b(F.gelu(self.a(self.norm(x)), approximate="tanh"))


@model("mse")
def residual_mlp():
    return nn.Sequential(nn.Linear(6, 16), Residual(16), Residual(16), Residual(16), nn.Linear(16, 2)), {"input": torch.randn(16, 6)}, torch.randn(16, 2)


@model("cross_entropy")
def activations():
    layers = [nn.Linear(6, 12)]
    for one in (nn.SiLU(), nn.Hardswish(), nn.ELU(), nn.LeakyReLU(0.2), nn.Mish(), nn.Softplus(), nn.SELU(), nn.CELU(1.3), nn.ReLU6(), nn.Hardtanh(), nn.Hardsigmoid(),
                nn.Softsign(), nn.Tanhshrink(), nn.LogSigmoid(), nn.PReLU(), nn.Sigmoid(), nn.Softshrink(0.1), nn.Hardshrink(0.1), nn.Threshold(0.1, 0.2)):
        layers += [one, nn.Linear(12, 12)]
    return nn.Sequential(*layers, nn.Linear(12, 3)), {"input": torch.randn(16, 6)}, torch.randint(0, 3, (16,))


@model("cross_entropy")
def conv1d():
    return nn.Sequential(nn.Conv1d(4, 8, 5, stride=2, padding=2), nn.BatchNorm1d(8), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(8, 8, 3, dilation=2, padding=2), nn.AvgPool1d(2),
                         nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 3)), {"input": torch.randn(16, 4, 21)}, torch.randint(0, 3, (16,))


@model("mse")
def autoencoder():
    return nn.Sequential(nn.Conv2d(1, 6, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3, stride=2, padding=1), nn.InstanceNorm2d(8, affine=True), nn.ReLU(), nn.Flatten(),
                         nn.Linear(8 * 9, 10), nn.Tanh(), nn.Linear(10, 8 * 9), nn.Unflatten(1, (8, 3, 3)), nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1, output_padding=1), nn.ReLU(),
                         nn.ConvTranspose2d(6, 1, 4, stride=2, padding=1), nn.Sigmoid()), {"input": torch.rand(12, 1, 12, 12)}, torch.rand(12, 1, 12, 12)


@model("cross_entropy")
def mobilenet():
    class Block(nn.Module):
        def __init__(self, width, kernel):
            super().__init__()
            self.expand, self.bn1 = nn.Conv2d(width, 3 * width, 1, bias=False), nn.BatchNorm2d(3 * width)
            self.depth, self.bn2 = nn.Conv2d(3 * width, 3 * width, kernel, padding=kernel // 2, groups=3 * width, bias=False), nn.BatchNorm2d(3 * width)
            self.squeeze, self.excite = nn.Conv2d(3 * width, 4, 1), nn.Conv2d(4, 3 * width, 1)
            self.project, self.bn3 = nn.Conv2d(3 * width, width, 1, bias=False), nn.BatchNorm2d(width)
        def forward(self, x):
            h = F.hardswish(self.bn2(self.depth(F.relu6(self.bn1(self.expand(x))))))
            h = h * F.hardsigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(h, 1)))))
            return x + self.bn3(self.project(h))
    return nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1), Block(4, 3), Block(4, 5), nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(4, 3)), \
        {"input": torch.randn(16, 3, 12, 12)}, torch.randint(0, 3, (16,))


@model("cross_entropy", flags=["--class-dim", "1"])
def segmenter():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Conv2d(3, 8, 3, padding="same", dilation=2), nn.Conv2d(8, 16, 3, padding=1), nn.Conv2d(4, 4, 1)
        def forward(self, x):
            h = F.pixel_shuffle(F.silu(self.b(F.avg_pool2d(F.pad(self.a(x), (1, 1, 1, 1)), 2))), 2)
            h = F.interpolate(h, size=(12, 12), mode="bilinear", align_corners=True)
            return self.c(h) + F.interpolate(F.adaptive_avg_pool2d(h, (5, 3)), size=(12, 12), mode="nearest")
    return Net(), images(), torch.randint(0, 4, (12, 12, 12))


@model("cross_entropy")
def hand_attention():
    class Attention(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.register_buffer("mask", torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16), persistent=False)
        def forward(self, x):
            B, T, C = x.shape
            q, k, v = self.qkv(x).split(C, dim=2)
            q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v))
            att = (q @ k.transpose(-2, -1)) * (C // self.heads) ** -0.5
            att = F.softmax(att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf")), dim=-1)
            return self.out((att @ v).transpose(1, 2).contiguous().view(B, T, C))
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.position = nn.Embedding(31, 16), nn.Embedding(16, 16)
            self.blocks = nn.ModuleList([nn.ModuleDict({"n1": nn.LayerNorm(16), "att": Attention(16, 4), "n2": nn.LayerNorm(16), "mlp": Residual(16)}) for _ in range(2)])
            self.head = nn.Linear(16, 31, bias=False)
            self.head.weight = self.token.weight
        def forward(self, ids):
            x = self.token(ids) + self.position(torch.arange(ids.shape[1], device=ids.device))
            for block in self.blocks:
                x = x + block["att"](block["n1"](x))
                x = block["mlp"](block["n2"](x))
            return self.head(x)
    ids = torch.randint(0, 31, (8, 10))
    return Net(), {"ids": ids[:, :-1].contiguous()}, ids[:, 1:].contiguous()


@model("cross_entropy")
def multihead():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.MultiheadAttention(12, 3, batch_first=True)
            self.cross = nn.MultiheadAttention(12, 3, kdim=6, vdim=6, batch_first=True)
            self.head = nn.Linear(12, 4)
        def forward(self, x, memory, ignored):
            h = self.a(x, x, x, need_weights=False)[0] + x
            h = self.cross(h, memory, memory, key_padding_mask=ignored)[0] + h
            return self.head(h.mean(1))
    ignored = torch.zeros(12, 5, dtype=torch.bool)
    ignored[::3, 3:] = True
    return Net(), {"x": torch.randn(12, 7, 12), "memory": torch.randn(12, 5, 6), "ignored": ignored}, torch.randint(0, 4, (12,))


@model("mse")
def decoder_layer():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.out = nn.Transformer(12, 2, 1, 2, 24, dropout=0.0, batch_first=True, norm_first=True), nn.Linear(12, 1)
        def forward(self, src, tgt):
            return self.out(self.net(src, tgt, tgt_mask=nn.Transformer.generate_square_subsequent_mask(tgt.shape[1]), tgt_is_causal=True)).squeeze(-1)
    return Net(), {"src": torch.randn(8, 5, 12), "tgt": torch.randn(8, 6, 12)}, torch.randn(8, 6)


@model("cross_entropy")
def embeddings():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Embedding(20, 8), nn.Embedding(7, 8, padding_idx=0), nn.Parameter(torch.randn(3, 8))
            self.norm, self.head = nn.LayerNorm(8, bias=False), nn.Linear(8, 20)
        def forward(self, item, kind, flag, weight):
            h = self.a(item) + self.b(kind) + F.one_hot(flag, 3).to(weight.dtype) @ self.c
            h = (h * weight.unsqueeze(-1)).sum(1) / weight.sum(1, keepdim=True).clamp(min=1e-3)
            return self.head(self.norm(h))
    return Net(), {"item": torch.randint(0, 20, (12, 5)), "kind": torch.randint(0, 7, (12, 5)), "flag": torch.randint(0, 3, (12, 5)), "weight": torch.rand(12, 5)}, torch.randint(0, 20, (12,))


@model("output")
def nll_inside():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(5, 8), nn.Linear(8, 4)
        def forward(self, x, y, weight):
            p = F.log_softmax(self.b(torch.tanh(self.a(x))), dim=-1)
            return {"loss": (F.nll_loss(p, y, reduction="none") * weight).mean() + 0.01 * self.a.weight.pow(2).sum(), "p": p.exp(), "best": p.argmax(-1)}
    return Net(), {"x": torch.randn(16, 5), "y": torch.randint(0, 4, (16,)), "weight": torch.rand(16)}, None


@model("output")
def vae():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.m, self.v, self.d = nn.Linear(8, 12), nn.Linear(12, 3), nn.Linear(12, 3), nn.Linear(3, 8)
        def forward(self, x, noise):
            h = F.relu(self.e(x))
            m, v = self.m(h), self.v(h)
            y = self.d(m + noise * torch.exp(0.5 * v))
            return F.binary_cross_entropy_with_logits(y, x, reduction="sum") / x.shape[0] - 0.5 * torch.mean(torch.sum(1 + v - m.pow(2) - v.exp(), dim=1)), y
    return Net(), {"x": torch.rand(12, 8), "noise": torch.randn(12, 3)}, None


@model("output")
def contrastive():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.w = nn.Linear(6, 8), nn.Linear(6, 8), nn.Parameter(torch.tensor(1.5))
        def forward(self, x, y):
            a, b = F.normalize(self.a(x), dim=-1), F.normalize(self.b(y), dim=-1)
            d = 1 - F.cosine_similarity(a, b, dim=-1)
            return (F.relu(d - 0.1) * self.w.exp()).mean() + F.smooth_l1_loss(a, b) + F.huber_loss(a, b, delta=0.3) + F.l1_loss(a, b), a
    return Net(), {"x": torch.randn(12, 6), "y": torch.randn(12, 6)}, None


@model("mse")
def einsums():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.u, self.v = nn.Parameter(torch.randn(4, 3, 5) * 0.3), nn.Parameter(torch.randn(5, 6) * 0.3), nn.Parameter(torch.randn(6) * 0.3)
        def forward(self, x):
            h = torch.einsum("bti,hid->bthd", x, self.w)
            h = torch.einsum("bthd,bshd->bhts", h, h).softmax(-1)
            h = torch.einsum("bhts,bsi,hid->btd", h, x, self.w)
            h = torch.baddbmm(h, h, torch.matmul(h.transpose(1, 2), h)) @ self.u
            return (h @ self.v).unsqueeze(-1) + torch.einsum("...d,d->...", h, self.v).unsqueeze(-1) + h.var(dim=(1, 2), keepdim=True)
    return Net(), {"x": torch.randn(8, 4, 3)}, torch.randn(8, 4, 1)


@model("mse")
def shapes():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(12, 12), nn.Linear(12, 6), nn.Bilinear(3, 3, 2)
        def forward(self, x):
            h = self.a(x).reshape(-1, 3, 4)
            p, q = h.chunk(2, dim=2)
            h = torch.stack([p * q, p - q, torch.maximum(p, q), torch.minimum(p, q.abs())], dim=-1).movedim(-1, 1).flatten(1)
            h = torch.cat([h[:, ::2], h[:, 1::2].flip(-1)], 1)[:, :12]
            h = torch.tril(h.view(-1, 3, 4)).flatten(1) + h.unfold(1, 4, 2).sum(-1).repeat(1, 3)[:, :12] + h.cumsum(1) / 12
            y = self.b(h.masked_fill(h > 3, 3.0)).unflatten(1, (2, 3)).unbind(1)
            return self.c(y[0], y[1]) + torch.where(y[0].mean(-1, keepdim=True) > 0, 1.0, -1.0) * y[1][..., :2] ** 3
    return Net(), {"x": torch.randn(12, 12)}, torch.randn(12, 2)


@model("mse")
def cells():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.gru, self.rnn, self.out = nn.LSTMCell(4, 6), nn.GRUCell(6, 6), nn.RNN(6, 5, nonlinearity="relu"), nn.Linear(5, 1)
        def forward(self, x):
            h = c = x.new_zeros(x.shape[0], 6)
            g, outs = h, []
            for t in range(x.shape[1]):
                h, c = self.cell(x[:, t], (h, c))
                g = self.gru(h, g)
                outs.append(g)
            return self.out(self.rnn(torch.stack(outs))[0][-1])
    return Net(), {"x": torch.randn(8, 5, 4)}, torch.randn(8, 1)


@model("cross_entropy")
def norms():
    class RMS(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))
        def forward(self, x):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
    return nn.Sequential(nn.Linear(6, 12), RMS(12), nn.RMSNorm(12), nn.Linear(12, 12), nn.GLU(), nn.LayerNorm(6, elementwise_affine=False), nn.Linear(6, 8), nn.BatchNorm1d(8),
                         nn.GroupNorm(4, 8), nn.BatchNorm1d(8, affine=False, momentum=0.3), nn.Linear(8, 3)), {"input": torch.randn(16, 6)}, torch.randint(0, 3, (16,))


@model("cross_entropy")
def conv3d():
    return nn.Sequential(nn.Conv3d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten(2), nn.Conv1d(4, 4, 4, stride=4), nn.Flatten(1), nn.Linear(4 * 16, 3)), {"input": torch.randn(8, 2, 4, 4, 4)}, torch.randint(0, 3, (8,))


@model("cross_entropy")
def mixer():
    class Mix(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2, self.t, self.c = nn.LayerNorm(12), nn.LayerNorm(12), nn.Sequential(nn.Linear(9, 16), nn.GELU(), nn.Linear(16, 9)), nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 12))
        def forward(self, x):
            x = x + self.t(self.n1(x).mT).mT
            return x + self.c(self.n2(x))
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch, self.mix, self.head, self.cls = nn.Conv2d(3, 12, 4, stride=4), nn.Sequential(Mix(), Mix()), nn.Linear(12, 4), nn.Parameter(torch.zeros(1, 1, 12))
        def forward(self, x):
            h = self.patch(x).flatten(2).transpose(1, 2)
            h = self.mix(h) + self.cls.expand(x.size(0), -1, -1)
            return self.head(h.max(dim=1).values + h.amax(1) - h.min(1)[0])
    return Net(), images(), torch.randint(0, 4, (12,))


@model("cross_entropy")
def densenet():
    class Layer(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.bn, self.conv = nn.BatchNorm2d(width), nn.Conv2d(width, 4, 3, padding=1, bias=False)
        def forward(self, x):
            return torch.cat([x, self.conv(F.relu(self.bn(x), inplace=True))], 1)
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), Layer(4), Layer(8), nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False), Layer(12), nn.AdaptiveMaxPool2d(1), nn.Flatten(),
                         nn.Linear(16, 3)), {"input": torch.randn(16, 3, 11, 11)}, torch.randint(0, 3, (16,))


@model("mse")
def state():
    """Buffers that the program changes, code without gradients, and parameters that are not trained."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.probe, self.unused = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(6, 8), nn.Linear(2, 2)
            self.shift = nn.Parameter(torch.randn(3), requires_grad=False)
            self.register_buffer("average", torch.zeros(8)), self.register_buffer("queue", torch.zeros(2, 8)), self.register_buffer("steps", torch.tensor(0))
        def forward(self, x):
            h = self.a(x)
            with torch.no_grad():
                gate = torch.sigmoid(self.probe(x) + h)
            if self.training:
                self.steps += 1
                self.average.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
                self.queue[1] = self.queue[0]
                self.queue[0] = h.detach()[0]
            return self.b(torch.tanh(h) * gate - self.average + self.queue.mean(0)) + self.shift
    return Net(), {"x": torch.randn(24, 6)}, torch.randn(24, 3)


@model("mse")
def places():
    """Writing by index, statistics along the batch, other orders of norms."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.conv, self.b = nn.Linear(6, 6), nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 4, 3, padding=1)), nn.Linear(6, 3)
        def forward(self, x):
            h = self.conv(self.a(x))
            order = h.argsort(-1)
            h = torch.zeros_like(h).scatter(2, order, h * 2) + torch.zeros_like(h).scatter_add(2, order // 2, h) + h.index_add(1, torch.tensor([0, 2, 2]), h[:, :3], alpha=0.5)
            h = h.index_fill(2, torch.tensor([1]), 0.3).index_copy(1, torch.tensor([3, 0]), h[:, 1:3])
            h = h + torch.diagonal(h[:, :, :4], dim1=1, dim2=2).unsqueeze(-1) + torch.diag_embed(h[:, 0])[:, :4] + torch.linalg.cross(h[..., :3], h[..., 3:]).repeat(1, 1, 2)
            h = h / (h.norm(p=3, dim=-1, keepdim=True) + h.norm(p=float("inf"), dim=-1, keepdim=True)) + torch.cdist(h, h + 0.5).mean(-1, keepdim=True) + h.median(-1, keepdim=True).values
            return self.b(h).sum(1)
    return Net(), {"x": torch.randn(12, 4, 6)}, torch.randn(12, 3)


@model("cross_entropy")
def statistics():
    """Instance norm that keeps statistics: evaluation uses them."""
    return nn.Sequential(nn.Conv2d(2, 6, 3, bias=False), nn.InstanceNorm2d(6, affine=True, track_running_stats=True), nn.LeakyReLU(0.1), nn.Conv2d(6, 5, 3, padding=1, bias=False),
                         nn.InstanceNorm2d(5, momentum=0.3, track_running_stats=True), nn.AvgPool2d(2, ceil_mode=True), nn.Flatten(), nn.Linear(80, 3)), \
        {"input": torch.randn(16, 2, 9, 9)}, torch.randint(0, 3, (16,))


@model("mse")
def twins():
    """A tower that runs twice, with batch norm in it; a token repeated for each sample; dropout in place; a branch that data choose."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.tower = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.0, inplace=True), nn.Linear(36, 6))
            self.token, self.head, self.gate = nn.Parameter(torch.randn(1, 1, 6)), nn.Linear(6, 2), nn.Parameter(torch.tensor(0.4))
        def forward(self, a, b):
            h = torch.cat([self.token.repeat(a.shape[0], 2, 1), torch.stack([self.tower(a), self.tower(b)], 1)], 1)
            h = torch.cond(self.gate > 0.2, lambda x: x.tanh(), lambda x: x.sin() * 3, (h,))
            return self.head((h[:, 2] - h[:, 3]).abs() + h[:, 0] * h[:, 1])
    return Net(), {"a": torch.randn(24, 1, 8, 8), "b": torch.randn(24, 1, 8, 8)}, torch.randn(24, 2)
