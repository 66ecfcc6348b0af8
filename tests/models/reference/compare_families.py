#!/usr/bin/env python3
"""Compares ppengine with transformers on small models of every family with odd configurations, drawn at random: logits (1e-4 of the largest),
a greedy continuation, ten steps of AdamW (2e-4), the saved folder loaded in transformers, and the same in pipelines, tensor and data parallel.
Prints a line per model and what differs; ends with 1 where something does. Needs torch, transformers 5, safetensors, numpy.

    tests/models/reference/compare_families.py [--per-family 4] [--seed 0] [--layouts pp2,tp2,...] [--long] [FAMILY ...]"""
import argparse, json, pathlib, random, subprocess, sys, tempfile, time
import numpy, torch, transformers
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

BINARY = pathlib.Path(__file__).resolve().parents[3] / "build" / "bin" / "ppengine"
SEQUENCES, LENGTH, BATCH, STEPS, PROMPT, NEW, POSITIONS = 8, 24, 4, 10, 9, 20, 64
LONG = {"LENGTH": 700, "PROMPT": 620, "NEW": 40, "POSITIONS": 1024}  # windowed layers wrap around in their caches
TRAINING = ["--lr", "3e-3", "--weight-decay", "0.01", "--betas", "0.9,0.95", "--eps", "1e-4", "--grad-clip", "1"]
LAYOUTS = {"pp2": ["--pp", "2", "--microbatches", "2"], "pp4": ["--pp", "4", "--microbatches", "4"], "tp2": ["--tp", "2", "--microbatches", "1"],
           "tp2sp": ["--tp", "2", "--sequence-parallel", "--microbatches", "1"], "dp2shard": ["--dp", "2", "--shard", "--microbatches", "1"],
           "zbv": ["--pp", "2", "--schedule", "zbvzerobubble", "--microbatches", "4"]}


