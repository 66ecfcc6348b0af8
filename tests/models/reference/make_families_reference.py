#!/usr/bin/env python3
"""Makes tests/models/data/families.json: for a small model of every family its config.json as transformers writes it, the logits of one
sequence, a greedy continuation, and loss, gradient norm and sums over the weights of ten steps of torch.optim.AdamW. Weights are not
stored: both sides make them from a formula (weights_of here, formula_values in tests/runs/test_families.cpp).
Made with torch 2.13, transformers 5.22, numpy.

    tests/models/reference/make_families_reference.py"""
import json, pathlib
import numpy, torch
from transformers import AutoConfig, AutoModelForCausalLM

OUT = pathlib.Path(__file__).parent.parent / "data" / "families.json"
VOCABULARY, SEQUENCES, LENGTH, BATCH, STEPS, PROMPT, NEW = 37, 8, 14, 4, 10, 5, 12
# epsilon: the gradient of key biases is zero but for rounding, and AdamW with 1e-8 would make steps of that noise.
TRAINING = {"lr": 3e-3, "weight_decay": 0.01, "betas": (0.9, 0.95), "eps": 1e-4}
SIZES = {"vocab_size": VOCABULARY, "hidden_size": 24, "intermediate_size": 26, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16}
LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.1], "long_factor": [2.0, 3.5]}
CASES = {
    "mistral": ("mistral", {"head_dim": 8, "sliding_window": 5}),
    "mistral_yarn": ("mistral", {"sliding_window": None, "tie_word_embeddings": True, "rope_parameters": YARN}),
    "qwen2": ("qwen2", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}),
    "qwen2_tied": ("qwen2", {"tie_word_embeddings": True, "pad_token_id": 3}),
    "qwen3": ("qwen3", {"head_dim": 8}),
    "qwen3_tied": ("qwen3", {"head_dim": 6, "tie_word_embeddings": True, "attention_bias": True}),
    "smollm3": ("smollm3", {"no_rope_layer_interval": 2}),
    "granite": ("granite", {"embedding_multiplier": 6.0, "residual_multiplier": 0.4, "attention_multiplier": 0.3, "logits_scaling": 3.0}),
    "olmo2": ("olmo2", {}),
    "gpt_neox": ("gpt_neox", {"hidden_size": 32, "use_parallel_residual": True}),
    "gpt_neox_tied": ("gpt_neox", {"hidden_size": 32, "use_parallel_residual": False, "tie_word_embeddings": True,
                                   "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}}),
    "gemma2": ("gemma2", {"head_dim": 8, "query_pre_attn_scalar": 10, "sliding_window": 4, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 1.5}),
    "gemma3_text": ("gemma3_text", {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 4, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
                                    "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
                                                        "full_attention": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}}}),
    "phi3": ("phi3", {"sliding_window": 6}),
    # Short factors up to 9 tokens, long ones above: the continuation crosses that.
    "phi3_longrope": ("phi3", {"hidden_size": 32, "original_max_position_embeddings": 9, "rope_parameters": {**LONGROPE, "partial_rotary_factor": 0.5}}),
}


def uniform(name, count):
    """In [-0.5, 0.5): splitmix64 of the name's FNV-1a hash."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x100000001B3) % 2**64
    with numpy.errstate(over="ignore"):
        z = numpy.uint64(seed) + numpy.arange(1, count + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z = z ^ (z >> numpy.uint64(31))
    return (z >> numpy.uint64(40)).astype(numpy.float64) / 2.0**24 - 0.5


def stored(model):
    """Parameters by the names of a saved file, a tied head left out."""
    tied = model.config.tie_word_embeddings
    neox = model.config.model_type == "gpt_neox"
    return {("embed_out.weight" if neox and n == "lm_head.weight" else n): p for n, p in model.named_parameters() if not (tied and n == "lm_head.weight")}


def set_weights(model):
    around = 0.0 if "gemma" in model.config.model_type else 1.0  # of norms
    for name, parameter in stored(model).items():
        values = uniform(name, parameter.numel())
        values = around + 0.4 * values if "norm" in name and name.endswith("weight") else (0.4 if name.endswith("bias") else 0.8) * values
        parameter.data = torch.tensor(values.astype(numpy.float32)).reshape(parameter.shape)


def loss_of(model, tokens):
    logits = model(tokens[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()), logits


def make(family, fields, tokens):
    fields = {**SIZES, **fields}
    if family == "gpt_neox":
        del fields["num_key_value_heads"]
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **fields), attn_implementation="eager").eval()
    set_weights(model)
    model.tie_weights()
    with torch.no_grad():
        loss, logits = loss_of(model, tokens)
        prompt = tokens[:1, :PROMPT]
        greedy = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=NEW, do_sample=False, eos_token_id=None, pad_token_id=0)[0, PROMPT:]
    optimizer = torch.optim.AdamW(model.parameters(), **TRAINING)
    losses, norms = [], []
    model.train()
    for step in range(STEPS):
        batch = tokens[[(step * BATCH + i) % SEQUENCES for i in range(BATCH)]]
        optimizer.zero_grad()
        step_loss, _ = loss_of(model, batch)
        step_loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        losses.append(step_loss.item())
    products = {n: float(numpy.dot(p.detach().double().numpy().ravel(), uniform("check " + n, p.numel()))) for n, p in stored(model).items()}
    return {"config": json.loads(model.config.to_json_string(use_diff=False)) | {"model_type": family}, "loss": loss.item(),
            "logits": [float(f"{x:.7g}") for x in logits[0].flatten().tolist()], "greedy": greedy.tolist(), "losses": losses, "norms": norms, "products": products}


def main():
    torch.set_num_threads(1)  # small models: the same bits on every machine
    tokens = numpy.random.default_rng(0).integers(0, VOCABULARY, size=(SEQUENCES, LENGTH))
    cases = {name: make(*case, torch.tensor(tokens)) for name, case in CASES.items()}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items())
    OUT.write_text("{" + f'"tokens": {json.dumps(tokens.tolist())},\n"cases": {{\n{lines}\n}}}}\n')


main()
