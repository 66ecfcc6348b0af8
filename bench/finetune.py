#!/usr/bin/env python3
"""LoRA on a llama of about 160 M parameters beside peft with transformers on the same cores, by turns; and --pack beside padding.
Needs torch, transformers, peft.

    bench/finetune.py [--rounds 3] [--steps 4]"""
import argparse, bisect, json, pathlib, random, statistics, subprocess, tempfile, time

ROOT = pathlib.Path(__file__).parent.parent
BINARY = ROOT / "build" / "bin" / "ppengine"
LENGTH, BATCH = 256, 4


def make_model(folder, width=768, layers=12, vocabulary=32000):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(vocab_size=vocabulary, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers, num_attention_heads=width // 64, num_key_value_heads=width // 64,
                                 max_position_embeddings=1024, tie_word_embeddings=True)).save_pretrained(folder)


def peft_seconds(folder, steps):
    import numpy, torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(folder), LoraConfig(r=8, lora_alpha=8, task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"]))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    tokens = torch.tensor(numpy.random.default_rng(0).integers(0, 32000, size=(BATCH, LENGTH)))
    seconds = []
    for _ in range(steps + 1):
        begin = time.perf_counter()
        optimizer.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[1:])


def ppengine_steps(*flags):
    lines = subprocess.run([BINARY, "train", "--json", *map(str, flags)], check=True, capture_output=True, text=True).stdout.splitlines()
    return [json.loads(line) for line in lines if "loss" in json.loads(line)]


def packed_sequences(data, length):
    """So many sequences --pack makes: the longest documents find their place first, each where it leaves the least room."""
    rooms, count = [], 0
    for inputs in sorted((len(json.loads(line)["text"]) - 1 for line in data.read_text().splitlines()), reverse=True):
        at = bisect.bisect_left(rooms, inputs)
        count += at == len(rooms)
        bisect.insort(rooms, (length if at == len(rooms) else rooms.pop(at)) - inputs)
    return count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary) / "llama"
        make_model(folder)
        ours, theirs = [], []
        for _ in range(options.rounds):
            steps = ppengine_steps("--model", folder, "--data", "synthetic", "--seq-len", LENGTH, "--batch-size", BATCH, "--lora-rank", 8, "--steps", options.steps + 1)
            ours.append(statistics.median(step["seconds"] for step in steps[1:]))
            theirs.append(peft_seconds(folder, options.steps))
        a, b = statistics.median(ours), statistics.median(theirs)
        print(f"LoRA: ppengine {a:.3f} s a step, peft {b:.3f} s: {b / a:.2f} times as fast")

        generator = random.Random(0)
        data = pathlib.Path(temporary) / "documents.jsonl"
        documents = 1024
        data.write_text("".join(json.dumps({"text": "x" * generator.randint(20, 500)}) + "\n" for _ in range(documents)))
        small = pathlib.Path(temporary) / "small"  # without a tokenizer: a token per byte
        make_model(small, 512, 8, 256)
        common = ["--model", small, "--data", data, "--seq-len", 500, "--steps", options.steps, "--order", "shuffled"]
        share = documents / packed_sequences(data, 500)  # documents in a sequence
        per_padded, per_packed = [], []
        for _ in range(options.rounds):
            per_padded.append(16 / statistics.median(step["seconds"] for step in ppengine_steps(*common, "--batch-size", 16)[1:]))
            per_packed.append(8 * share / statistics.median(step["seconds"] for step in ppengine_steps(*common, "--batch-size", 8, "--pack")[1:]))
        per_padded, per_packed = statistics.median(per_padded), statistics.median(per_packed)
        print(f"--pack: {per_packed:.1f} documents a second, padded {per_padded:.1f}: {per_packed / per_padded:.2f} times")


main()
