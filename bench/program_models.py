"""The models of bench/programs.py: each a function that gives a module, an input, targets and the dimension of the classes."""
import torch, torch.nn as nn, torch.nn.functional as F


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


# Where torch.distributed.pipelining cuts each in two.
SPLITS = {"resnet": "inner.resnet.encoder.stages.2", "vit": "inner.vit.layers.6", "bert": "inner.bert.encoder.layer.2", "unet": "e2", "gpt2": "inner.transformer.h.4"}
