"""The kubelet's policies as labels."""

from msgspec import structs

from nodetopo.model.kubelet import KubeletSettings
from tests.components.labels.topology_machines import own, shape

NODE = shape("h100x8-nvswitch-2numa-8cx7")
KEYS = {"tm-policy", "tm-scope", "cpu-manager", "memory-manager"}


def policies(settings: KubeletSettings | None) -> dict[str, str]:
    found = own(structs.replace(NODE, kubelet=settings))
    return {key: value for key, value in found.items() if key in KEYS}


def test_policies_are_spelled_as_the_kubelet_spells_them() -> None:
    settings = KubeletSettings(
        source="configz",
        topology_manager_policy="single-numa-node",
        topology_manager_scope="pod",
        cpu_manager_policy="static",
        memory_manager_policy="Static",
    )
    assert policies(settings) == {
        "tm-policy": "single-numa-node",
        "tm-scope": "pod",
        "cpu-manager": "static",
        "memory-manager": "Static",
    }


def test_a_policy_that_the_source_does_not_tell_has_no_label() -> None:
    assert policies(KubeletSettings(source="x", cpu_manager_policy="none")) == {
        "cpu-manager": "none",
    }


def test_an_unread_kubelet_has_no_labels() -> None:
    assert policies(None) == {}
