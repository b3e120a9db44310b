"""What the object says of the whole node."""

from nodetopo.components.zones.node_resource_topology import attributes
from nodetopo.model.kubelet import KubeletSettings

UNTOLD = {
    "nodeTopologyPodsFingerprint": "pfp0v001ef46db3751d8e999",
    "nodeTopologyPodsFingerprintMethod": "all",
    "publisher": "nodetopo",
}


def test_the_kubelets_policies_are_told_in_its_own_words() -> None:
    kubelet = KubeletSettings(
        source="configz",
        topology_manager_policy="single-numa-node",
        topology_manager_scope="pod",
        topology_manager_options={"max-allowable-numa-nodes": "16"},
        cpu_manager_policy="static",
        memory_manager_policy="Static",
    )
    assert attributes(kubelet, ()) == {
        "topologyManagerPolicy": "single-numa-node",
        "topologyManagerScope": "pod",
        "topologyManagerMaxNUMANodes": "16",
        "cpuManagerPolicy": "static",
        "memoryManagerPolicy": "Static",
        **UNTOLD,
    }


def test_what_the_kubelet_does_not_tell_is_left_out() -> None:
    assert attributes(None, ()) == UNTOLD
    partly = KubeletSettings(source="file", topology_manager_policy="restricted")
    assert attributes(partly, ()) == {"topologyManagerPolicy": "restricted", **UNTOLD}
