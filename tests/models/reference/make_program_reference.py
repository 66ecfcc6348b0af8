"""Programs for tests/runs/test_programs.cpp: small models exported with torch.export, and what PyTorch makes of them in ten AdamW steps with
two microbatches. Made with torch 2.13.

    .dev/bin/python tests/models/reference/make_program_reference.py
"""
import copy, json, os, shutil, sys, zipfile
import torch
from safetensors.torch import save_file
from compare_programs import MODELS, train_torch
import program_zoo  # noqa: F401

BATCH, MICROBATCHES = 8, 2


def shrink(path):
    """Leaves out what is never read, so that the committed file stays small."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist() if "sample_inputs" not in name}
    for name in entries:
        if name.endswith("models/model.json"):
            model = json.loads(entries[name])
            for node in model["graph_module"]["graph"]["nodes"]:
                node["metadata"] = {k: v.split("\n")[0] if k == "stack_trace" else v.split(";")[-1] for k, v in node["metadata"].items() if k in ("nn_module_stack", "stack_trace")}
            entries[name] = json.dumps(model).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in entries.items():
            archive.writestr(zipfile.ZipInfo(name), content)



if __name__ == "__main__":
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "programs")
    for name in sys.argv[1:] or ("mlp", "cnn", "unet", "tail", "gru", "tied", "shapes", "segmenter", "gpt2", "llama", "encoder", "state", "statistics", "twins"):
        make, kind, options = MODELS[name]
        torch.manual_seed(7)
        net, inputs, target = make()
        folder = os.path.join(here, name)
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        net.train()
        dim = torch.export.Dim("batch", min=2, max=4096)
        program = torch.export.export(net, tuple(inputs.values()), dynamic_shapes=tuple({0: dim} for _ in inputs), strict=False)
        torch.export.save(program, os.path.join(folder, "net.pt2"))
        shrink(os.path.join(folder, "net.pt2"))
        names = [s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
        save_file({**{n: v.contiguous() for n, v in zip(names, inputs.values())}, "targets": target}, os.path.join(folder, "data.safetensors"))
        # The whole batch at once: what batch norm over all data-parallel ranks gives.
        whole_losses, whole_norms = train_torch(copy.deepcopy(net), inputs, target, kind, options, 1, BATCH)
        losses, norms = train_torch(net, inputs, target, kind, options, MICROBATCHES, BATCH)
        net.eval()
        with torch.no_grad():
            output = net(*inputs.values())
        save_file({**{k: v.clone().contiguous() for k, v in net.state_dict().items()}, "expected.output": output.contiguous()}, os.path.join(folder, "expected.safetensors"))
        with open(os.path.join(folder, "expected.json"), "w") as file:
            json.dump({"loss": kind, "class_dim": 1 if "--class-dim" in options.get("flags", []) else -1, "losses": losses, "norms": norms,
                       "frozen": [k for k, p in net.named_parameters() if p.grad is None], "whole_losses": whole_losses, "whole_norms": whole_norms, "torch": torch.__version__}, file)
