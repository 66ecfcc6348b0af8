#!/usr/bin/env python3
"""Compares LoRA with peft on small models with odd configurations, drawn at random: ten steps of AdamW from an adapter that peft wrote (2e-4) in
every layout, the saved adapter loaded in peft, `merge` beside merge_and_unload, and a base in int8 or int4 beside the same widened base in peft.
Prints a line per model and what differs; ends with 1 where something does. Needs what compare_families.py needs, and peft.

    tests/models/reference/compare_lora.py [--per-family 4] [--seed 0] [--layouts pp2,dp2,...] [FAMILY ...]"""
import argparse, json, pathlib, random, sys, tempfile, time
import numpy, torch, transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM
from compare_families import BATCH, LENGTH, SEQUENCES, STEPS, TRAINING, Report, draw, far, loss_of, randomize, run

LAYOUTS = {"one": [], "pp2": ["--pp", "2", "--microbatches", "2"], "dp2": ["--dp", "2", "--microbatches", "1"], "dp2shard": ["--dp", "2", "--shard", "--microbatches", "1"],
           "tp2": ["--tp", "2", "--microbatches", "1"], "zb": ["--pp", "2", "--stages", "4", "--schedule", "interleavedzerobubble", "--microbatches", "4"],
           "pp2tp2": ["--pp", "2", "--tp", "2", "--microbatches", "2"]}
TARGETS = {"gpt2": [["c_attn"], ["c_attn", "c_proj"], ["c_fc", "c_proj"], r".*\.h\.[12]\.(attn|mlp)\.c_proj"],
           "llama": [["q_proj", "v_proj"], ["k_proj", "o_proj", "down_proj"], "all-linear", r"model\.layers\.[0-2]\.self_attn\.[qo]_proj"],
           "phi3": [["qkv_proj", "o_proj"], ["gate_up_proj", "down_proj"], "all-linear"],
           "gpt_neox": [["query_key_value"], ["dense", "dense_4h_to_h"], ["dense_h_to_4h"], "all-linear"]}


def draw_adapter(family, pick):
    r = pick([1, 2, 3, 8])
    options = dict(r=r, lora_alpha=pick([1, 4, 6, 16]), use_rslora=pick([True, False]), target_modules=pick(TARGETS.get(family, TARGETS["llama"])))
    if family == "gpt2": options["fan_in_fan_out"] = True
    if pick([True, False, False]): options["rank_pattern"] = {pick([r".*\.1\..*", "c_proj" if family == "gpt2" else "v_proj"]): 5}
    if pick([True, False, False]): options["alpha_pattern"] = {pick([r".*\.2\..*", "c_attn" if family == "gpt2" else "q_proj"]): 3}
    return options


def train_torch(model, tokens):
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=3e-3, weight_decay=0.01, betas=(0.9, 0.95), eps=1e-4)
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss, _ = loss_of(model, tokens[[(step * BATCH + i) % SEQUENCES for i in range(BATCH)]])
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(trained, 1.0).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms


