"""The files of deploy/ are judged by the tools of what reads them, and speak of what there is.

No daemon, cluster or Grafana is at hand.
"""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

import evervec
from evervec.cli.app import cli
from evervec.maintenance.metrics import exposition, process_metrics, store_metrics
from support.programs import program
from support.prometheus import names, promtool

PROJECT = Path(__file__).parents[2]
DEPLOY = PROJECT / "deploy"
BIN = Path(sys.executable).parent
MANIFESTS = [DEPLOY / "kubernetes" / "evervec.yaml", DEPLOY / "kubernetes" / "gpu" / "workers.yaml"]
KUBERAY = DEPLOY / "kubernetes" / "kuberay.yaml"
OPTION = re.compile(r"--[a-z][a-z-]+")


def judge(tool: str | Path, *args: str | Path) -> str:
    """What a tool says; the test fails if it says no."""
    done = subprocess.run([tool, *args], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def read_all(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text("utf-8")))


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for unit in (DEPLOY / "systemd").iterdir():
        text = unit.read_text("utf-8").replace("/opt/evervec/bin/evervec", f"{BIN}/evervec")
        (tmp_path / unit.name.replace("@.", "@1.")).write_text(text, "utf-8")
    tool = program("systemd-analyze", "systemd", alone=False)
    said = judge(tool, "verify", "--man=no", *sorted(tmp_path.iterdir()))
    ours = [line for line in said.splitlines() if "evervec" in line]
    assert not ours


def test_the_units_are_confined() -> None:
    tool = program("systemd-analyze", "systemd", alone=False)
    for unit in (DEPLOY / "systemd").glob("*.service"):
        judge(tool, "security", "--offline=yes", "--threshold=25", unit)
        text = unit.read_text("utf-8")
        assert {"UMask=0077", "SystemCallFilter=@system-service"} <= set(text.splitlines())
        assert "LimitNOFILE=" in text


def test_no_container_writes_to_its_image_or_gains_rights() -> None:
    things = [thing for path in MANIFESTS for thing in read_all(path)]
    deployments = [thing for thing in things if thing["kind"] == "Deployment"]
    for thing in deployments:
        pod = thing["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert not pod["automountServiceAccountToken"]
        for container in pod["containers"]:
            rights = container["securityContext"]
            assert rights["readOnlyRootFilesystem"]
            assert not rights["allowPrivilegeEscalation"]
            assert container["livenessProbe"]
    (policy,) = (thing for thing in things if thing["kind"] == "NetworkPolicy")
    labels = policy["spec"]["podSelector"]["matchLabels"].items()
    assert all(labels <= d["spec"]["template"]["metadata"]["labels"].items() for d in deployments)
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    services = read_all(DEPLOY / "docker" / "compose.yaml")[0]["services"]
    for name in ("keys", "service", "worker", "follower"):
        assert services[name]["read_only"]
        assert services[name]["cap_drop"] == ["ALL"]


def test_the_first_key_of_compose_is_not_printed() -> None:
    (command,) = read_all(DEPLOY / "docker" / "compose.yaml")[0]["services"]["keys"]["command"]
    assert re.search(r"keys create [^|;]*> /keys/", command)


def test_hadolint_takes_the_dockerfile() -> None:
    judge(BIN / "hadolint", DEPLOY / "docker" / "Dockerfile")


def test_what_the_dockerfile_copies_and_installs_is_there() -> None:
    text = (DEPLOY / "docker" / "Dockerfile").read_text("utf-8")
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE):
        assert all((PROJECT / name).exists() for name in line.split()[:-1]), line
    (extras,) = re.findall(r"/src\[(.*?)\]", text)
    known = (PROJECT / "pyproject.toml").read_text("utf-8")
    assert all(re.search(rf"^{extra} = \[", known, re.MULTILINE) for extra in extras.split(","))


