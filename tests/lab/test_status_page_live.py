"""The page of a real daemon beside a real kubelet, with pods that hold GPUs."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.lab.browser import chromium
from tests.lab.cluster import Cluster
from tests.lab.control_plane import free_port
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed
from tests.lab.port_forward import forward
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab


def page_url(node: Node) -> str:
    lines = [
        json.loads(line)
        for line in node.agent.log_since_start().splitlines()
        if line.startswith("{")
    ]
    url = next((line["url"] for line in lines if line["event"] == "metrics served"), None)
    return "" if url is None else str(url).removesuffix("metrics")


def status(url: str) -> Any:
    with urllib.request.urlopen(f"{url}status.json", timeout=30) as answer:
        return json.load(answer)


def test_pods_of_a_real_kubelet_are_on_the_page(
    cluster: Cluster, h100: Node, tmp_path: Path
) -> None:
    for name, count in (("trainer-0", 4), ("server-7d9f", 1)):
        cluster.pods.run(guaranteed(name, h100.name, {"cpu": 4, "memory": "1Gi", GPU: count}))
    # A thread of its own writes the reasons, after the answers.
    allocated = wait_for(
        "both allocations",
        lambda: len(rows := status(page_url(h100))["allocations"]) >= 2 and rows,
    )
    assert [row["by"] in ("nodetopo", "the kubelet") for row in allocated[:2]] == [True, True]
    # A fresh daemon lists the pods at once; this one may have done so a minute ago.
    h100.agent.stop()
    h100.agent.start()
    url = wait_for("the page", lambda: page_url(h100), timeout_s=60)
    wait_for("the pods", lambda: status(url)["pods_listed_at"], timeout_s=90)
    found = status(url)
    held = [row["holders"] for row in found["gpus"]]
    assert sorted(pods[0] for pods in held if pods) == ["pod 1", *["pod 2"] * 4]
    given = {
        uuid
        for name in ("trainer-0", "server-7d9f")
        for ids in h100.given(name).values()
        for uuid in ids
    }
    assert {row["uuid"] for row in found["gpus"] if row["holders"]} == given
    sizes = {(row["first"], row["last"]): row["admitted"] for row in found["sizes"]}
    assert sizes == {(1, 3): True, (4, 8): False}
    with chromium() as browser:
        seen = browser.look(url, width=1280)
    assert "trainer-0" not in json.dumps(found)
    assert seen.console == []
    assert seen.width <= 1280
    (tmp_path / "page.png").write_bytes(seen.png)  # for people


def test_the_page_is_reached_by_the_kubelets_port_forward_alone(
    cluster: Cluster, h100: Node
) -> None:
    port = free_port()
    cluster.pods.run(guaranteed("forwarded", h100.name, {"cpu": 1, "memory": "1Gi"}))
    h100.agent.stop()
    h100.agent.start([f"--metrics-address=127.0.0.2:{port}"])  # stands for the pod's own address
    url = wait_for("the metrics", lambda: page_url(h100), timeout_s=60)
    assert url == f"http://127.0.0.2:{port}/"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        status(url)
    forwarded = forward(h100, cluster.api.token, "forwarded", port)
    head, _, body = forwarded.get("/status.json").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 ")
    assert json.loads(body)["node"] == h100.name
    assert forwarded.get("/metrics").startswith(b"HTTP/1.0 200 ")
    h100.agent.stop()