def compare(family, seed, root, layouts):
    fields, _ = draw(family, seed)
    pick = random.Random(f"lora {family} {seed}").choice
    base, adapter = root / "base", root / "adapter"
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **fields), attn_implementation="eager")
    randomize(model, seed)
    model.tie_weights()
    model.save_pretrained(base)
    options = draw_adapter(family, pick)
    torch.manual_seed(seed)
    load = lambda folder, dtype=torch.float32: AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()
    made = get_peft_model(load(base), LoraConfig(task_type="CAUSAL_LM", **options))
    for parameter in made.parameters():
        if parameter.requires_grad: parameter.data += 0.1 * torch.randn_like(parameter)
    made.save_pretrained(adapter)
    tokens = numpy.random.default_rng(seed).integers(0, fields["vocab_size"], size=(SEQUENCES, LENGTH + 1))
    data = root / "tokens.npy"
    numpy.save(data, tokens)
    tokens = torch.tensor(tokens)
    report = Report()
    out, saved = root / "logits.safetensors", root / "saved"

    def evaluate(name, expected, *flags, limit=1e-4):
        run("eval", "--data", data, "--logits", out, "--json", "--batch-size", 4, *flags)
        report.check(f"logits {name}", far(load_file(out)["logits"], expected), limit)

    def logits_of(peft_model):
        with torch.no_grad(): return loss_of(peft_model.eval(), tokens)[1]

    expected = logits_of(made)
    wide = PeftModel.from_pretrained(load(base, torch.float64), adapter, is_trainable=True, autocast_adapter_dtype=False).double().eval()
    losses, norms = train_torch(wide, tokens)
    plain_losses, plain_norms = train_torch(PeftModel.from_pretrained(load(base), adapter, is_trainable=True).eval(), tokens)
    loss_limit = max(2e-4, 3 * max(abs(a - b) / abs(b) for a, b in zip(plain_losses, losses)))
    norm_limit = max(1e-3, 3 * max(abs(a - b) / b for a, b in zip(plain_norms, norms)))

    def train(name, *flags):
        lines = [json.loads(line) for line in run("train", "--model", base, "--adapter", adapter, "--data", data, "--batch-size", BATCH, "--steps", STEPS, "--json", *TRAINING, *flags).splitlines()]
        steps = [line for line in lines if "grad_norm" in line]
        report.check(f"losses {name}", max(abs(s["loss"] - l) / abs(l) for s, l in zip(steps, losses, strict=True)), loss_limit)
        report.check(f"norms {name}", max(abs(s["grad_norm"] - n) / n for s, n in zip(steps, norms, strict=True)), norm_limit)

    def check_saved():
        train("one", "--save", saved)
        theirs = PeftModel.from_pretrained(load(base), saved)
        report.check("terms", max(far(value, wide.state_dict()[key]) for key, value in theirs.state_dict().items() if "lora_" in key), 2e-3)
        evaluate("saved", logits_of(theirs), "--model", base, "--adapter", saved)

    def check_merged():
        merged = root / "merged"
        run("merge", "--model", base, "--adapter", adapter, "--out", merged)
        theirs = PeftModel.from_pretrained(load(base), adapter).merge_and_unload().state_dict()
        report.check("merged", max(far(value, theirs[key]) for key, value in load(merged).state_dict().items()), 1e-6)

    def check_narrow(kind):
        first = [json.loads(line) for line in run("train", "--model", base, "--adapter", adapter, "--data", data, "--batch-size", BATCH, "--steps", 2, "--json", *TRAINING, "--weights", kind).splitlines()]
        two = [json.loads(line) for line in run("train", "--model", base, "--adapter", adapter, "--data", data, "--batch-size", BATCH, "--steps", 2, "--json", *TRAINING, "--weights", kind, *LAYOUTS["pp2"]).splitlines()]
        report.check(f"narrow {kind} in two stages", max(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(first, two)), 2e-5)
        report.check(f"{kind} near f32", abs(first[0]["loss"] - losses[0]) / losses[0], 0.05 if kind == "int8" else 0.3)

    report.attempt("eval", lambda: evaluate("one", expected, "--model", base, "--adapter", adapter))
    report.attempt("saved", check_saved)
    report.attempt("merge", check_merged)
    report.attempt("narrow", lambda: check_narrow(pick(["int8", "int4"])))
    heads = [fields[key] for key in ("num_attention_heads", "n_head", "num_key_value_heads") if key in fields]
    for name in layouts:
        if "tp" in name and any(count % 2 for count in heads): continue
        report.attempt(f"train {name}", lambda: train(name, *LAYOUTS[name]))
    return report, fields, options


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("families", nargs="*", default=[])
    parser.add_argument("--per-family", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layouts", default="pp2,dp2,dp2shard,tp2,zb,pp2tp2")
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    failed = count = 0
    for family in options.families or ["gpt2", "llama", "qwen3", "gemma2"]:
        for seed in range(options.seed, options.seed + options.per_family):
            begin = time.time()
            with tempfile.TemporaryDirectory() as temporary:
                report, fields, adapter = compare(family, seed, pathlib.Path(temporary), options.layouts.split(",") if options.layouts else [])
            count += 1
            failed += bool(report.wrong)
            print(f"{family} {seed}: {'FAILS' if report.wrong else 'ok'} " + " ".join(f"{k} {v:.1e}" for k, v in report.worst.items()) + f" ({time.time() - begin:.1f} s)", flush=True)
            for one in report.wrong: print(f"    {one}", flush=True)
            if report.wrong: print(f"    {json.dumps(fields)} {adapter}", flush=True)
    print(f"{count - failed} of {count} as peft")
    sys.exit(failed > 0)


if __name__ == "__main__": main()
