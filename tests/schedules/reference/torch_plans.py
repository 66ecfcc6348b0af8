"""PyTorch's own schedules without a process group: the order tables and their lowered form, as PyTorch 2.13 makes them."""
import contextlib
import io
import os
import tempfile
from types import SimpleNamespace

from torch.distributed.pipelining import schedules as S


def fake_stages(ranks, per_rank):
    """What the schedule classes look at in a stage; rank 0's view, they compute all ranks anyway."""
    return [
        SimpleNamespace(
            group_size=ranks, group_rank=0, num_stages=ranks * per_rank, stage_index=i * ranks, submod=None,
            is_first=i == 0, is_last=False, has_backward=True, stage_index_to_group_rank=None)
        for i in range(per_rank)
    ]


def make(name, ranks, stages, microbatches, defer=False):
    """The schedule's runtime with pipeline_order (compute only) and pipeline_order_with_comms filled in."""
    per_rank = stages // ranks
    fakes = fake_stages(ranks, per_rank)
    with contextlib.redirect_stdout(io.StringIO()):
        if name in ("gpipe", "1f1b"):
            single = S.get_schedule_class(name)(fakes[0], microbatches, loss_fn=lambda *_: None)
            order = {r: [a for a in row if a is not None and a.computation_type != S.REDUCE_GRAD]
                     for r, row in single.pipeline_order.items()}
            if name == "1f1b":
                # PyTorch 2.13 numbers the last rank's forwards 1..m: put right.
                last = ranks - 1
                if order[last][0].microbatch_index == 1:
                    order[last] = [a._replace(microbatch_index=a.microbatch_index - 1) if a.computation_type == S.F else a
                                   for a in order[last]]
            runtime = S._PipelineScheduleRuntime(fakes, microbatches, loss_fn=lambda *_: None, defer_pp_recv=defer)
            runtime.pipeline_order = order
            runtime._prepare_schedule_with_comms(order)
            return runtime
        return S.get_schedule_class(name)(fakes, microbatches, loss_fn=lambda *_: None, defer_pp_recv=defer)


def csv_text(runtime, fmt):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plan.csv")
        runtime._dump_csv(path, format=fmt)
        with open(path, newline="") as f:
            return f.read()


def grid(name):
    """Combinations (ranks, stages, microbatches), also where m is no multiple of p; only what PyTorch accepts."""
    for p in (1, 2, 3, 4, 5, 8):
        for v in {"gpipe": (1,), "1f1b": (1,), "zbvzerobubble": (2,), "dualpipev": (2,)}.get(name, (1, 2, 3, 4)):
            for m in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 17, 20):
                rounds = max(1, m // p)
                if name == "1f1b" and m < p:
                    continue
                if name == "dualpipev" and m < 2 * p:
                    continue
                if name.startswith("interleaved") and m % rounds:
                    continue
                yield p, p * v, m


NAMES = ("gpipe", "1f1b", "loopedbfs", "interleaved1f1b", "interleavedzerobubble", "zbvzerobubble", "dualpipev")
