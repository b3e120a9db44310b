"""Logs, metrics and free text: only public words and the substitutes of names are left."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

import nodetopo
from nodetopo.kernel import logs
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.pod import Container, Pod
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.capture.scrub import Substitutes, scrubbed
from nodetopo.tools.capture.scrub_text import TextScrubber

MARK = "Zq-marked-7f3a"
LEVELS = ("debug", "info", "warning", "error", "exception", "critical", "log", "bind")
KEPT = {"resource", "resources"}


@pytest.fixture
def scrubber() -> TextScrubber:
    pod = Pod(namespace="team-acme", name="llama", containers=(Container(name="trainer"),))
    substitutes = Substitutes()
    scrubbed(Snapshot(node="gpu-node-07", pods=(pod,)), substitutes)
    return TextScrubber(substitutes)


def keys_of_log_calls() -> Iterator[str]:
    for path in sorted(Path(nodetopo.__file__).parent.rglob("*.py")):
        source = path.read_text("utf-8")
        if "structlog" not in source and "_log" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if is_call and node.func.attr in LEVELS:  # type: ignore[attr-defined]
                yield from (word.arg for word in node.keywords if word.arg is not None)  # type: ignore[attr-defined]


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_no_key_of_any_log_call_lets_a_name_through(
    log_format: str, scrubber: TextScrubber, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = sorted({*keys_of_log_calls(), "anything_new"} - KEPT - {"exc_info"})
    assert len(keys) > 50
    before = structlog.get_config()
    logs.configure(log_format, "debug")
    try:
        for key in keys:
            for value in (MARK, [MARK], {MARK: {"a": MARK}}, f"the pod {MARK}/{MARK} is on {MARK}"):
                structlog.get_logger().warning(f"{MARK} is lost", **{key: value})
    finally:
        structlog.configure(**before)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4 * len(keys)
    found = scrubber.log(lines).splitlines()
    assert [line for line in found if "marked" in line or "7f3a" in line] == []
    assert len(found) == len(lines)


@pytest.mark.parametrize(
    "text",
    [
        "the link of 0000:1b:00.0 trains at 32.0 GT/s PCIe x16, lanes 0-15",
        "driver 580.95.05, kubelet v1.36.3, NCCL 2.21.5, at 12:30:45 on 2026-01-02T03:04:05Z",
        "GPU3 nvmlDeviceGetMemoryInfo: mlx5_0 and enp170s0f0np0 on NUMA node 1, nvidia.com/gpu",
        "cpu-manager-policy single-numa-node in /var/lib/kubelet/config.yaml",
        "/sys/bus/pci/devices/0000:1b:00.0/numa_node has -1",
    ],
)
def test_what_describes_the_node_is_kept(text: str, scrubber: TextScrubber) -> None:
    assert scrubber.text(text) == text


@pytest.mark.parametrize(
    "secret",
    [
        *("10.20.30.40", "2001:67c:2e8:22::c100:68b", "fe80::ec4:7aff:fe12:3456%eth0", "::1:2"),
        *("0c-42-a1-12-34-56", "0c42.a112.3456", "0042.1112.3456", "00:11:22:33:44:55"),
        "00:00:10:86:fe:80:00:00:00:00:00:00:0c:42:a1:03:00:12:34:56",
        *("0x0c42a10300123456", "0c42:a103:0012:3456", "0123456789ab", "feedface" * 8),
        *("AIzaSyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY", "hf_abcdefghijKLMNOPqrstuvwxyz012345678"),
        *("ghp_0123456789abcdefghij", "github_pat_11AAAA_bbbb", "xoxb-1-2-abc", "sk-proj-abc123"),
        *("AKIAIOSFODNN7EXAMPLE", "nvapi-abc_def", "glpat-abc-def", "eyJhbGciOi.eyJpc3Mi.c2ln"),
        *("http://api.corp.acme.example:8080/x", "tcp://proxy.acme.example:3128"),
        *("https://jane:p/ss@host.acme:31", "acme+ssh://jane@10.1.1.1/x", "jane.doe@acme.example"),
        *("/home/jane/x", "/data/users/jane", "/export/home/jane", "/Users/jane", "/mnt/acme/jane"),
        *("/root/.kube/acme", "/var/home/jane/x", "C:\\Users\\jane", "~jane/acme", "jane@gpu-x9"),
        *("team-acme/llama-0-gpus-x7k2p", "gpu-node-07.corp.acme", "gpu-node-08", "acme:5000/x:1"),
    ],
)
def test_no_form_of_an_address_a_host_a_key_or_a_home_is_left(
    secret: str, scrubber: TextScrubber
) -> None:
    for text in (f"no answer from {secret}.", f"[{secret}]:6443", f'"{secret}"', f"a={secret},"):
        found = scrubber.text(text)
        parts = [part for part in secret.replace("/", " ").split() if len(part) > 6]
        assert [part for part in parts if part in found] == []
        assert not any(word in found for word in ("jane", "acme", "68b", "a1:03", "FODNN"))


@pytest.mark.parametrize(
    "text",
    [
        "--token open sesame",
        'password: "open sesame street"',
        "passwd='open;a,b&c sesame'",
        'api-key="open \\" sesame"',
        "Authorization: Bearer open",
        "https://open:sesame@host/",
        "SECRET=open",
        "password=open,sesame;open",
        'body="{\\"password\\":\\"open\\"}"',
    ],
)
def test_a_secret_is_removed_even_if_it_is_a_public_word(text: str, scrubber: TextScrubber) -> None:
    assert "open" not in scrubber.text(text)
    assert scrubber.secrets == 1


def test_names_of_claims_and_ended_pods_are_replaced_in_all_lines(scrubber: TextScrubber) -> None:
    lines = [
        json.dumps({"event": "x", "problem": "trainingjob of claimteam waits for gpuclaim"}),
        json.dumps({"event": "claim prepared", "claim": "claimteam/gpuclaim"}),
        json.dumps({"event": "ended", "pod": "claimteam/trainingjob", "container": "p"}),
        "2026-01-02T03:04:05Z [info] a pod ended  pod=claimteam/trainingjob took_ms=12",
    ]
    first, second, third, last = scrubber.log(lines).splitlines()
    claim, pod = json.loads(second)["claim"], json.loads(third)["pod"]
    namespace = claim.partition("/")[0]
    assert json.loads(first)["problem"] == (
        f"{pod.partition('/')[2]} of {namespace} waits for {claim.partition('/')[2]}"
    )
    assert pod.startswith(f"{namespace}/")
    assert f'pod="{pod}"' in last
    assert last.startswith("2026-01-02T03:04:05Z [info] a pod ended")


def test_what_is_no_object_of_json_is_free_text(scrubber: TextScrubber) -> None:
    for line in ('["acme-1"]', '"acme-1"', '{"pod": "acme-1"', "[" * 100_000 + "acme-1"):
        assert "acme" not in scrubber.log([line])
    assert "acme" not in scrubber.log([json.dumps({"acme-1": {"pod": {"acme-2": ["acme-3"]}}})])
    assert "12345" not in scrubber.log([json.dumps({"token": 12345})])


def test_metrics_keep_their_names_values_and_devices(scrubber: TextScrubber) -> None:
    uuid = "GPU-7a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
    text = (
        "# TYPE nodetopo_x gauge\n"
        f'nodetopo_x{{pod="acme",gpu="0",uuid="{uuid}",driver="580.95.05",x="acme"}} 1.5e+09\n'
        "nodetopo_y 12345678901234\n"
    )
    kind, first, second = scrubber.metrics(text).splitlines()
    assert (kind, second) == ("# TYPE nodetopo_x gauge", "nodetopo_y 12345678901234")
    assert first.startswith('nodetopo_x{pod="pod-1",gpu="0",uuid="GPU-')
    assert uuid[4:] not in first
    assert first.endswith(',driver="580.95.05",x="pod-1"} 1.5e+09')


@pytest.mark.parametrize("name", ["v1.2.3+zoe", "1.2.3-4-zoe", "node-17", "ZOE-123", "net-10"])
def test_a_name_in_the_form_of_a_version_or_of_a_node_is_left_out(
    name: str, scrubber: TextScrubber
) -> None:
    assert scrubber.text(f"{name} zoe.nvidia.com/zoe nvidia.com/zoe-gpu") == "… …/… …/…"


def test_a_secret_that_is_an_object_is_removed_whole(scrubber: TextScrubber) -> None:
    line = json.dumps({"credentials": {"value": 12345678, "data": "nvidia"}})
    assert json.loads(scrubber.log([line])) == {"credentials": "…"}


def test_a_line_that_is_nested_too_deep_is_left_out(scrubber: TextScrubber) -> None:
    assert "acme" not in scrubber.log(['{"a":' * 900 + '"acme"' + "}" * 900, "acme"])


def test_values_and_paths_that_are_ordinary_words_stay_words() -> None:
    pod = Pod(namespace="a", name="llama", node_selector={"pool": "true", "acme/gpu": "nvidia"})
    settings = KubeletSettings(source="/data/config/kubelet.yaml")
    substitutes = Substitutes()
    scrubbed(Snapshot(node="gpu-node-07", pods=(pod,), kubelet=settings), substitutes)
    text = "the nvidia driver has config and data: true"
    assert TextScrubber(substitutes).text(text) == text
