#!/usr/bin/env python3
"""Data-parallel steps on two processes with a core each: ppengine, ppengine --shard, and PyTorch DDP over gloo, by turns.

    bench/ddp.py [gpt2 ...] [--rounds 3] [--python PYTHON_WITH_TORCH] [--isa native|avx2|avx512] [--binary build/bin/ppengine] [--link MB/s] [--no-pytorch]

Prints medians over the rounds and ratios (above 1: ppengine is the faster one), and how much of the reduction was hidden behind the
backward on this machine's own link and, with --link, on a simulated slower one."""
import argparse, json, pathlib, statistics, subprocess, sys

import isa

ROOT = pathlib.Path(__file__).resolve().parent.parent


def figures(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command[0]}: {done.stderr.strip()}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("presets", nargs="*", default=["gpt2"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--binary", default=ROOT / "build/bin/ppengine")
    parser.add_argument("--link", type=float, default=0)
    parser.add_argument("--no-pytorch", action="store_true")
    isa.add(parser)
    args = parser.parse_args()
    isa.apply(args)
    median = lambda runs, key="step_milliseconds": statistics.median(run[key] for run in runs)
    for preset in args.presets:
        ours = [args.binary, "bench", "train", "--model", preset, "--dp", "2", "--launch", "processes", "--repeat", args.repeat, "--warmup", "1", "--json"]
        plain, sharded, theirs, slow = [], [], [], []
        for _ in range(args.rounds):
            plain.append(figures(ours))
            sharded.append(figures([*ours, "--shard"]))
            if not args.no_pytorch:
                theirs.append(figures([args.python, ROOT / "bench/ddp_pytorch.py", preset, "--repeat", args.repeat]))
            if args.link:
                slow.append(figures([*ours, "--link", args.link]))
        print(f"{preset}: ppengine {median(plain):.0f} ms a step, {100 * median(plain, 'overlap_share'):.0f} % of the reduction hidden")
        ratios = [b["step_milliseconds"] / a["step_milliseconds"] for a, b in zip(plain, sharded)]
        print(f"{preset}: --shard {median(sharded):.0f} ms, {statistics.median(ratios):.2f} times as long ({min(ratios):.2f} to {max(ratios):.2f})")
        if theirs:
            ratios = [b["step_milliseconds"] / a["step_milliseconds"] for a, b in zip(plain, theirs)]
            print(f"{preset}: PyTorch DDP {median(theirs):.0f} ms: {statistics.median(ratios):.2f} times ({min(ratios):.2f} to {max(ratios):.2f})")
        if slow:
            print(f"{preset}: at {args.link:.0f} MB/s {median(slow):.0f} ms, {median(slow, 'communication_milliseconds'):.0f} ms of reduction, "
                  f"{100 * median(slow, 'overlap_share'):.0f} % hidden behind {median(slow, 'backward_milliseconds'):.0f} ms of backward", flush=True)


main()
