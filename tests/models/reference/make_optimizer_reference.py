#!/usr/bin/env python3
"""Makes tests/models/data/pytorch/optimizers.json: losses and gradient norms of ten steps of torch.optim.Muon (AdamW for the rest), Adafactor and
SGD on models of that folder, in f32. Needs torch 2.13, transformers 5, numpy.

    tests/models/reference/make_optimizer_reference.py"""
import json
import numpy, torch
from transformers import AutoModelForCausalLM
from make_training_reference import BATCH, OUT, SEQUENCES, STEPS, loss_of

torch.set_num_threads(1)


def is_hidden(name): return name.endswith(".weight") and not any(part in name for part in ("embed", "wte", "wpe", "lm_head", "norm", "ln_"))


OPTIMIZERS = {
    "muon": lambda model: [torch.optim.Muon([p for n, p in model.named_parameters() if is_hidden(n)], lr=1e-2, weight_decay=0.01),
                           torch.optim.AdamW([p for n, p in model.named_parameters() if not is_hidden(n)], lr=1e-2, weight_decay=0.01, eps=1e-4)],
    "adafactor": lambda model: [torch.optim.Adafactor(model.parameters(), lr=1e-2, weight_decay=0.01)],
    "sgd": lambda model: [torch.optim.SGD(model.parameters(), lr=1e-2, weight_decay=0.01, momentum=0.9)],
}


def main():
    tokens = torch.tensor(numpy.load(OUT / "tokens.npy").astype("int64"))
    result = {}
    for name in ("gpt2_even", "llama_even"):
        for kind, make in OPTIMIZERS.items():
            model = AutoModelForCausalLM.from_pretrained(OUT / name, dtype=torch.float32, attn_implementation="eager").eval()
            optimizers, losses, norms = make(model), [], []
            for step in range(STEPS):
                for optimizer in optimizers: optimizer.zero_grad()
                loss, _ = loss_of(model, tokens[[(step * BATCH + i) % SEQUENCES for i in range(BATCH)]])
                loss.backward()
                norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1e30).item())
                for optimizer in optimizers: optimizer.step()
                losses.append(loss.item())
            result.setdefault(name, {})[kind] = {"losses": losses, "norms": norms}
    (OUT / "optimizers.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__": main()
