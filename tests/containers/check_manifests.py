"""Manifests of containers/cluster against the schemas beside this file, and containers/Containerfile against the rules of docs/containers.md.
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


def check_image_file():
    text = (source / "containers/Containerfile").read_text()
    stages = re.findall(r"^FROM (\S+) AS (\S+)$", text, re.M)
    expect([name for _, name in stages] == ["build", "adapter", "runtime", "runtime_with_adapter"], f"stages {stages}")
    expect(all(base.startswith("${") or base == "runtime" for base, _ in stages), "a stage's base cannot be chosen")
    runtime = text[text.index(" AS runtime\n"):text.index(" AS runtime_with_adapter\n")]
    for rule in (r"^USER ppengine$", r"^HEALTHCHECK ", r'^ENTRYPOINT \["ppengine"\]$', r"^LABEL org\.opencontainers\.image\.title"):
        expect(re.search(rule, runtime, re.M), f"the runtime has no {rule}")
    # What is downloaded is checked against a hash in the same step.
    downloads = [step for step in re.findall(r"^RUN (?:.*\\\n)*.*", text, re.M) if re.search(r"\b(curl|wget) -", step)]
    expect(len(downloads) == 1 and all("sha256sum -c" in step for step in downloads), "a download without a hash")
    # scripts/image knows no argument that the file does not have.
    known = set(re.findall(r"^ARG (\w+)", text, re.M))
    lines = [line for line in (source / "scripts/image").read_text().splitlines() if re.search(r"arguments\+?=\(|--build-arg", line)]
    used = set(re.findall(r"\b([A-Z][A-Z_]+)=", "\n".join(lines))) - {"NAME"}  # of the help text
    expect(used <= known, f"scripts/image has arguments of no stage: {used - known}")


check_compose()
check_kubernetes()
check_image_file()
for one in failures:
    print(one)
sys.exit(1 if failures else 0)
