"""What the log says of each allocation, with a raw client."""

import threading
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

from structlog.testing import capture_logs

from nodetopo.allocation.rules import Model, Policy
from nodetopo.components.gpus.placement import Placement
from nodetopo.deviceplugin.allocation_log import Asked, no_reasons
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.machines.bundled import machine
from tests.deviceplugin.machines import whole
from tests.deviceplugin.raw_client import ASKED_S, Client, serving

DGX = machine("dgx-1v")
IDS = tuple(gpu.id for gpu in DGX.gpus)


@contextmanager
def placing() -> Iterator[Client]:
    """Serve a DGX-1V by our own rules."""
    placement = Placement(Policy.BEST, Model.RING)
    placement.take(DGX, whole(DGX))
    devices = whole(DGX).devices
    with serving(placement.prefer, explain=placement.explain, devices=devices) as served:
        yield served


def allocations(lines: Sequence[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    return [line for line in lines if line["event"] == "devices allocated"]


def test_an_allocation_of_our_choice_is_logged_once_with_all_its_reasons() -> None:
    with capture_logs() as lines, placing() as served:
        chosen = served.preferred(IDS[:4], [], 2)
        served.allocate(*chosen)
    (line,) = allocations(lines)
    assert line.pop("took_ms") >= 0
    said = line.pop("said")
    assert line == {
        "event": "devices allocated",
        "log_level": "info",
        "chosen": [IDS[0], IDS[3]],
        "bandwidth_gb_s": 50.0,
        "model": "ring",
        "links": "2 generation-2 NVLinks between the two",
        "numa_nodes": [0],
        "hcas": ["mlx5_0", "mlx5_1"],
        "next_best": [IDS[1], IDS[2]],
        "lost_at": "order",
        "leaves": "leaves 2 GPUs together on NUMA node 0, "
        "worth 50 of the node's 960 weighted GB/s to later jobs",
        "policy": "best",
        "chosen_by": "us",
    }
    assert said == (
        "GPU0 GPU3: 50 GB/s by ring, 2 generation-2 NVLinks between the two; "
        "all on NUMA node 0; "
        "one HCA each: mlx5_0, mlx5_1, through one PCIe switch (PIX); "
        "next best GPU1 GPU2: equal in every term, the lower GPU numbers win; "
        "leaves 2 GPUs together on NUMA node 0, "
        "worth 50 of the node's 960 weighted GB/s to later jobs"
    )


def test_an_allocation_chosen_by_the_kubelet_is_logged_with_its_bandwidth() -> None:
    with capture_logs() as lines, placing() as served:
        served.allocate(IDS[0], IDS[1])
    (line,) = allocations(lines)
    assert (line["chosen_by"], line["bandwidth_gb_s"]) == ("kubelet", 25.0)
    assert (line["next_best"], line["lost_at"], line["leaves"]) == (None, None, None)


def test_each_container_of_an_allocation_has_its_line() -> None:
    with capture_logs() as lines, placing() as served:
        requests = [{"devices_ids": [IDS[0]]}, {"devices_ids": [IDS[1]]}]
        served.stub.Allocate(pb.AllocateRequest(container_requests=requests), timeout=ASKED_S)
    assert [line["chosen"] for line in allocations(lines)] == [[IDS[0]], [IDS[1]]]


def test_no_call_waits_for_the_reasons() -> None:
    may_end = threading.Event()

    def slow(ids: Sequence[str], asked: Asked | None) -> Mapping[str, object]:
        may_end.wait(ASKED_S * 3)
        return no_reasons(ids, asked)

    with capture_logs() as lines, serving(explain=slow) as served:
        for _ in range(3):
            served.preferred(["GPU-0", "GPU-1"], [], 1)
            served.allocate("GPU-0")
        assert allocations(lines) == []
        may_end.set()
    assert [line["chosen_by"] for line in allocations(lines)] == ["us", "us", "us"]
