#!/usr/bin/env python3
"""Kills random ranks of an elastic run and measures the time from each kill to the next step; then compares what is left with an undisturbed run.

    bench/elastic.py --kills 50 --dp 3
    bench/elastic.py --kills 20 --dp 2 --pp 2 --microbatches 2

Flags that are not its own go to `ppengine train`. Prints the median and the worst time, and 1 where the weights or the steps differ.
"""
import argparse
import filecmp
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PPENGINE = os.path.join(ROOT, "build/bin/ppengine")


def train(folder, layout, steps, *more):
    words = ["train", "--model", "demo", "--data", "task:addition", "--seq-len", "10", "--batch-size", "12", "--json", "--launch", "processes", "--timeout", "100"]
    return [PPENGINE, *words, "--steps", str(steps), "--save", folder, *layout, *more]


def ranks_of(process):
    with open(f"/proc/{process}/task/{process}/children") as file:
        return [int(pid) for pid in file.read().split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--every", type=int, default=40, help="steps between two kills, on average")
    parser.add_argument("--seed", type=int, default=1)
    options, layout = parser.parse_known_args()
    dice = random.Random(options.seed)
    steps = options.every * (options.kills + 2) * 2
    with tempfile.TemporaryDirectory() as folder:
        lossy, calm = os.path.join(folder, "lossy"), os.path.join(folder, "calm")
        run = subprocess.Popen(train(lossy, layout, steps, "--elastic", "1"), stdout=subprocess.PIPE, text=True)
        seen, times, killed_at = [], [], None
        next_kill = dice.randrange(5, 2 * options.every)
        for line in run.stdout:
            now = time.monotonic()
            seen.append(json.loads(line)["step"])
            if killed_at is not None and seen[-1] > killed_after:  # a step or two may have been on their way when the rank was killed
                times.append(now - killed_at)
                killed_at = None
            if killed_at is None and len(times) < options.kills and seen[-1] >= next_kill:
                ranks = ranks_of(run.pid)
                victim = dice.choice(ranks)
                killed_at, killed_after = time.monotonic(), seen[-1] + 2
                os.kill(victim, signal.SIGKILL)
                next_kill = seen[-1] + dice.randrange(5, 2 * options.every)
        code = run.wait()
        twice = sum(a == b for a, b in zip(seen, seen[1:]))  # lines of a rank that was killed while it printed
        if code != 0 or sorted(set(seen)) != list(range(1, steps + 1)) or len(seen) != steps + twice:
            sys.exit(f"the run ended with {code}; {len(seen)} lines for {steps} steps")
        subprocess.run(train(calm, layout, steps), stdout=subprocess.DEVNULL, check=True)
        same = all(filecmp.cmp(os.path.join(lossy, name), os.path.join(calm, name), shallow=False) for name in ("model.safetensors", "optimizer.safetensors"))
    print(f"{' '.join(layout)}: {len(times)} kills in {steps} steps ({twice} of them printed twice), median {statistics.median(times):.1f} s, worst {max(times):.1f} s from the kill to the third "
          f"step after it; weights and optimizer state {'equal' if same else 'DIFFER'}")
    sys.exit(0 if same and len(times) == options.kills else 1)


if __name__ == "__main__":
    main()
