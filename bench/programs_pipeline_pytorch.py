#!/usr/bin/env python3
"""A model of bench/program_models.py over two processes by torch.distributed.pipelining's tracer (1F1B, gloo, one thread and one core per rank), four
microbatches of the model's batch: seconds of a training step. bench/programs.py --pipeline runs it by turns with ppengine.

    bench/programs_pipeline_pytorch.py resnet|vit|bert|unet|gpt2 [--repeat N]
"""
import argparse, json, os, socket, statistics, time
import torch
import torch.distributed as dist
from torch.distributed.pipelining import SplitPoint, pipeline, schedules

import program_models

MICROBATCHES = 4


def run(rank, port, args, results):
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank % len(os.sched_getaffinity(0))]})
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    net, x, y, dim = getattr(program_models, args.model)()
    net.train()
    pipe = pipeline(net, mb_args=(x,), split_spec={program_models.SPLITS[args.model]: SplitPoint.BEGINNING})
    stage = pipe.build_stage(rank, torch.device("cpu"))
    schedule = schedules.Schedule1F1B(stage, n_microbatches=MICROBATCHES, loss_fn=lambda out, target: torch.nn.functional.cross_entropy(out.movedim(dim, 1), target))
    optimizer = torch.optim.AdamW(stage.submod.parameters(), lr=1e-4)
    x, y = x.repeat(MICROBATCHES, *[1] * (x.dim() - 1)), y.repeat(MICROBATCHES, *[1] * (y.dim() - 1))
    seconds = []
    for step in range(args.repeat + 2):
        dist.barrier()
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        schedule.step(*([x] if rank == 0 else []), target=y if rank == 1 else None)
        optimizer.step()
        dist.barrier()
        if step >= 2:
            seconds.append(time.perf_counter() - begin)
    if rank == 0:
        results.put(seconds)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=program_models.SPLITS)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    ranks = [context.Process(target=run, args=(r, port, args, results)) for r in range(2)]
    for rank in ranks:
        rank.start()
    while any(rank.is_alive() for rank in ranks):
        time.sleep(0.05)
        if any(rank.exitcode for rank in ranks):  # the other one would wait for it
            for rank in ranks:
                rank.terminate()
            raise SystemExit(f"{args.model}: a rank failed")
    print(json.dumps({"step_milliseconds": 1e3 * statistics.median(results.get())}))


if __name__ == "__main__":
    main()
