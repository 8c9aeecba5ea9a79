# SPDX-License-Identifier: Apache-2.0
"""deploy/: every file by the tool that it is for. nginx and Envoy are used, with two servers behind them."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import time

import jsonpatch
import jsonschema
import kubernetes_validate
import pytest
import yaml

from conftest import ROOT, existing
from serving import DEVICE, DONE, Server, end_with_the_test, text_of

DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
VERSIONS = ["1.31", "1.34", "1.37"]  # of Kubernetes
CUSTOM = json.loads((ROOT / "test" / "golden" / "gateway" / "custom_resources.json").read_text())
LONG = 1500 if DEVICE == "cuda" else 64  # tokens: long enough to do something meanwhile


def tool(name):
    """A program that Debian or PyPI has."""
    return str(existing(shutil.which(name, path=f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin") or name))


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


# ---- several servers behind a proxy --------------------------------------------------------------------------------

class Proxy(Server):
    """nginx or Envoy with the example's configuration, its ports replaced. `servers` are those behind it."""

    def __init__(self, name, servers, folder):
        port = free_port()
        text = (DEPLOY / f"{name}.{'conf' if name == 'nginx' else 'yaml'}").read_text()
        for old, new in [("8000", port), *zip(("8001", "8002"), (server.port for server in servers))]:
            text, count = re.subn(rf"\b{old}\b", str(new), text)
            assert count == 1, f"{name} names {old} {count} times"
        self.url, self.model, self.key, self.servers = f"http://127.0.0.1:{port}", servers[0].model, None, servers
        check, command = getattr(self, name)(text, folder)
        done = subprocess.run(check, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        self.process = subprocess.Popen(command, preexec_fn=end_with_the_test)
        self.wait_until(self.is_up)

    @staticmethod
    def nginx(text, folder):
        (folder / "nibble.conf").write_text(text)
        paths = "".join(f"{kind}_temp_path {folder}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (folder / "nginx.conf").write_text(f"""
            {"user root;" if os.geteuid() == 0 else ""} daemon off; worker_processes 2; pid {folder}/pid; error_log {folder}/log;
            events {{}} http {{ access_log off; {paths} include {folder}/nibble.conf; }}""")
        command = [tool("nginx"), "-p", folder, "-c", folder / "nginx.conf", "-e", folder / "log"]
        return [*command, "-t"], command

    @staticmethod
    def envoy(text, folder):
        (folder / "envoy.yaml").write_text(text)
        command = [tool("envoy"), "-c", folder / "envoy.yaml", "--concurrency", "2", "--log-level", "error", "--disable-hot-restart"]
        return [*command, "--mode", "validate"], command

    def is_up(self):
        assert self.process.poll() is None
        try:
            return self.ask("/health").status == 200
        except OSError:
            return False

    def __exit__(self, *exception):
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture(params=["nginx", "envoy"])
def proxy(request, nibble, smollm2, tmp_path):
    with contextlib.ExitStack() as stack:
        flags = ("--max-model-len", 2048, "--max-num-seqs", 1)
        servers = [stack.enter_context(Server(nibble, smollm2, *flags)) for _ in range(2)]
        yield stack.enter_context(Proxy(request.param, servers, tmp_path))


def running(proxy):
    return [server.load[0] for server in proxy.servers]


def busy(proxy, pool, tokens):
    """A stream on each server."""
    streams = []
    for count in (1, 2):
        streams.append(pool.submit(stream, proxy, tokens))
        proxy.wait_until(lambda: sorted(running(proxy)) == [count - 1, 1])
    return streams


def stream(proxy, max_tokens=LONG):
    """The events of an answer, each with the time of its arrival; fewer when the connection breaks."""
    events = []
    with contextlib.suppress(http.client.IncompleteRead, ConnectionError):
        request = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": max_tokens, "ignore_eos": True}
        for event in proxy.events("/v1/completions", request):
            events.append((time.monotonic(), event))
    return events


def is_whole(events):
    return bool(events) and events[-1][1] == DONE


def test_tokens_pass_as_they_come(proxy):
    events = stream(proxy)
    whole = proxy.complete("Once upon a time", max_tokens=LONG, ignore_eos=True)["choices"][0]["text"]
    assert is_whole(events) and text_of([event for _, event in events]) == whole
    alone = sum(later[0] - earlier[0] > 3e-4 for earlier, later in zip(events, events[1:]))
    assert alone > len(events) / 2, "several came at once"
    assert proxy.ask("/metrics").status == 404


def test_the_load_is_shared(proxy):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        streams = busy(proxy, pool, 3 * LONG)
        assert all(is_whole(one.result()) for one in streams)


def test_one_is_killed(proxy):
    """Its stream breaks, what has not begun is answered by the other, and nobody asks it any more."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        streams = busy(proxy, pool, 6 * LONG)
        queued = [pool.submit(proxy.complete, "One, two,", max_tokens=2) for _ in range(4)]
        proxy.wait_until(lambda: sum(server.load[1] for server in proxy.servers) == 4)
        victim, other = proxy.servers
        victim.process.kill()
        victim.process.wait()
        assert sorted(is_whole(one.result()) for one in streams) == [False, True]
        assert all(one.result()["choices"] for one in queued)
    served = other.metric("vllm:request_success_total")
    for _ in range(6):
        assert proxy.complete("Hello", max_tokens=1)["choices"]
    assert other.metric("vllm:request_success_total") == served + 6


def test_one_is_taken_down(proxy):
    """What runs on it is finished, the rest goes to the other, and no client notices."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        streams = busy(proxy, pool, 3 * LONG)
        proxy.servers[0].terminate()
        assert all(proxy.complete("Hello", max_tokens=1)["choices"] for _ in range(6))
        assert all(is_whole(one.result()) for one in streams)
    assert proxy.servers[0].wait() == 0


# ---- Kubernetes ----------------------------------------------------------------------------------------------------

def documents(path):
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def validate(document):
    """By Kubernetes' own schemas, or by what is published of a custom resource's fields."""
    if document["kind"] not in CUSTOM:
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)
        return
    known = CUSTOM[document["kind"]]
    schema = {"definitions": CUSTOM["definitions"], "type": "object", "additionalProperties": False, "required": ["metadata", "spec"],
              "properties": {"apiVersion": {"const": known["apiVersion"]}, "kind": {}, "metadata": {"$ref": "#/definitions/metadata"},
                             "spec": known["spec"]}}
    jsonschema.validate(document, schema, jsonschema.Draft202012Validator)


def kustomized(folder, found=None):
    """What `kubectl kustomize` makes of a folder, images apart: documents by kind and name."""
    found = {} if found is None else found
    file = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert set(file) <= {"apiVersion", "kind", "resources", "components", "patches", "images"}
    for name in file.get("resources", []) + file.get("components", []):
        if (folder / name).is_dir():
            kustomized(folder / name, found)
        else:
            found |= {(document["kind"], document["metadata"]["name"]): document for document in documents(folder / name)}
    for patch in file.get("patches", []):
        key = patch["target"]["kind"], patch["target"]["name"]
        operations = patch.get("patch") or (folder / patch["path"]).read_text()
        found[key] = jsonpatch.apply_patch(found[key], yaml.safe_load(operations))
    return found


@pytest.mark.parametrize("folder", [KUBERNETES / "base", KUBERNETES], ids=lambda folder: folder.name)
def test_manifests(folder):
    built = kustomized(folder)
    for document in built.values():
        validate(document)
    pod = built["Deployment", "nibble"]["spec"]["template"]
    labels = pod["metadata"]["labels"].items()
    selectors = [document["spec"]["selector"] for document in built.values() if "selector" in document["spec"]]
    assert len(selectors) >= 3 and all(selector.get("matchLabels", selector).items() <= labels for selector in selectors)


def test_every_manifest_is_used():
    used = {KUBERNETES / "fill-models.yaml", KUBERNETES / "scaling" / "prometheus-adapter.yaml"}  # by themselves
    for file in KUBERNETES.rglob("kustomization.yaml"):
        part = yaml.safe_load(file.read_text())
        paths = part.get("resources", []) + [patch["path"] for patch in part.get("patches", []) if "path" in patch]
        used |= {file, *(file.parent / path for path in paths)}
    assert set(KUBERNETES.rglob("*.yaml")) <= used
    validate(*documents(KUBERNETES / "fill-models.yaml"))


def test_kustomize():
    """The tool itself, where it is installed."""
    if not shutil.which("kubectl"):
        pytest.skip("there is no kubectl")
    for folder in (KUBERNETES / "base", KUBERNETES):
        done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        built = {(document["kind"], document["metadata"]["name"]): document for document in yaml.safe_load_all(done.stdout)}
        expected = kustomized(folder)
        image, _ = (made["Deployment", "nibble"]["spec"]["template"]["spec"]["containers"][0].pop("image") for made in (built, expected))
        assert built == expected and re.fullmatch(r"registry\.example\.com/nibble:[\d.]+(-gpu)?", image)


def flags_of(nibble):
    return set(re.findall(r"--[a-z-]+", subprocess.run([nibble, "serve", "--help"], capture_output=True, text=True).stdout))


def test_the_pod_fits_the_server(nibble):
    built = kustomized(KUBERNETES)
    pod = built["Deployment", "nibble"]["spec"]["template"]["spec"]
    container, = pod["containers"]
    arguments = dict(word.split("=") for word in container["args"] if "=" in word)
    assert set(arguments) <= flags_of(nibble)
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > pause + float(arguments["--drain-seconds"])
    port, = container["ports"]
    for probe, path in (("startupProbe", "ready"), ("readinessProbe", "ready"), ("livenessProbe", "live")):
        assert container[probe]["httpGet"] == {"path": f"/health/{path}", "port": port["name"]}
    assert built["Service", "nibble"]["spec"]["ports"][0]["targetPort"] == port["name"]
    assert built["PodMonitor", "nibble"]["spec"]["podMetricsEndpoints"][0]["port"] == port["name"]
    assert built["InferencePool", "nibble"]["spec"]["targetPorts"] == [{"number": port["containerPort"]}]
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}
    assert ("PersistentVolumeClaim", pod["volumes"][0]["persistentVolumeClaim"]["claimName"]) in built


def test_the_gateway_finds_the_pool():
    built = kustomized(KUBERNETES)
    route = built["HTTPRoute", "nibble"]["spec"]
    backend = route["rules"][0]["backendRefs"][0]
    pool = built[backend["kind"], backend["name"]]
    assert pool["apiVersion"].split("/")[0] == backend["group"]
    assert ("Gateway", route["parentRefs"][0]["name"]) in built
    objective = built["InferenceObjective", "interactive"]["spec"]["poolRef"]
    assert (objective["kind"], objective["name"], objective["group"]) == ("InferencePool", "nibble", backend["group"])


def test_the_autoscaler_reads_what_the_server_says(server):
    rule, = documents(KUBERNETES / "scaling" / "prometheus-adapter.yaml")[0]["rules"]["custom"]
    series = re.compile(re.search(r'__name__=~"(.*?)"', rule["seriesQuery"]).group(1))
    names = {line.split("{")[0] for line in server.get("/metrics").splitlines() if not line.startswith("#")}
    replacement = rule["name"]["as"].replace("$1", r"\1")
    offered = {re.sub(rule["name"]["matches"], replacement, name) for name in names if series.search(name)}
    metrics = kustomized(KUBERNETES)["HorizontalPodAutoscaler", "nibble"]["spec"]["metrics"]
    assert {metric["pods"]["metric"]["name"] for metric in metrics} == offered


# ---- one machine ---------------------------------------------------------------------------------------------------

def test_containerfile():
    file = DEPLOY / "Containerfile"
    done = subprocess.run([tool("hadolint"), file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    text = file.read_text()
    copied = {word for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.M) for word in line.split()}
    parts = re.findall(r"^subdir\('([^'/]+)", (ROOT / "meson.build").read_text(), re.M)
    assert all((ROOT / name).exists() for name in copied) and copied >= {"meson.build", *parts}
    ignored = (DEPLOY / "Containerfile.dockerignore").read_text()
    assert set(re.findall(r"^!(.*)$", ignored, re.M)) == copied
    packages = re.search(r'^build_packages="(.*)"$', (ROOT / "scripts" / "setup.sh").read_text(), re.M).group(1).split()
    assert set(packages) <= set(text.split()), "scripts/setup.sh builds with more"


def test_the_containers_health_check(server):
    words = json.loads(re.search(r"HEALTHCHECK.*?CMD (\[.*?\])\n", (DEPLOY / "Containerfile").read_text(), re.S).group(1))

    def check(port):
        return subprocess.run([word.replace("8000", str(port)) for word in words], capture_output=True, timeout=10).returncode

    assert check(server.port) == 0
    assert check(free_port()) != 0


def test_systemd_unit(nibble, tmp_path):
    text = (DEPLOY / "nibble.service").read_text()
    command = re.search(r"^ExecStart=(\S+) serve (.*)$", text, re.M)
    drain = float(re.search(r"--drain-seconds (\d+)", command.group(2)).group(1))
    assert set(re.findall(r"--[a-z-]+", command.group(2))) <= flags_of(nibble)
    assert float(re.search(r"^TimeoutStopSec=(\d+)$", text, re.M).group(1)) > drain
    unit = tmp_path / "nibble.service"
    unit.write_text(text.replace(command.group(1), nibble))
    done = subprocess.run([tool("systemd-analyze"), "verify", "--man=no", unit], capture_output=True, text=True)
    assert done.returncode == 0 and unit.name not in done.stderr, done.stderr


def test_the_readme_names_every_file():
    text = (DEPLOY / "README.md").read_text()
    names = {path.relative_to(DEPLOY) for path in DEPLOY.rglob("*") if path.is_file()} - {pathlib.Path("README.md")}
    unnamed = [name for name in names if name.name not in text and f"{name.parent.name}/" not in text]
    assert not unnamed
