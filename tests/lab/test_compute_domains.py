"""GPUs by our driver and an IMEX channel by NVIDIA's, by kube-scheduler's allocator."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodetopo.machines import bundled
from nodetopo.tools.cluster.export.dra import ClaimOptions, export_claims
from nodetopo.tools.cluster.export.shapes import shape_of
from tests.lab.dra_allocator import DraAllocator
from tests.tools.cluster.export.drivers import (
    CHANNEL_CLASS,
    channel_claim,
    channels,
    our_classes,
    ours,
)

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]
NODES = ("n1", "n2")
TRAY = bundled.machine("gb200-nvl72")


def exported() -> tuple[str, dict[str, Any]]:
    """Return name and spec of the template that the page exports."""
    options = ClaimOptions(driver="nodetopo.io", sizes=(4,), name="gpus")
    (template,) = export_claims([shape_of(TRAY, options.drivers)], options).objects
    return template["metadata"]["name"], template["spec"]["spec"]


@pytest.fixture(params=[True, False], ids=["sets", "singles"])
def allocator(request: pytest.FixtureRequest) -> Iterator[DraAllocator]:
    with DraAllocator() as found:
        of_gpus = [it for node in NODES for it in ours(TRAY, node, has_sets=request.param)]
        found.publish([*of_gpus, *map(channels, NODES)])
        found.set_classes([*our_classes(), CHANNEL_CLASS])
        yield found


def test_the_pod_of_the_page_uses_what_is_exported_and_the_domains_own_template() -> None:
    page = (ROOT / "docs" / "operate" / "compute-domains.md").read_text("utf-8")
    domain, pod = yaml.safe_load_all(page.partition("```yaml\n")[2].partition("```")[0])
    name, _ = exported()
    templates = [it["resourceClaimTemplateName"] for it in pod["spec"]["resourceClaims"]]
    assert templates == [name, domain["spec"]["channel"]["resourceClaimTemplate"]["name"]]


def test_each_node_serves_one_pod_with_all_its_gpus_and_its_channel(
    allocator: DraAllocator,
) -> None:
    _, gpus = exported()
    for node in NODES:
        own = allocator.allocate(f"gpus-{node}", gpus, node)
        channel = allocator.allocate(f"channel-{node}", channel_claim(), node)
        assert own is not None
        assert {it.driver for it in own} == {"nodetopo.io"}
        assert {it.pool for it in own} == {node}
        assert channel is not None
        assert [(it.driver, it.pool, it.device) for it in channel] == [
            ("compute-domain.nvidia.com", node, "channel-0")
        ]
        assert allocator.allocate("second", channel_claim(), node) is None
        assert allocator.allocate("second", gpus, node) is None


def test_the_driver_of_domains_gives_no_gpu_and_ours_no_channel(allocator: DraAllocator) -> None:
    allocator.publish([channels("n1")])
    assert allocator.allocate("gpus", exported()[1], "n1") is None
    allocator.publish(ours(TRAY, "n1"))
    assert allocator.allocate("channel", channel_claim(), "n1") is None
