#!/usr/bin/env python3
"""Makes orders.txt and the sample plans from PyTorch 2.13 (a development tool: build and tests only read the results).

orders.txt: one line per combination, `schedule ranks stages microbatches compute_only compute_comms deferred`, the last three
being FNV-1a hashes of the bytes of PyTorch's files. Show one plan: make_reference.py show SCHEDULE P S M [comms|deferred].
"""
import os
import sys

import torch
import torch_plans


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def tables(name, p, s, m):
    plain = torch_plans.make(name, p, s, m)
    deferred = torch_plans.make(name, p, s, m, defer=True)
    return (torch_plans.csv_text(plain, "compute_only"), torch_plans.csv_text(plain, "compute_comms"),
            torch_plans.csv_text(deferred, "compute_comms"))


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    if len(sys.argv) > 2 and sys.argv[1] == "show":
        which = {"comms": 1, "deferred": 2}.get(sys.argv[6] if len(sys.argv) > 6 else "", 0)
        sys.stdout.write(tables(sys.argv[2].lower(), *map(int, sys.argv[3:6]))[which])
        return
    with open(os.path.join(here, "orders.txt"), "w") as f:
        f.write(f"# made by make_reference.py with PyTorch {torch.__version__.split('+')[0]}\n")
        for name in torch_plans.NAMES:
            for p, s, m in torch_plans.grid(name):
                f.write(" ".join([name, str(p), str(s), str(m)] + [fnv1a(t) for t in tables(name, p, s, m)]) + "\n")
    for name, p, s, m in [("interleavedzerobubble", 3, 6, 8), ("dualpipev", 3, 6, 8)]:
        for kind, text in zip(("compute_only", "compute_comms", "deferred"), tables(name, p, s, m)):
            with open(os.path.join(here, f"{name}_{kind}.csv"), "w", newline="") as f:
                f.write(text)


main()
