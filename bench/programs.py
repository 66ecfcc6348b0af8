"""Training steps of exported PyTorch models, by turns in PyTorch eager, torch.compile and ppengine on the same cores. Needs torch and
transformers: a tool for developers.

    .dev/bin/python bench/programs.py [resnet vit bert unet gpt2] [--rounds 3] [--no-compile] [--isa native|avx2|avx512] [--binary build/bin/ppengine]

Prints the medians over the rounds; ratios above 1: ppengine is the faster one. gpt2 is also run as the built-in family of the same sizes."""
import argparse, json, os, pathlib, statistics, subprocess, sys, tempfile, time

import isa

ROOT = pathlib.Path(__file__).resolve().parent.parent
parser = argparse.ArgumentParser()
parser.add_argument("models", nargs="*", default=["resnet", "vit", "bert", "unet", "gpt2"])
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--repeat", type=int, default=5, help="steps measured in a round")
parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
parser.add_argument("--pipeline", action="store_true", help="two processes, four microbatches, beside torch.distributed.pipelining where that can run the model")
parser.add_argument("--binary", default=ROOT / "build/bin/ppengine")
parser.add_argument("--folder", help="keep exported programs here, and take those that are there")
isa.add(parser)
given = parser.parse_args()
isa.apply(given)  # before torch reads the environment

import torch, torch.nn.functional as F
from safetensors.torch import save_file

import program_models


def time_torch(net, x, y, dim, repeat):
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    times = []
    for i in range(repeat + 2):
        begin = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(net(x).movedim(dim, 1), y).backward()
        optimizer.step()
        if i >= 2:
            times.append(time.perf_counter() - begin)
    return statistics.median(times)


def time_engine(flags, microbatches=1):
    run = subprocess.run([str(one) for one in [given.binary, "bench", "train", "--microbatches", microbatches, "--warmup", 2, "--repeat", given.repeat, "--json", *flags]],
                         capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr)
    return json.loads(run.stdout)["step_milliseconds"] / 1e3


def family_flags(folder, net, x):
    """gpt2 as the built-in family: the same configuration in a model folder without weights, made-up data of the same size."""
    net.inner.config.save_pretrained(f"{folder}/family")
    net.inner.save_pretrained(f"{folder}/family")
    return ["--model", f"{folder}/family", "--data", "synthetic", "--batch-size", x.shape[0], "--seq-len", x.shape[1]]


def measure(name, folder):
    torch.manual_seed(0)
    net, x, y, dim = getattr(program_models, name)()
    net.train()
    if not os.path.exists(f"{folder}/net.pt2"):
        dynamic = ({0: torch.export.Dim("batch", min=2, max=1024)},)
        torch.export.save(torch.export.export(net, (x,), dynamic_shapes=dynamic, strict=False), f"{folder}/net.pt2")
        save_file({"x": x, "targets": y}, f"{folder}/data.safetensors")
    program = ["--model", f"{folder}/net.pt2", "--data", f"{folder}/data.safetensors", "--loss", "cross_entropy", "--class-dim", dim, "--batch-size", x.shape[0]]
    if given.pipeline:
        return measure_pipeline(name, program, x, y, folder)
    sides = {"ppengine": lambda: time_engine(program), "eager": lambda: time_torch(net, x, y, dim, given.repeat)}
    if not given.no_compile:
        compiled = torch.compile(net)
        sides["compile"] = lambda: time_torch(compiled, x, y, dim, given.repeat)
    if name == "gpt2":
        family = family_flags(folder, net, x)
        sides["family"] = lambda: time_engine(family)
    report(name, sides)


def measure_pipeline(name, program, x, y, folder):
    save_file({"x": x.repeat(4, *[1] * (x.dim() - 1)), "targets": y.repeat(4, *[1] * (y.dim() - 1))}, f"{folder}/four.safetensors")
    ours = list(program)
    ours[ours.index("--data") + 1], ours[ours.index("--batch-size") + 1] = f"{folder}/four.safetensors", 4 * x.shape[0]
    def theirs():
        run = subprocess.run([sys.executable, str(ROOT / "bench/programs_pipeline_pytorch.py"), name, "--repeat", str(given.repeat)], capture_output=True, text=True)
        if run.returncode != 0:
            raise RuntimeError(run.stderr.strip().splitlines()[-1] if run.stderr.strip() else "it failed")
        return json.loads(run.stdout.splitlines()[-1])["step_milliseconds"] / 1e3
    try:
        report(name, {"ppengine": lambda: time_engine(ours + ["--pp", 2, "--launch", "processes"], microbatches=4), "pipelining": theirs})
    except RuntimeError as error:
        print(f"{name:7} ppengine {1e3 * time_engine(ours + ['--pp', 2, '--launch', 'processes'], microbatches=4):7.1f} ms; torch.distributed.pipelining: {error}", flush=True)


def report(name, sides):
    for side in sides.values():  # compiles, caches
        side()
    rounds = [{side: run() for side, run in sides.items()} for _ in range(given.rounds)]
    text = f"{name:7} ppengine {1e3 * statistics.median(one['ppengine'] for one in rounds):7.1f} ms"
    for side in list(sides)[1:]:
        ratios = [one[side] / one["ppengine"] for one in rounds]
        text += f"; {side} {1e3 * statistics.median(one[side] for one in rounds):7.1f} ms, {statistics.median(ratios):.2f} times ({min(ratios):.2f} to {max(ratios):.2f})"
    print(text, flush=True)


torch.set_num_threads(len(os.sched_getaffinity(0)))
for model in given.models:
    if given.folder:
        os.makedirs(f"{given.folder}/{model}", exist_ok=True)
        measure(model, f"{given.folder}/{model}")
    else:
        with tempfile.TemporaryDirectory() as temporary:
            measure(model, temporary)
