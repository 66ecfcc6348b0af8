#!/usr/bin/env python3
"""The presets over two processes by torch.distributed.pipelining with gloo, one thread and one core per rank: tokens per second of a
training step (forward, backward, AdamW).

    bench/pipeline_pytorch.py tiny|mid|gpt2 SCHEDULE [--repeat N]      SCHEDULE: gpipe 1f1b interleaved1f1b interleavedzerobubble zbvzerobubble

Prints one JSON object like `ppengine bench train --json`, for side-by-side runs (bench/pipeline.py runs both by turns)."""
import argparse, json, os, socket, statistics, time
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, schedules

from train_pytorch import PRESETS, Block

MICROBATCHES = {"tiny": 8, "mid": 4, "gpt2": 4}
SCHEDULES = {"gpipe": (schedules.ScheduleGPipe, 1), "1f1b": (schedules.Schedule1F1B, 1),
             "interleaved1f1b": (schedules.ScheduleInterleaved1F1B, 2),
             "interleavedzerobubble": (schedules.ScheduleInterleavedZeroBubble, 2), "zbvzerobubble": (schedules.ScheduleZBVZeroBubble, 2)}


class Part(torch.nn.Module):
    """Some blocks in a row, with the embeddings before the first and the head behind the last."""

    def __init__(self, blocks, width, heads, length, vocabulary, first, last):
        super().__init__()
        if first:
            self.wte, self.wpe = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(length, width)
        self.h = torch.nn.ModuleList(Block(width, heads) for _ in range(blocks))
        if last:
            self.ln_f, self.lm_head = torch.nn.LayerNorm(width), torch.nn.Linear(width, vocabulary, bias=False)

    def forward(self, x):
        if hasattr(self, "wte"):
            x = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x)) if hasattr(self, "lm_head") else x


def run(rank, port, args, results):
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank % len(os.sched_getaffinity(0))]})
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    layers, width, heads, length, vocabulary, sequences = PRESETS[args.preset]
    microbatches = MICROBATCHES[args.preset]
    make, per_rank = SCHEDULES[args.schedule]
    count = 2 * per_rank
    mine = [0, 3] if args.schedule == "zbvzerobubble" and rank == 0 else [1, 2] if args.schedule == "zbvzerobubble" else list(range(rank, count, 2))
    torch.manual_seed(0)
    stages, parameters = [], []
    for s in mine:
        part = Part(layers // count, width, heads, length, vocabulary, s == 0, s == count - 1)
        parameters += part.parameters()
        stages.append(PipelineStage(part, s, count, torch.device("cpu")))
    loss_of = lambda logits, targets: torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    schedule = make(stages if per_rank > 1 else stages[0], n_microbatches=microbatches, loss_fn=loss_of)
    optimizer = torch.optim.AdamW(parameters, lr=1e-4)
    first, last = 0 in mine, count - 1 in mine
    seconds = []
    for step in range(args.repeat + 2):
        tokens = torch.randint(vocabulary, (microbatches * sequences, length + 1))
        dist.barrier()
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        schedule.step(*([tokens[:, :-1]] if first else []), target=tokens[:, 1:] if last else None)
        optimizer.step()
        dist.barrier()
        if step >= 2:
            seconds.append(time.perf_counter() - begin)
    if rank == 0:
        results.put(seconds)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("preset", choices=PRESETS)
    parser.add_argument("schedule", choices=SCHEDULES)
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
    for rank in ranks:
        rank.join()
    if any(rank.exitcode for rank in ranks):
        raise SystemExit(f"{args.schedule}: a rank failed")
    seconds = results.get()
    _, _, _, length, _, sequences = PRESETS[args.preset]
    print(json.dumps({"tokens_per_second": MICROBATCHES[args.preset] * sequences * length / statistics.median(seconds),
                      "step_milliseconds": 1e3 * statistics.median(seconds)}))


if __name__ == "__main__":
    main()
