"""A Node object, reduced to what an audit needs."""

from collections.abc import Mapping
from typing import Any

import pytest

from nodetopo.errors import DecodeError
from nodetopo.model.node import NodeStatus
from nodetopo.probes.pods.objects import node_status_from_object

NODE = {
    "metadata": {
        "name": "gpu-1",
        "labels": {"secret": "x"},
        "managedFields": [
            {
                "manager": "nodetopo",
                "fieldsV1": {
                    "f:metadata": {
                        "f:labels": {
                            ".": {},
                            "f:nvidia.com/gpu.count": {},
                            "f:nvidia.com/gpu.product": {},
                            "f:zone": {},
                        }
                    }
                },
            },
            {
                "manager": "gpu-feature-discovery",
                "fieldsV1": {"f:metadata": {"f:labels": {"f:nvidia.com/gpu.count": {}}}},
            },
            {"fieldsV1": {"f:metadata": {"f:labels": {"f:nvidia.com/gpu.count": {}}}}},
            {"manager": "kubelet", "subresource": "status", "fieldsV1": {"f:status": {}}},
        ],
    },
    "status": {
        "capacity": {"cpu": "104", "memory": "2Gi", "nvidia.com/gpu": "8", "hugepages-2Mi": "0"},
        "allocatable": {"cpu": "103500m", "memory": "1Gi", "nvidia.com/gpu": "0"},
        "nodeInfo": {
            "kubeletVersion": "v1.36.3",
            "containerRuntimeVersion": "containerd://2.1.4",
        },
    },
}


def test_a_node_is_reduced_to_versions_amounts_and_writers_of_labels() -> None:
    assert node_status_from_object(NODE) == NodeStatus(
        kubelet_version="v1.36.3",
        container_runtime="containerd://2.1.4",
        capacity={"cpu": 104_000, "memory": 2 << 30, "nvidia.com/gpu": 8, "hugepages-2Mi": 0},
        allocatable={"cpu": 103_500, "memory": 1 << 30, "nvidia.com/gpu": 0},
        labels={},
        label_writers={
            "nvidia.com/gpu.count": ("gpu-feature-discovery", "nodetopo", "unknown"),
            "nvidia.com/gpu.product": ("nodetopo",),
        },
    )


def test_a_node_whose_kubelet_never_reported_has_nothing() -> None:
    assert node_status_from_object({"metadata": {"name": "n"}}) == NodeStatus(labels={})


def test_a_node_whose_labels_nobody_of_interest_wrote_has_no_writers() -> None:
    assert node_status_from_object({"metadata": {"managedFields": []}}).label_writers == {}


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"status": []}, "status: expected an object, found list"),
        ({"status": {"capacity": {"cpu": "x"}}}, "status.capacity.cpu: not a quantity: 'x'"),
        (
            {"status": {"nodeInfo": {"kubeletVersion": 1}}},
            "status.nodeInfo.kubeletVersion: expected a text, found int",
        ),
        (
            {"metadata": {"managedFields": [{"fieldsV1": {"f:metadata": 3}}]}},
            "metadata.managedFields[0].fieldsV1.f:metadata: expected an object, found int",
        ),
    ],
)
def test_a_node_that_cannot_be_read_is_refused(node: Mapping[str, Any], message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        node_status_from_object(node)
    assert str(caught.value) == message
