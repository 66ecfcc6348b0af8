#!/usr/bin/env python3
"""Makes tests/models/data/pytorch: small random models of both families in Hugging Face's layout, tokens, the logits that transformers
gives, and losses, gradient norms and weights of ten steps of torch.optim.AdamW, in f32 and (losses and norms) under bf16 autocast. Needs torch 2.13, transformers 5, safetensors, numpy.

    tests/models/reference/make_training_reference.py"""
import json, pathlib
import numpy, torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

OUT = pathlib.Path(__file__).parent.parent / "data" / "pytorch"
VOCABULARY, SEQUENCES, LENGTH, BATCH, STEPS = 37, 12, 14, 4, 10
# epsilon: the gradient of key biases is zero but for rounding, and AdamW with 1e-8 would make steps of that noise.
TRAINING = {"lr": 3e-3, "weight_decay": 0.01, "betas": (0.9, 0.95), "eps": 1e-4}

LLAMA3 = {"rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
NO_DROPOUT = {"embd_pdrop": 0, "resid_pdrop": 0, "attn_pdrop": 0}
MODELS = {
    "gpt2_tied": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_positions=17, n_embd=20, n_layer=3, n_head=4, **NO_DROPOUT)),
    "gpt2_untied": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_positions=17, n_embd=18, n_layer=3, n_head=3, n_inner=25, activation_function="gelu",
                                                     tie_word_embeddings=False, scale_attn_by_inverse_layer_idx=True, **NO_DROPOUT)),
    "llama_grouped": lambda: LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, hidden_size=20, intermediate_size=27, num_hidden_layers=3, num_attention_heads=4,
                                                         num_key_value_heads=2, head_dim=6, max_position_embeddings=32, attention_bias=True, rope_parameters=LLAMA3)),
    "llama_tied": lambda: LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, hidden_size=20, intermediate_size=27, num_hidden_layers=3, num_attention_heads=5,
                                                      num_key_value_heads=5, max_position_embeddings=32, tie_word_embeddings=True)),
    # Heads and inner widths that two tensor-parallel ranks can divide; biases wherever the families have them.
    "gpt2_even": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_positions=17, n_embd=20, n_layer=3, n_head=2, n_inner=26, tie_word_embeddings=False,
                                                   **NO_DROPOUT)),
    "llama_even": lambda: LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, hidden_size=20, intermediate_size=26, num_hidden_layers=3, num_attention_heads=4,
                                                      num_key_value_heads=2, head_dim=6, max_position_embeddings=32, attention_bias=True, mlp_bias=True,
                                                      tie_word_embeddings=False)),
}


def loss_of(model, tokens):
    logits = model(tokens[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()), logits


def weights_of(model):
    tied = model.config.tie_word_embeddings
    return {name: tensor.clone() for name, tensor in model.state_dict().items() if not (tied and name == "lm_head.weight")}


def make(name, tokens):
    torch.manual_seed(len(name))
    model = MODELS[name]().eval()
    for parameter in model.parameters():  # biases and scales that matter
        parameter.data += 0.05 * torch.randn_like(parameter)
    model.save_pretrained(OUT / name)
    (OUT / name / "generation_config.json").unlink(missing_ok=True)
    with torch.no_grad():
        loss, logits = loss_of(model, tokens)
    optimizer = torch.optim.AdamW(model.parameters(), **TRAINING)
    losses, norms = [], []
    for step in range(STEPS):
        batch = tokens[[(step * BATCH + i) % SEQUENCES for i in range(BATCH)]]
        optimizer.zero_grad()
        step_loss, _ = loss_of(model, batch)
        step_loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        losses.append(step_loss.item())
    save_file({"logits": logits.contiguous(), **weights_of(model)}, OUT / name / "expected.safetensors")
    (OUT / name / "expected.json").write_text(json.dumps({"loss": loss.item(), "losses": losses, "norms": norms}) + "\n")


# bf16 as torch.autocast does it on CPUs, from the same weights: products in bf16, weights, sums and what follows in f32.
def make_bf16(name, tokens):
    model = AutoModelForCausalLM.from_pretrained(OUT / name, dtype=torch.float32).eval()
    optimizer = torch.optim.AdamW(model.parameters(), **TRAINING)
    losses, norms = [], []
    for step in range(STEPS):
        batch = tokens[[(step * BATCH + i) % SEQUENCES for i in range(BATCH)]]
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(batch[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        losses.append(loss.item())
    (OUT / name / "expected_bf16.json").write_text(json.dumps({"losses": losses, "norms": norms}) + "\n")


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    tokens = numpy.random.default_rng(0).integers(0, VOCABULARY, size=(SEQUENCES, LENGTH)).astype(numpy.int64)
    numpy.save(OUT / "tokens.npy", tokens)
    for name in MODELS:
        make(name, torch.tensor(tokens))
        make_bf16(name, torch.tensor(tokens))


if __name__ == "__main__": main()
