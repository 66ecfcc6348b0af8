#!/usr/bin/env python3
"""Makes tests/models/data/pytorch/MODEL/lora: an adapter as peft writes it, with terms that are not zero, and beside it what ten steps of
torch.optim.AdamW make of it: losses, gradient norms, tensors, and the logits after them. Needs peft 0.21, torch 2.13, transformers 5.

    tests/models/reference/make_lora_reference.py"""
import json, pathlib, shutil
import numpy, torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

DATA = pathlib.Path(__file__).parent.parent / "data" / "pytorch"
BATCH, STEPS = 4, 10
TRAINING = {"lr": 3e-3, "weight_decay": 0.01, "betas": (0.9, 0.95), "eps": 1e-4}
# Linears that tensor-parallel ranks divide by outputs and by inputs; another rank in one place.
ADAPTERS = {
    "gpt2_even": dict(r=4, lora_alpha=12, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True),
    "llama_even": dict(r=3, lora_alpha=6, target_modules=["q_proj", "v_proj", "o_proj", "down_proj"], use_rslora=True,
                       rank_pattern={"model.layers.1.self_attn.o_proj": 5}),
}


def loss_of(model, tokens):
    logits = model(tokens[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()), logits


def make(name, options, tokens):
    torch.manual_seed(len(name))
    out = DATA / name / "lora"
    shutil.rmtree(out, ignore_errors=True)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(DATA / name), LoraConfig(task_type="CAUSAL_LM", **options)).eval()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(out)
    (out / "README.md").unlink(missing_ok=True)
    config = json.loads((out / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = name
    (out / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
    with torch.no_grad():
        loss, first = loss_of(model, tokens)
    optimizer = torch.optim.AdamW(trained, **TRAINING)
    losses, norms = [], []
    for step in range(STEPS):
        batch = tokens[[(step * BATCH + i) % len(tokens) for i in range(BATCH)]]
        optimizer.zero_grad()
        step_loss, _ = loss_of(model, batch)
        step_loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(trained, 1.0).item())
        optimizer.step()
        losses.append(step_loss.item())
    with torch.no_grad():
        _, last = loss_of(model, tokens)
    terms = {key: tensor.detach().clone().contiguous() for key, tensor in get_peft_model_state_dict(model).items()}
    save_file({"logits": first.contiguous(), "logits_after": last.contiguous(), **terms}, out / "expected.safetensors")
    (out / "expected.json").write_text(json.dumps({"loss": loss.item(), "losses": losses, "norms": norms}) + "\n")


tokens = torch.tensor(numpy.load(DATA / "tokens.npy"))
for one, adapter in ADAPTERS.items():
    make(one, adapter, tokens)