def rope_of(pick, size, kinds, positions):
    kind = pick(kinds)
    pairs = size // 2
    base = {"rope_type": kind, "rope_theta": pick([100.0, 10000.0, 500000.0])}
    if kind == "linear": base["factor"] = pick([2.0, 4.0])
    if kind == "dynamic": base["factor"] = 2.0
    if kind == "llama3": base |= {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
    if kind == "yarn": base |= {"factor": 4.0, "original_max_position_embeddings": 16} | pick([{}, {"beta_fast": 20.0, "beta_slow": 2.0}, {"attention_factor": 1.3}, {"mscale": 0.7, "mscale_all_dim": 1.2}, {"truncate": False}])
    if kind == "longrope":
        base |= {"short_factor": [round(1 + 0.1 * i, 3) for i in range(pairs)], "long_factor": [round(1.5 + 0.4 * i, 3) for i in range(pairs)],
                 "original_max_position_embeddings": pick([12, 64])}
    return base


def draw(family, seed):
    """A configuration; and how its files are written."""
    random_ = random.Random(f"{family} {seed}")
    pick = random_.choice
    heads = pick([2, 4, 6])
    width = heads * pick([8, 10, 16])
    kv = pick([k for k in (1, 2, heads) if heads % k == 0])
    positions = POSITIONS
    c = {"vocab_size": pick([37, 64, 101]), "hidden_size": width, "intermediate_size": pick([26, 40, 64]), "num_hidden_layers": 4, "num_attention_heads": heads,
         "num_key_value_heads": kv, "max_position_embeddings": positions, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": pick([None, 3]),
         "tie_word_embeddings": pick([True, False]), "initializer_range": 0.2}
    how = {"store": pick(["float32", "float32", "bfloat16", "float16"]), "shards": pick([False, True]), "old": pick([False, True]), "dtype_key": pick(["dtype", "torch_dtype", None])}
    head = width // heads
    if family not in ("gpt2", "gpt_neox", "olmo2", "granite", "phi3", "smollm3"):
        head = pick([head, 8, 12, 16])
        c["head_dim"] = head
    every = ["default", "default", "linear", "dynamic", "llama3", "yarn", "longrope"]
    if family == "gpt2":
        c = {"vocab_size": c["vocab_size"], "n_positions": positions, "n_embd": width, "n_layer": 4, "n_head": heads, "n_inner": pick([None, 50]),
             "activation_function": pick(["gelu_new", "gelu", "relu", "silu", "gelu_pytorch_tanh"]), "layer_norm_epsilon": pick([1e-5, 1e-3]), "resid_pdrop": 0.0,
             "embd_pdrop": 0.0, "attn_pdrop": 0.0, "scale_attn_weights": pick([True, True, False]), "scale_attn_by_inverse_layer_idx": pick([False, True]),
             "reorder_and_upcast_attn": False, "tie_word_embeddings": c["tie_word_embeddings"], "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.2}
        return c, how
    if family == "gpt_neox":
        del c["num_key_value_heads"]
        part = pick([0.25, 0.5, 1.0])
        c |= {"use_parallel_residual": pick([True, False]), "hidden_act": pick(["gelu", "gelu_new", "relu"]), "attention_bias": pick([True, True, False]), "layer_norm_eps": 1e-4,
              "rope_parameters": rope_of(pick, int(head * part), ["default", "default", "linear", "dynamic", "yarn"], positions) | {"partial_rotary_factor": part}}
        return c, how
    c["rms_norm_eps"] = pick([1e-6, 1e-5, 1e-3])
    c["rope_parameters"] = rope_of(pick, head, every, positions)
    act = pick(["silu", "silu", "gelu", "gelu_pytorch_tanh", "relu"])
    if family.startswith("gemma"):
        c["hidden_activation"] = pick(["gelu_pytorch_tanh", "gelu", "silu"])
    elif family != "phi3":
        c["hidden_act"] = act
    types = [pick(["sliding_attention", "full_attention"]) for _ in range(4)]
    if family in ("llama", "granite"): c |= {"attention_bias": pick([True, False]), "mlp_bias": pick([True, False])}
    if family == "mistral": c["sliding_window"] = pick([None, 2, 5, 100])
    if family in ("qwen2", "qwen3"):
        c |= pick([{"use_sliding_window": False, "sliding_window": 4}, {"use_sliding_window": True, "sliding_window": pick([3, 7]), "max_window_layers": pick([0, 1, 2])},
                   {"use_sliding_window": True, "sliding_window": 5, "layer_types": types}])
    if family in ("qwen3", "olmo2"): c["attention_bias"] = pick([True, False])
    if family == "qwen2" and pick([True, False]): del c["head_dim"]; c["rope_parameters"] = rope_of(pick, width // heads, every, positions)
    if family == "smollm3":
        c |= {"attention_bias": pick([True, False]), "mlp_bias": pick([True, False])}
        c |= pick([{"no_rope_layer_interval": pick([2, 3, 4])}, {"no_rope_layers": [pick([0, 1]) for _ in range(4)]}])
        if pick([True, False, False]): c |= {"use_sliding_window": True, "sliding_window": 5} | pick([{}, {"layer_types": types}])
    if family == "granite": c |= {"embedding_multiplier": pick([1.0, 6.0]), "residual_multiplier": pick([1.0, 0.4]), "attention_multiplier": pick([0.1, 0.3, 1.0]), "logits_scaling": pick([1.0, 3.0])}
    if family == "gemma2":
        c |= {"query_pre_attn_scalar": pick([8, 10, 24]), "sliding_window": pick([3, 7, 100]), "attn_logit_softcapping": pick([None, 2.0, 50.0]),
              "final_logit_softcapping": pick([None, 1.5, 30.0]), "attention_bias": pick([True, False])} | pick([{}, {"layer_types": types}])
    if family == "gemma3_text":
        c |= {"query_pre_attn_scalar": pick([8, 10, 24]), "sliding_window": pick([3, 7, 100]), "final_logit_softcapping": pick([None, 2.0]), "attention_bias": pick([True, False])}
        c |= pick([{}, {"layer_types": types}, {"sliding_window_pattern": 2}])
        c["rope_parameters"] = {"full_attention": rope_of(pick, head, ["default", "linear", "yarn", "llama3"], positions), "sliding_attention": {"rope_type": "default", "rope_theta": pick([100.0, 10000.0])}}
    if family == "phi3":
        part = pick([0.5, 1.0])
        c |= {"sliding_window": pick([None, 6]), "partial_rotary_factor": part, "original_max_position_embeddings": pick([12, 64])}
        c["rope_parameters"] = rope_of(pick, int(head * part), ["default", "longrope"], positions) | {"partial_rotary_factor": part}
        c["rope_parameters"].pop("original_max_position_embeddings", None)
    return c, how


def older(family, config):
    """config.json as before transformers 5."""
    rope = config.pop("rope_parameters", None)
    if family == "gemma3_text" and rope:
        config["rope_theta"], config["rope_local_base_freq"] = rope["full_attention"].pop("rope_theta"), rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    elif rope:
        config["rotary_emb_base" if family == "gpt_neox" else "rope_theta"] = rope.pop("rope_theta")
    part = rope.pop("partial_rotary_factor", None) if rope else None
    if part is not None: config["rotary_pct" if family == "gpt_neox" else "partial_rotary_factor"] = part
    if rope and rope["rope_type"] != "default": config["rope_scaling"] = rope
    return config


def randomize(model, seed):
    generator = torch.Generator().manual_seed(seed)
    gemma = "gemma" in model.config.model_type
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name or ".ln_" in name: parameter.data = (0.0 if gemma or name.endswith("bias") else 1.0) + 0.2 * noise
        elif name.endswith("bias"): parameter.data = 0.2 * noise
        else: parameter.data = noise * (0.35 if parameter.dim() == 2 and "embed" not in name and "wte" not in name else 0.6) / max(1.0, (parameter.shape[-1] / 16) ** 0.5)


def run(*arguments, allow=()):
    done = subprocess.run([str(BINARY), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0: raise RuntimeError(f"{' '.join(map(str, arguments[:1]))}: exit {done.returncode}: {done.stderr.strip()[-400:]}")
    return done.stdout


def far(a, b):
    """Largest difference over the largest value; infinite where one is not finite."""
    a, b = torch.as_tensor(a).double(), torch.as_tensor(b).double()
    if a.shape != b.shape or not bool(torch.isfinite(a).all()): return float("inf")
    return float((a - b).abs().max() / b.abs().max().clamp_min(1e-12))


def loss_of(model, tokens):
    logits = model(tokens[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()), logits


def greedy_without_cache(model, prompt):
    ids = prompt.clone()
    for _ in range(NEW):
        ids = torch.cat([ids, model(ids, use_cache=False).logits[:, -1:].argmax(-1)], 1)
    return ids[0, prompt.shape[1]:].tolist()


def train_torch(model, tokens):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01, betas=(0.9, 0.95), eps=1e-4)
    losses, norms = [], []
    for step in range(STEPS):
        batch = tokens[[(step * BATCH + i) % SEQUENCES for i in range(BATCH)]]
        optimizer.zero_grad()
        loss, _ = loss_of(model, batch)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms


class Report:
    def __init__(self): self.worst, self.wrong = {}, []
    def check(self, what, value, limit):
        kind = what.split(" ")[0]
        self.worst[kind] = max(self.worst.get(kind, 0.0), value)
        if not value <= limit: self.wrong.append(f"{what} {value:.2g}")
    def attempt(self, what, action):
        try: return action()
        except Exception as error: self.wrong.append(f"{what}: {str(error)[:500]}")


def compare(family, seed, folder, layouts):
    fields, how = draw(family, seed)
    report = Report()
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **json.loads(json.dumps(fields))), attn_implementation="eager")
    randomize(model, seed)
    model.tie_weights()
    model.to(getattr(torch, how["store"])).save_pretrained(folder, max_shard_size="20KB" if how["shards"] else "5GB")
    config = json.loads((folder / "config.json").read_text())
    type_key = config.pop("dtype", config.pop("torch_dtype", None))
    if how["dtype_key"]: config[how["dtype_key"]] = type_key
    if how["old"]: config = older(family, config)
    (folder / "config.json").write_text(json.dumps(config))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    vocabulary = fields["vocab_size"]
    tokens = numpy.random.default_rng(seed).integers(0, vocabulary, size=(SEQUENCES, LENGTH + 1))
    data = folder.parent / "tokens.npy"
    numpy.save(data, tokens)
    tokens = torch.tensor(tokens)
    with torch.no_grad():
        _, logits = loss_of(model, tokens)
        prompt = tokens[:1, :PROMPT]
        plain = greedy_without_cache(model, prompt)
        cached = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=NEW, do_sample=False, eos_token_id=None, pad_token_id=0)[0, PROMPT:].tolist()
    # In f64. Where f32 itself is far from that (models on the edge of chaos: scores of tens, say), three times its distance is allowed: the larger one
    # of the weights as they are and of weights rounded otherwise.
    wide = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    losses, norms = train_torch(wide, tokens)
    reference, generator = wide.state_dict(), torch.Generator().manual_seed(seed)
    loss_limit, norm_limit, weight_limit = 2e-4, 1e-3, 1e-3
    for shake in (0.0, 6e-8):
        narrow = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        for parameter in narrow.parameters(): parameter.data *= 1 + shake * torch.randn(parameter.shape, generator=generator)
        own_losses, own_norms = train_torch(narrow, tokens)
        loss_limit = max(loss_limit, 3 * max(abs(a - b) / abs(b) for a, b in zip(own_losses, losses)))
        norm_limit = max(norm_limit, 3 * max(abs(a - b) / b for a, b in zip(own_norms, norms)))
        weight_limit = max(weight_limit, 3 * max(far(value, reference[key]) for key, value in narrow.state_dict().items()))
    out = folder.parent / "logits.safetensors"

    def evaluate(where, flags, expected, name):
        run("eval", "--model", where, "--data", data, "--logits", out, "--json", "--batch-size", 4, *flags)
        report.check(f"logits {name}", far(load_file(out)["logits"], expected), 1e-4)

    def generate(flags, name):
        ids = json.loads(run("generate", "--model", folder, "--ids", ",".join(map(str, prompt[0].tolist())), "--max-new-tokens", NEW, "--ignore-eos", "--json", *flags))["ids"]
        if ids != plain and ids != cached:
            first = next(i for i in range(NEW) if ids[i] != cached[i])
            report.wrong.append(f"greedy {name} differs from token {first} on (transformers with and without cache {'agree' if plain == cached else 'differ'})")

    def train(flags, name, save=None):
        extra = ["--save", save] if save else []
        lines = [json.loads(line) for line in run("train", "--model", folder, "--data", data, "--batch-size", BATCH, "--steps", STEPS, "--json", *TRAINING, *flags, *extra).splitlines()]
        steps = [line for line in lines if "grad_norm" in line]
        report.check(f"losses {name}", max(abs(s["loss"] - l) / abs(l) for s, l in zip(steps, losses, strict=True)), loss_limit)
        report.check(f"norms {name}", max(abs(s["grad_norm"] - n) / n for s, n in zip(steps, norms, strict=True)), norm_limit)

    def saved():
        save = folder.parent / "saved"
        train([], "one", save)
        with torch.no_grad():
            loaded, info = AutoModelForCausalLM.from_pretrained(save, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
            if any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")): report.wrong.append(f"loading: {info}")
            _, theirs = loss_of(loaded.eval(), tokens)
        evaluate(save, [], theirs, "saved")
        ours = loaded.state_dict()
        report.check("weights", max(far(ours[k], reference[k]) for k in reference), weight_limit)

    report.attempt("eval", lambda: evaluate(folder, [], logits, "one"))
    report.attempt("generate", lambda: generate([], "one"))
    report.attempt("train", saved)
    heads, kv = fields.get("num_attention_heads", fields.get("n_head")), fields.get("num_key_value_heads", fields.get("num_attention_heads", fields.get("n_head")))
    for name in layouts:
        flags = LAYOUTS[name]
        if name.startswith("tp") and (heads % 2 or kv % 2): continue
        if name in ("pp2", "pp4", "tp2"):
            report.attempt(f"eval {name}", lambda: evaluate(folder, [f for f in flags], logits, name))
            report.attempt(f"generate {name}", lambda: generate(flags[:2], name))
        report.attempt(f"train {name}", lambda: train(flags, name))
    return report, fields, how


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("families", nargs="*", default=[])
    parser.add_argument("--per-family", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layouts", default=",".join(LAYOUTS))
    parser.add_argument("--long", action="store_true")
    options = parser.parse_args()
    if options.long: globals().update(LONG)
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    names = options.families or ["gpt2", "llama", "qwen2", "qwen3", "mistral", "smollm3", "granite", "olmo2", "gpt_neox", "gemma2", "gemma3_text", "phi3"]
    failed, count, worst = 0, 0, {}
    for family in names:
        for seed in range(options.seed, options.seed + options.per_family):
            with tempfile.TemporaryDirectory() as temporary:
                begin = time.time()
                fields = how = None
                try:
                    report, fields, how = compare(family, seed, pathlib.Path(temporary) / "model", options.layouts.split(",") if options.layouts else [])
                except Exception as error:  # of transformers itself: said, and not counted
                    print(f"{family} {seed}: not compared: {type(error).__name__}: {str(error)[:300]}", flush=True)
                    continue
            count += 1
            failed += bool(report.wrong)
            for kind, value in report.worst.items(): worst[kind] = max(worst.get(kind, 0.0), value)
            print(f"{family} {seed}: {'FAILS' if report.wrong else 'ok'} " + " ".join(f"{k} {v:.1e}" for k, v in report.worst.items()) + f" ({time.time() - begin:.1f} s)", flush=True)
            for one in report.wrong: print(f"    {one}", flush=True)
            if report.wrong: print(f"    {json.dumps(fields)} {how}", flush=True)
    print(f"{count - failed} of {count} as transformers; worst: " + ", ".join(f"{k} {v:.1e}" for k, v in worst.items()))
    sys.exit(failed > 0)


if __name__ == "__main__": main()
