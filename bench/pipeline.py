#!/usr/bin/env python3
"""Training steps of the presets over two processes: ppengine beside torch.distributed.pipelining with gloo, one core per rank, by turns.

    bench/pipeline.py [tiny mid gpt2] [--rounds 3] [--ours 1f1b ...] [--theirs gpipe 1f1b ...] [--python PYTHON_WITH_TORCH] [--isa native|avx2|avx512] [--binary ...]

First every schedule of both is tried; the best of each then run by turns. Above 1, ppengine is the faster one."""
import argparse, json, pathlib, statistics, subprocess, sys

import isa

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZES = {"tiny": (8, 16), "mid": (4, 4), "gpt2": (4, 4)}  # microbatches, sequences of a step


def figures(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        print(f"  {' '.join(str(part) for part in command[1:])}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("presets", nargs="*", default=["tiny", "mid", "gpt2"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ours", nargs="+", default=["1f1b", "interleaved1f1b", "zbvzerobubble"])
    parser.add_argument("--theirs", nargs="+", default=["gpipe", "1f1b", "interleaved1f1b", "interleavedzerobubble", "zbvzerobubble"])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--binary", default=ROOT / "build/bin/ppengine")
    isa.add(parser)
    args = parser.parse_args()
    isa.apply(args)
    for preset in args.presets:
        repeat = {"tiny": 12, "mid": 4}.get(preset, 2)
        microbatches, sequences = SIZES[preset]
        run_ours = lambda name: figures([args.binary, "bench", "train", "--model", preset, "--pp", 2, "--launch", "processes", "--schedule", name,
                                         "--microbatches", microbatches, "--batch-size", sequences, "--repeat", repeat, "--json"])
        run_theirs = lambda name: figures([args.python, ROOT / "bench/pipeline_pytorch.py", preset, name, "--repeat", repeat])
        rate = lambda run: run["tokens_per_second"] if run else 0.0
        tries = 1 if preset == "gpt2" else 2  # a shared machine may be slow for one of them
        best = lambda names, run: max(names, key=lambda name: max(rate(run(name)) for _ in range(tries))) if len(names) > 1 else names[0]
        best_of_ours, best_of_theirs = best(args.ours, run_ours), best(args.theirs, run_theirs)
        ours, theirs = [], []
        for _ in range(args.rounds):
            ours.append(rate(run_ours(best_of_ours)))
            theirs.append(rate(run_theirs(best_of_theirs)))
        ratios = [a / b for a, b in zip(ours, theirs) if b]
        print(f"{preset:5} ppengine {statistics.median(ours):7.0f} tokens/s ({best_of_ours}), PyTorch {statistics.median(theirs):7.0f} "
              f"({best_of_theirs}): {statistics.median(ratios):.2f} times ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)


main()
