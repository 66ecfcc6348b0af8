#!/usr/bin/env python3
"""Generation of GPT-2 (124 M, random weights), ppengine beside transformers on the same cores, by turns, so that a noisy machine is as noisy
for both.

    bench/generate.py [--rounds 3] [--python PYTHON_WITH_TRANSFORMERS] [--binary build/bin/ppengine] [--folder DIR]

Prints prefill and decode rates with their ratios, the share of the memory's read rate (measured in the same run), what bf16 and int8 weights
gain, and the time from starting the program to its first token."""
import argparse, json, pathlib, statistics, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command[0]}: {done.stderr.strip()}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--binary", default=ROOT / "build/bin/ppengine")
    parser.add_argument("--folder", default=pathlib.Path(tempfile.gettempdir()) / "ppengine-bench-gpt2")
    args = parser.parse_args()
    reference = [args.python, ROOT / "bench/generate_transformers.py", args.folder]
    if not (pathlib.Path(args.folder) / "model.safetensors").exists():
        run([*reference, "--make"])
    first_token = [args.binary, "generate", "--model", args.folder, "--ids", "1,2,3", "--max-new-tokens", "1", "--ignore-eos"]
    run(first_token)  # the kernel cache is warm from here on
    rounds = []
    for _ in range(args.rounds):
        one = {"transformers": json.loads(run(reference))}
        for weights in ("f32", "bf16", "int8"):
            one[weights] = json.loads(run([args.binary, "bench", "generate", "--model", args.folder, "--weights", weights, "--json"]))
        begin = time.perf_counter()
        run(first_token)
        one["first"] = time.perf_counter() - begin
        rounds.append(one)

    def show(what, values, unit=""):
        print(f"{what:44} {statistics.median(values):8.2f}{unit}  ({min(values):.2f} to {max(values):.2f})", flush=True)

    for stage in ("prefill", "decode"):
        key = f"{stage}_tokens_per_second"
        show(f"{stage}: ppengine f32, tokens/s", [r["f32"][key] for r in rounds])
        show(f"{stage}: transformers, tokens/s", [r["transformers"][key] for r in rounds])
        show(f"{stage}: ppengine over transformers", [r["f32"][key] / r["transformers"][key] for r in rounds])
    for weights in ("f32", "bf16", "int8"):
        show(f"decode: {weights}, share of the read rate", [r[weights]["bandwidth_share"] for r in rounds])
    for weights in ("bf16", "int8"):
        show(f"decode: {weights} over f32", [r[weights]["decode_tokens_per_second"] / r["f32"]["decode_tokens_per_second"] for r in rounds])
    show("first token of a new process", [r["first"] for r in rounds], " s")


main()
