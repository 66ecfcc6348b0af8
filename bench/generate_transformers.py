#!/usr/bin/env python3
"""Prefill and decoding of a model folder in transformers on the same cores, f32, one prompt.

    bench/generate_transformers.py DIR [--prompt-tokens 128] [--new-tokens 32] [--repeat 3] [--make]

--make first writes a GPT-2 (124 M) with random weights to DIR. Prints one JSON object like `ppengine bench generate --json`."""
import argparse, json, statistics, time
import torch, transformers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--make", action="store_true")
    args = parser.parse_args()
    if args.make:
        torch.manual_seed(0)
        transformers.GPT2LMHeadModel(transformers.GPT2Config()).save_pretrained(args.folder)
        return
    begin = time.perf_counter()
    model = transformers.AutoModelForCausalLM.from_pretrained(args.folder, dtype=torch.float32).eval()
    load = time.perf_counter() - begin
    prefill, decode = [], []
    with torch.inference_mode():
        for i in range(args.repeat + 1):
            ids = torch.randint(model.config.vocab_size, (1, args.prompt_tokens))
            begin = time.perf_counter()
            out = model(ids, use_cache=True, logits_to_keep=1)
            token = out.logits[:, -1].argmax(-1, keepdim=True)
            first = time.perf_counter()
            for _ in range(args.new_tokens - 1):
                out = model(token, past_key_values=out.past_key_values, use_cache=True)
                token = out.logits[:, -1].argmax(-1, keepdim=True)
            end = time.perf_counter()
            if i:
                prefill.append(args.prompt_tokens / (first - begin))
                decode.append((args.new_tokens - 1) / (end - first))
    print(json.dumps({"prefill_tokens_per_second": statistics.median(prefill), "decode_tokens_per_second": statistics.median(decode),
                      "load_seconds": load, "threads": torch.get_num_threads()}))


main()
