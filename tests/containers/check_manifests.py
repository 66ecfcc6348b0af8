"""Manifests of containers/cluster against the schemas beside this file, and containers/*/Containerfile against the rules of docs/containers.md.
Each schema is also tried on broken copies, which it has to refuse."""
import copy
import json
import pathlib
import re
import sys

import yaml

from schema import check

here, source = pathlib.Path(__file__).parent, pathlib.Path(sys.argv[1])
failures = []


def expect(holds, text):
    if not holds:
        failures.append(text)


def schema(name):
    return json.loads((here / "schemas" / f"{name}.json").read_text())


def check_compose():
    file = yaml.safe_load((source / "containers/cluster/compose.yaml").read_text())
    form = schema("compose")
    failures.extend(f"compose.yaml {one}" for one in check(file, form))
    ranks = sorted(one["environment"]["RANK"] for one in file["services"].values())
    expect(ranks == [str(i) for i in range(len(ranks))], f"compose.yaml: ranks {ranks}")
    for one in file["services"].values():
        expect(one["environment"]["WORLD_SIZE"] == str(len(ranks)), "compose.yaml: WORLD_SIZE is not the number of services")
        expect(one["environment"]["MASTER_ADDR"] in file["services"], "compose.yaml: MASTER_ADDR names no service")
    for broken in (lambda f: f["services"]["rank0"].pop("image"), lambda f: f["services"]["rank1"].update(imagee="x"),
                   lambda f: f["services"]["rank0"]["environment"].update(RANK=0), lambda f: f["services"]["rank0"].update(command="train")):
        other = copy.deepcopy(file)
        broken(other)
        expect(check(other, form), "compose.json accepts a broken file")


def check_kubernetes():
    files = list(yaml.safe_load_all((source / "containers/cluster/kubernetes.yaml").read_text()))
    form = schema("kubernetes")
    for file in files:
        failures.extend(f"kubernetes.yaml {file.get('kind')} {one}" for one in check(file, form))
    service = next(one for one in files if one["kind"] == "Service")
    job = next(one for one in files if one["kind"] == "Job")
    pod = job["spec"]["template"]["spec"]
    env = {one["name"]: one for one in pod["containers"][0]["env"]}
    expect(pod["subdomain"] == service["metadata"]["name"], "kubernetes.yaml: the pods' subdomain is not the service")
    expect(service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}, "kubernetes.yaml: the service selects other pods")
    expect(env["WORLD_SIZE"]["value"] == str(job["spec"]["completions"]), "kubernetes.yaml: WORLD_SIZE is not the number of pods")
    expect(env["MASTER_ADDR"]["value"] == f"{job['metadata']['name']}-0.{service['metadata']['name']}", "kubernetes.yaml: MASTER_ADDR")
    volumes = {one["name"] for one in pod["volumes"]}
    expect(all(one["name"] in volumes for one in pod["containers"][0]["volumeMounts"]), "kubernetes.yaml: a volume is not defined")
    for broken in (lambda f: f["spec"]["template"]["spec"]["containers"][0].pop("image"), lambda f: f["spec"].update(completion=2),
                   lambda f: f["spec"].update(completions="2"), lambda f: f["metadata"].update(name="Ppengine"),
                   lambda f: f["spec"]["template"]["spec"]["containers"][0]["securityContext"].update(runAsNonRoot=False)):
        other = copy.deepcopy(job)
        broken(other)
        expect(check(other, form), "kubernetes.json accepts a broken file")


def check_image_files():
    vendors = sorted(one.parent.name for one in source.glob("containers/*/Containerfile"))
    expect(vendors == ["amd", "cpu", "intel", "nvidia"], f"image files for {vendors}")
    for vendor in vendors:
        text = (source / f"containers/{vendor}/Containerfile").read_text()
        stages = re.findall(r"^FROM (\S+) AS (\S+)$", text, re.M)
        expect(stages[-1][1] == "runtime" and len(stages) >= 2, f"{vendor}: stages {stages}")
        runtime = text[text.rindex("\nFROM "):]
        expect(re.search(r"^ARG BASE=", text, re.M), f"{vendor}: no ARG BASE")
        expect(all(base.startswith("${") for base, _ in stages), f"{vendor}: a stage's base cannot be chosen")
        for rule in (r"^USER ppengine$", r"^HEALTHCHECK ", r'^ENTRYPOINT \["ppengine"\]$', r"^LABEL org\.opencontainers\.image\.title"):
            expect(re.search(rule, runtime, re.M), f"{vendor}: the last stage has no {rule}")
        # What is downloaded is checked against a hash in the same step.
        for step in re.findall(r"^RUN (?:.*\\\n)*.*", text, re.M):
            if re.search(r"\b(curl|wget)\b", step) and "apt-get install" not in step.split("curl")[0].split("&&")[-1]:
                expect("sha256sum -c" in step, f"{vendor}: a download without a hash")


check_compose()
check_kubernetes()
check_image_files()
for one in failures:
    print(one)
sys.exit(1 if failures else 0)