def test_compose_takes_its_file() -> None:
    path = DEPLOY / "docker" / "compose.yaml"
    judge(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", path)
    (found,) = read_all(path)
    assert {"postgres", "qdrant", "redis", "service", "worker"} <= found["services"].keys()
    assert found["services"]["worker"]["deploy"]["replicas"] == 2


def test_kubernetes_takes_the_manifests() -> None:
    for path in MANIFESTS:
        judge(BIN / "kubernetes-validate", "--strict", path)
    for folder in ("kubernetes", "kubernetes/gpu"):
        judge(program("kubectl", "kubernetes-client", alone=True), "kustomize", DEPLOY / folder)


def test_kubernetes_takes_the_pods_of_the_ray_cluster(tmp_path: Path) -> None:
    """KubeRay's own kinds are unknown to the tool; the pods in them are not."""
    (job,) = read_all(KUBERAY)
    cluster = job["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        name = group.get("groupName", "head")
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, **group["template"]}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(pod), "utf-8")
        judge(BIN / "kubernetes-validate", "--strict", tmp_path / f"{name}.yaml")
    (gpu,) = cluster["workerGroupSpecs"]
    most = int(re.findall(r"--max-actors (\d+)", job["spec"]["entrypoint"])[0])
    assert gpu["maxReplicas"] == most, "each actor has a pod with a GPU"
    (container,) = gpu["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"


def commands() -> list[list[str]]:
    """Every call of evervec in deploy/."""
    found = []
    for unit in (DEPLOY / "systemd").glob("*.service"):
        found += re.findall(r"^ExecStart=\S+/evervec (.*)$", unit.read_text(), re.MULTILINE)
    compose = read_all(DEPLOY / "docker" / "compose.yaml")[0]["services"]
    found += [shlex.join(compose[name]["command"]) for name in ("service", "worker", "follower")]
    found.append(read_all(KUBERAY)[0]["spec"]["entrypoint"].removeprefix("evervec "))
    for thing in (thing for path in MANIFESTS for thing in read_all(path)):
        if thing["kind"] == "Deployment":
            found += [
                shlex.join(c["args"]) for c in thing["spec"]["template"]["spec"]["containers"]
            ]
    return [shlex.split(call) for call in found]


@pytest.mark.parametrize("call", commands(), ids=shlex.join)
def test_every_command_has_its_options(call: list[str]) -> None:
    at = next(place for place, word in enumerate(call) if not word.startswith("-"))
    for place, word in enumerate(call):
        if OPTION.fullmatch(word):
            said = CliRunner().invoke(cli, ["--help"] if place < at else [call[at], "--help"])
            assert word in said.output, call


@pytest.fixture(scope="module")
def known() -> set[str]:
    """The metrics that the service and workers have."""
    with evervec.open("memory:", embedder="hashing") as ev:
        own = store_metrics(ev.store, ev.queue.stats(), ev.models, ev.index)
        text = exposition([*own, *process_metrics()]).decode()
    of_the_edges = {
        "evervec_store_up",
        "evervec_http_requests_total",
        "evervec_limiter_errors_total",
    }
    return names(text) | of_the_edges


def queries() -> list[str]:
    """Every query of dashboard, alerts and scaling."""
    board = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text("utf-8"))
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    (alerts,) = read_all(DEPLOY / "prometheus" / "alerts.yaml")
    found += [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    for path in (DEPLOY / "kubernetes").rglob("scaling.yaml"):
        (scaled,) = read_all(path)
        found += [trigger["metadata"]["query"] for trigger in scaled["spec"]["triggers"]]
    return found


def test_every_metric_that_is_asked_for_exists(known: set[str]) -> None:
    asked = {name for query in queries() for name in re.findall(r"\bevervec_\w+", query)}
    assert asked - known == set()


def test_promtool_takes_every_query(tmp_path: Path) -> None:
    rules = [
        {"record": f"query:{n}", "expr": query.replace("$__rate_interval", "5m")}
        for n, query in enumerate(queries())
    ]
    path = tmp_path / "queries.yaml"
    path.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}), "utf-8")
    promtool("check", "rules", path)


def test_promtool_takes_the_rules_and_they_fire_when_they_should() -> None:
    folder = DEPLOY / "prometheus"
    promtool("check", "rules", folder / "alerts.yaml")
    promtool("test", "rules", folder / "alerts.test.yaml")
    promtool("check", "config", "--syntax-only", folder / "prometheus.yaml")


def test_every_file_says_what_checks_it_and_what_was_not_run() -> None:
    for path in DEPLOY.rglob("*"):
        if path.is_file() and path.name != "alerts.test.yaml":
            text = path.read_text("utf-8")
            assert "Checked" in text, path
            assert re.search(r"not |NOT |no Prometheus|Checked as", text), path
