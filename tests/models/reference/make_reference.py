#!/usr/bin/env python3
"""Makes tests/models/data: tokenizers with the ids that Hugging Face gives, model folders that transformers saved, the rotary
frequencies it computes, and .npy files that NumPy wrote. Needs torch, transformers, tokenizers, numpy; run by hand.

  tests/models/reference/make_reference.py
"""
import json
import os
import random
import shutil

import numpy as np
import tokenizers
import torch
import transformers
from compare_tokenizers import text
from tokenizer_zoo import zoo

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
CHOSEN = ["gpt2", "llama3", "qwen2", "falcon", "nfkc_lower", "nfd_strip_accents", "whitespace_split", "llama2", "llama2_metaspace", "metaspace_never", "clip"]


def make_tokenizers():
    folder = os.path.join(DATA, "tokenizers")
    os.makedirs(folder)
    for name, tokenizer in zoo():
        if name not in CHOSEN:
            continue
        data = json.loads(tokenizer.to_str())
        if name in ("llama3", "llama2"):  # merges as older files have them
            data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(data))
        with open(os.path.join(folder, name + ".json"), "w") as f:
            json.dump(data, f, ensure_ascii=False, separators=(",", ":"))
        rng = random.Random(name)
        texts = ["", " ", "Hello world", "a\r\n\r\n  b", " double   double  x", "alone aloneé alone1 alone", "x <|left|> <|right|> y<|both|> z"]
        texts += [text(rng) for _ in range(40)]
        with open(os.path.join(folder, name + ".jsonl"), "w") as f:
            for t in texts:
                ids = tokenizer.encode(t).ids
                entry = {"text": t, "ids": ids, "plain": tokenizer.encode(t, add_special_tokens=False).ids,
                         "decoded": tokenizer.decode(ids), "all": tokenizer.decode(ids, skip_special_tokens=False)}
                f.write(json.dumps(entry, separators=(",", ":")) + "\n")


def save(name, model, **how):
    folder = os.path.join(DATA, name)
    model.save_pretrained(folder, **how)
    # A few values of every tensor, to be found again.
    values = {k: [list(v.shape), v.flatten()[:4].float().tolist()] for k, v in model.state_dict().items() if not (k == "lm_head.weight" and model.config.tie_word_embeddings)}
    with open(os.path.join(folder, "values.json"), "w") as f:
        json.dump(values, f)


def make_models():
    torch.manual_seed(0)
    gpt2 = transformers.GPT2Config(vocab_size=37, n_positions=11, n_embd=12, n_layer=2, n_head=3, n_inner=20, activation_function="gelu",
                                   scale_attn_by_inverse_layer_idx=True, bos_token_id=1, eos_token_id=2)
    save("gpt2_tied_f32", transformers.GPT2LMHeadModel(gpt2))
    gpt2.tie_word_embeddings = False
    save("gpt2_untied_f16", transformers.GPT2LMHeadModel(gpt2).half())
    llama = transformers.LlamaConfig(vocab_size=41, hidden_size=12, intermediate_size=18, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
                                     head_dim=6, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-5, max_position_embeddings=64, eos_token_id=[2, 5],
                                     rope_parameters={"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
                                                      "high_freq_factor": 4.0, "original_max_position_embeddings": 32})
    save("llama_bf16_sharded", transformers.LlamaForCausalLM(llama).to(torch.bfloat16), max_shard_size="3KB")


def make_rope():
    cases = []
    for rope, old in ((None, {}), ({"rope_type": "linear", "factor": 2.5}, {"type": "linear", "factor": 2.5}), ({"rope_type": "dynamic", "factor": 4.0}, {"type": "dynamic", "factor": 4.0}),
                      ({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 128},) * 2):
        for theta, head_dim, length in ((10000.0, 16, 64), (500000.0, 64, 600)):
            base = dict(vocab_size=8, hidden_size=4 * head_dim, num_attention_heads=4, num_hidden_layers=1, intermediate_size=4, max_position_embeddings=256)
            config = transformers.LlamaConfig(**base, rope_parameters={**(rope or {"rope_type": "default"}), "rope_theta": theta})
            module = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config)
            module(torch.zeros(1), torch.arange(length)[None])
            written = {**base, "model_type": "llama", "rope_theta": theta, "rope_scaling": old or None}
            cases.append({"new": json.dumps({**json.loads(config.to_json_string()), "model_type": "llama"}), "old": json.dumps(written), "length": length,
                          "frequencies": module.inv_freq.double().tolist()})
    with open(os.path.join(DATA, "rope.json"), "w") as f:
        json.dump(cases, f)


def make_npy():
    folder = os.path.join(DATA, "npy")
    os.makedirs(folder)
    values = np.arange(24)
    for kind in ("u1", "i1", "<u2", ">u2", "<i4", ">i4", "<i8", ">u8"):
        np.save(os.path.join(folder, kind.replace("<", "l").replace(">", "b") + ".npy"), values.astype(kind))
    np.save(os.path.join(folder, "rows.npy"), np.array([[1, 2, 3, -100, -100], [5, 6, 7, 8, 9]]))
    np.save(os.path.join(folder, "fortran.npy"), np.asfortranarray(values.reshape(4, 6)))
    np.save(os.path.join(folder, "float.npy"), values.astype("f4"))
    np.save(os.path.join(folder, "cube.npy"), values.reshape(2, 3, 4))
    for version in ((2, 0), (3, 0)):
        with open(os.path.join(folder, f"version{version[0]}.npy"), "wb") as f:
            np.lib.format.write_array(f, values, version=version)


if __name__ == "__main__":
    shutil.rmtree(DATA, ignore_errors=True)
    os.makedirs(DATA)
    make_tokenizers()
    make_models()
    make_rope()
    make_npy()
