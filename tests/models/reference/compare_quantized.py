"""Folders in 4 bits against transformers: writes a small Llama and GPT-2 as GPTQ (both versions, with and without act order) and AWQ would, and the
same dequantized weights as a plain folder, then compares `ppengine eval --logits` on the first with transformers on the second.

    python tests/models/reference/compare_quantized.py build/bin/ppengine
"""
import json, os, shutil, subprocess, sys, tempfile

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def words(nibbles, order=range(8)):
    """[..., 8k] numbers below 16 -> [..., k] int32, the first of each eight (in this order) lowest."""
    eights = nibbles.reshape(*nibbles.shape[:-1], -1, 8).astype(np.uint32)
    packed = np.zeros(eights.shape[:-1], np.uint32)
    for place, which in enumerate(order):
        packed |= eights[..., which] << np.uint32(4 * place)
    return torch.from_numpy(packed.view(np.int32).copy())


def quantize(weight, group, rng, act_order):
    """[in, out] f32 -> q, zeros, scales (f16), group of each input, and what they are worth in f32."""
    inputs, outputs = weight.shape
    idx = np.arange(inputs) // group
    if act_order:
        rng.shuffle(idx)
    groups = idx.max() + 1
    scales, zeros = np.zeros((groups, outputs), np.float16), np.zeros((groups, outputs), np.int64)
    for g in range(groups):
        rows = weight[idx == g]
        low, high = np.minimum(rows.min(0), 0), np.maximum(rows.max(0), 0)
        scales[g] = ((high - low) / 15).astype(np.float16)
        zeros[g] = np.clip(np.round(-low / scales[g].astype(np.float32)), 1, 15)
    q = np.clip(np.round(weight / scales[idx].astype(np.float32)) + zeros[idx], 0, 15).astype(np.int64)
    return q, zeros, scales, idx.astype(np.int32), scales[idx].astype(np.float32) * (q - zeros[idx]).astype(np.float32)


def write(folder, plain, kind, group, transposed):
    """The folder `plain` in 4 bits, and beside it the dequantized one."""
    rng = np.random.default_rng(0)
    shutil.copytree(plain, folder)
    shutil.copytree(plain, folder + "-plain")
    tensors, worth = load_file(f"{plain}/model.safetensors"), {}
    stored = {}
    for name, tensor in tensors.items():
        if tensor.dim() != 2 or "emb" in name or "wte" in name or "wpe" in name or "lm_head" in name:
            stored[name] = worth[name] = tensor
            continue
        weight = tensor.float().numpy() if transposed else tensor.float().numpy().T
        q, zeros, scales, idx, values = quantize(weight, group, rng, kind == "gptq-act-order")
        worth[name] = torch.from_numpy(values if transposed else np.ascontiguousarray(values.T))
        linear = name.removesuffix(".weight")
        if kind == "awq":
            stored[linear + ".qweight"], stored[linear + ".qzeros"] = words(q, AWQ_ORDER), words(zeros, AWQ_ORDER)
        else:
            stored[linear + ".qweight"] = words(np.ascontiguousarray(q.T)).T.contiguous()
            stored[linear + ".qzeros"] = words(zeros if kind == "gptq-v2" else zeros - 1)
            stored[linear + ".g_idx"] = torch.from_numpy(idx)
        stored[linear + ".scales"] = torch.from_numpy(scales)
    save_file(stored, f"{folder}/model.safetensors", {"format": "pt"})
    save_file(worth, f"{folder}-plain/model.safetensors", {"format": "pt"})
    config = json.load(open(f"{folder}/config.json"))
    config["quantization_config"] = {"quant_method": kind.split("-")[0], "bits": 4, "group_size": group}
    if kind == "awq":
        config["quantization_config"] |= {"version": "gemm", "zero_point": True}
    elif kind == "gptq-v2":
        config["quantization_config"]["checkpoint_format"] = "gptq_v2"
    json.dump(config, open(f"{folder}/config.json", "w"))


def main():
    program, work = sys.argv[1], tempfile.mkdtemp()
    torch.manual_seed(0)
    models = {
        "llama": LlamaForCausalLM(LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=8,
                                              num_key_value_heads=4, vocab_size=320, max_position_embeddings=64)),
        "gpt2": GPT2LMHeadModel(GPT2Config(n_embd=128, n_layer=2, n_head=4, vocab_size=320, n_positions=64)),
    }
    tokens = np.random.default_rng(1).integers(0, 320, (3, 33)).astype(np.int32)
    np.save(f"{work}/data.npy", tokens)
    failed = False
    for name, model in models.items():
        model.save_pretrained(f"{work}/{name}")
        for kind in ["gptq", "gptq-v2", "gptq-act-order", "awq"]:
            folder = f"{work}/{name}-{kind}"
            write(folder, f"{work}/{name}", kind, 128, name == "gpt2")
            reference = type(model).from_pretrained(folder + "-plain").eval()
            with torch.no_grad():
                expected = reference(torch.from_numpy(tokens[:, :-1].astype(np.int64))).logits.float().numpy()
            for weights in ["f32", "int4"]:
                out = f"{folder}/{weights}.safetensors"
                run = subprocess.run([program, "eval", "--model", folder, "--data", f"{work}/data.npy", "--logits", out, "--json"]
                                     + (["--weights", weights] if weights != "f32" else []), capture_output=True, text=True)
                if run.returncode:
                    print(name, kind, weights, "FAILED", run.stderr.strip())
                    failed = True
                    continue
                got = load_file(out)["logits"].numpy()
                worst = np.abs(got - expected).max() / np.abs(expected).max()
                print(f"{name} {kind} {weights}: largest difference of the logits {worst:.2e} of the largest")
                failed |= not (weights != "f32" or worst < 1e-5)
    shutil.rmtree(work)
    sys.exit(failed)


main()
