#!/usr/bin/env python3
"""Plans per second: ppengine against PyTorch in one run, and what a plan of two million actions needs.

    bench/schedules.py [--binary build/bin/ppengine] [--json]

PyTorch makes and lowers Interleaved1F1B; ppengine makes, validates, lowers, validates again and simulates it. Processor seconds on
both sides, so that a busy machine does not matter. Without PyTorch only ppengine is measured.
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def ppengine(binary, ranks, stages, microbatches):
    """Processor seconds and peak resident bytes of one `ppengine plan --lower`, run in a process of its own."""
    command = [binary, "plan", "--schedule", "interleaved1f1b", "--ranks", str(ranks), "--stages", str(stages),
               "--microbatches", str(microbatches), "--lower", "--summary", "--json"]
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        result = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        os.write(write, json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, result["idle_share"]]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return json.loads(os.read(read, 1000))


def pytorch(ranks, stages, microbatches):
    """Processor seconds of PyTorch's generator and lowering."""
    sys.path.insert(0, os.path.join(ROOT, "tests", "schedules", "reference"))
    import torch_plans
    torch_plans.make("interleaved1f1b", 2, 4, 4)
    begin = time.process_time()
    torch_plans.make("interleaved1f1b", ranks, stages, microbatches)
    return time.process_time() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default=os.path.join(ROOT, "build", "bin", "ppengine"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    idle_seconds, idle_bytes, _ = ppengine(args.binary, 1, 1, 1)  # starting the program: not the plan's doing
    result = {"ppengine": []}
    for ranks, stages, microbatches in [(32, 64, 256), (64, 128, 512), (128, 256, 1024), (256, 512, 2048)]:
        actions = 2 * stages * microbatches
        seconds, peak, idle = ppengine(args.binary, ranks, stages, microbatches)
        seconds = max(seconds - idle_seconds, 1e-3)
        result["ppengine"].append({"ranks": ranks, "stages": stages, "microbatches": microbatches, "compute_actions": actions,
                                   "seconds": seconds, "actions_per_second": actions / seconds,
                                   "bytes_per_action": (peak - idle_bytes) / actions, "idle_share": idle})
    try:
        actions = 2 * 32 * 320
        seconds = pytorch(16, 32, 320)
        result["pytorch"] = {"compute_actions": actions, "seconds": seconds, "actions_per_second": actions / seconds}
        result["times_pytorch"] = result["ppengine"][-1]["actions_per_second"] / result["pytorch"]["actions_per_second"]
    except ImportError:
        pass
    if args.json:
        print(json.dumps(result))
        return
    for row in result["ppengine"]:
        print("ppengine {compute_actions:>9} actions {seconds:7.3f} s {actions_per_second:12.0f} /s "
              "{bytes_per_action:6.1f} bytes an action at the peak".format(**row))
    if "pytorch" in result:
        print("PyTorch  {compute_actions:>9} actions {seconds:7.3f} s {actions_per_second:12.0f} /s".format(**result["pytorch"]))
        print("ppengine makes {:.0f} times as many a second".format(result["times_pytorch"]))


main()
