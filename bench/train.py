#!/usr/bin/env python3
"""Training steps of the presets, ppengine beside PyTorch eager and torch.compile on the same cores, by turns, so that a noisy machine is as
noisy for all.

    bench/train.py [tiny mid gpt2] [--beside eager compile] [--rounds 5] [--python PYTHON_WITH_TORCH] [--isa native|avx2|avx512] [--binary build/bin/ppengine]

Prints the medians over the rounds and their ratio: above 1, ppengine is the faster one."""
import argparse, json, pathlib, statistics, subprocess, sys

import isa

ROOT = pathlib.Path(__file__).resolve().parent.parent


def figures(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command[0]}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("presets", nargs="*", default=["tiny", "mid", "gpt2"])
    parser.add_argument("--beside", nargs="+", choices=["eager", "compile"], default=["eager", "compile"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--binary", default=ROOT / "build/bin/ppengine")
    isa.add(parser)
    args = parser.parse_args()
    isa.apply(args)
    for preset in args.presets:
        repeat = {"tiny": 30, "mid": 8}.get(preset, 3)
        ours, theirs = [], {how: [] for how in args.beside}
        for _ in range(args.rounds):
            ours.append(figures([args.binary, "bench", "train", "--model", preset, "--repeat", repeat, "--json"]))
            for how in args.beside:
                compiled = ["--compile"] if how == "compile" else []
                theirs[how].append(figures([args.python, ROOT / "bench/train_pytorch.py", preset, "--repeat", repeat, *compiled]))
        rate = lambda runs: statistics.median(run["tokens_per_second"] for run in runs)
        share = statistics.median(run["flops_share"] for run in ours)
        print(f"{preset:5} ppengine {rate(ours):7.0f} tokens/s, {100 * share:.0f} % of the large matrix product's rate", flush=True)
        for how, runs in theirs.items():
            ratios = [a["tokens_per_second"] / b["tokens_per_second"] for a, b in zip(ours, runs)]
            print(f"      PyTorch {how:7} {rate(runs):7.0f} tokens/s: {statistics.median(ratios):.2f} times ({min(ratios):.2f} to {max(ratios):.2f})",
                  flush=True)


main()
