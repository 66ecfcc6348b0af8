#!/usr/bin/env python3
"""The presets in PyTorch's DistributedDataParallel over gloo, two processes with one core each: a training step (forward, backward, AdamW).

    bench/ddp_pytorch.py tiny|mid|gpt2 [--repeat N] [--ranks 2]

Prints one JSON object like `ppengine bench train --dp 2 --json` (bench/ddp.py runs both by turns)."""
import argparse, json, os, socket, statistics, subprocess, sys, time


def rank_main(args):
    import torch
    import torch.distributed as dist
    from train_pytorch import PRESETS, Model

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    cores = sorted(os.sched_getaffinity(0))
    per = max(1, len(cores) // ranks)
    os.sched_setaffinity(0, cores[rank * per : (rank + 1) * per] or cores)
    torch.set_num_threads(per)
    dist.init_process_group("gloo")
    layers, width, heads, length, vocabulary, sequences = PRESETS[args.preset]
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(Model(layers, width, heads, length, vocabulary), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    torch.manual_seed(rank)
    seconds = []
    for step in range(args.repeat + 2):
        dist.barrier()
        begin = time.perf_counter()
        tokens = torch.randint(vocabulary, (sequences, length + 1))
        logits = model(tokens[:, :-1])
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step >= 2:
            seconds.append(time.perf_counter() - begin)
    if rank == 0:
        step = statistics.median(seconds)
        print(json.dumps({"tokens_per_second": ranks * sequences * length / step, "step_milliseconds": 1e3 * step}))
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("preset")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=2)
    args = parser.parse_args()
    if "RANK" in os.environ:
        return rank_main(args)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = {"WORLD_SIZE": str(args.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    started = [subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **place, "RANK": str(rank)}) for rank in range(args.ranks)]
    sys.exit(max(abs(one.wait()) for one in started))


main()
