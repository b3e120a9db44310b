"""Rules on device plugins for RDMA: the devices that pods get of the advertised HCAs."""

from collections import Counter

from nodetopo.checks.inputs import because, missing_hcas, missing_numa_nodes, one_numa_node
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, Skip, rule
from nodetopo.components.audit.rules.gpu_pods import container_name
from nodetopo.components.audit.rules.kubelet.inputs import lacking, running
from nodetopo.components.audit.rules.pods.inputs import listed
from nodetopo.components.audit.rules.rdma_devices import (
    Meaning,
    RdmaPools,
    hca_key,
    is_of_the_host,
    is_rdma_device,
    missing_rdma_devices,
    no_rdma_devices,
    rdma_devices,
)
from nodetopo.model.kubelet_state import socket_stems
from nodetopo.model.snapshot import Snapshot

SHARED_PLUGIN = "k8s-rdma-shared-dp"
"""The program of Mellanox/k8s-rdma-shared-dev-plugin."""

_EXCLUSIVE = "exclusive"
_NO_NODE = "-1"
_NET_RDMA = "nvidia.com/net-rdma"
"""The kind of every specification that the shared plugin writes (its pkg/cdi/cdi.go)."""


@rule("PLG-007", Severity.ERROR, unless=no_rdma_devices)
def namespaces(snapshot: Snapshot) -> Judgement:
    """Find resources of shared HCAs on a node whose RDMA devices belong to one namespace each."""
    mode = snapshot.kernel.rdma_netns if snapshot.kernel else None
    shared = [
        name
        for name, ids in (rdma_devices(snapshot) or {}).items()
        if any(map(is_of_the_host, ids))
    ]
    if mode == _EXCLUSIVE:
        for name in shared:
            yield Finding(
                subject=name,
                observed="RDMA network namespaces are exclusive",
                expected="shared, as its HCAs are the host's own",
            )
    yield from missing_rdma_devices(snapshot)
    if mode is None and (shared or rdma_devices(snapshot) is None):
        yield Missing("mode of RDMA network namespaces", because(snapshot, "kernel"))


@rule("PLG-008", Severity.WARNING)
def homeless_devices(snapshot: Snapshot) -> Judgement:
    """Find resources of single HCAs none of whose devices has a NUMA node; PLG-003 has mixtures.

    The checkpoint knows the nodes of devices that containers hold. A container that gets all HCAs
    of a pool has the near ones as well, whatever the kubelet knows.
    """
    settings, pools = running(snapshot), RdmaPools(snapshot)
    policy = None if settings is None else settings.topology_manager_policy
    every = rdma_devices(snapshot)
    single = [
        name
        for name, ids in (every or {}).items()
        if any(pools.meaning(name, device) is Meaning.ONE for device in ids)
    ]
    reason = one_numa_node(snapshot)
    if policy == "none":
        reason = "topologyManagerPolicy is none"
    elif every is not None and not single:
        reason = "no device plugin advertises single HCAs"
    if reason:
        yield Skip(reason)
        return
    placed: Counter[str] = Counter()
    bare: Counter[str] = Counter()
    for device in snapshot.offer.devices if snapshot.offer else ():
        (placed if device.numa_nodes else bare)[device.resource] += 1
    offered = placed.keys() | bare.keys()
    state = snapshot.kubelet_state.devices if snapshot.kubelet_state else None
    for held in state.held if state else ():
        for node, ids in held.ids.items() if held.resource not in offered else ():
            (bare if node == _NO_NODE else placed)[held.resource] += len(ids)
    for name in single if policy is not None and snapshot.numa_nodes is not None else ():
        if bare[name] and not placed[name]:
            yield Finding(
                subject=name,
                observed="no device has a NUMA node",
                expected=f"the node of its HCA, for policy {policy}",
            )
    yield from missing_rdma_devices(snapshot)
    if unplaced := [name for name in single if not placed[name] + bare[name]]:
        yield Missing(f"NUMA nodes of the devices of {listed(unplaced)}")
    yield from missing_numa_nodes(snapshot)
    yield from lacking(snapshot, settings, "topologyManagerPolicy")


@rule("PLG-009", Severity.ERROR)
def fabric_hcas(snapshot: Snapshot) -> Judgement:
    """Find devices for an HCA whose VPD identifies it as the manager of NVSwitches."""
    reason = no_rdma_devices(snapshot)
    if snapshot.management_hcas == ():
        reason = "no HCA of the NVLink fabric"
    if reason:
        yield Skip(reason)
        return
    fabric = {str(hca.pci): hca for hca in snapshot.management_hcas or () if hca.pci is not None}
    unclear, pools = [], RdmaPools(snapshot)
    for name, ids in (rdma_devices(snapshot) or {}).items():
        for key in sorted({hca_key(device) for device in ids} & fabric.keys()):
            yield Finding(
                subject=name,
                observed=f"offers {fabric[key].name} {key}",
                expected="only HCAs that are there for jobs",
            )
        if any(pools.meaning(name, device) in (Meaning.NUMBER, None) for device in ids):
            unclear.append(name)
    for pod in snapshot.pods or ():
        for container in pod.containers:
            held = {
                hca_key(device)
                for devices in container.devices or ()
                for device in devices.ids
                if is_rdma_device(devices.resource, device)
            }
            for key in sorted(held & fabric.keys()):
                yield Finding(
                    subject=container_name(pod, container),
                    observed=f"holds {fabric[key].name} {key}",
                    expected="only HCAs that are there for jobs",
                )
    yield from missing_rdma_devices(snapshot)
    if snapshot.management_hcas is None:
        yield from missing_hcas(snapshot) or (Missing("HCAs of the NVLink fabric"),)
    elif unclear:
        yield Missing(f"which HCAs {listed(unclear)} gives")


@rule("PLG-010", Severity.ERROR)
def other_plugins(snapshot: Snapshot) -> Judgement:
    """Find Mellanox' shared plugin running alongside our socket for an RDMA resource."""
    sockets = snapshot.kubelet_state.plugin_sockets if snapshot.kubelet_state else None
    programs = snapshot.host.peer_programs if snapshot.host else None
    resources = rdma_devices(snapshot)
    ours = []
    for name in resources or ():
        starts = tuple(f"{stem}-" for stem in socket_stems(name))
        if any(socket.startswith(starts) for socket in sockets or ()):
            ours.append(name)
    if sockets is not None and resources is not None and not ours:
        yield Skip("nodetopo advertises no RDMA devices here")
        return
    if ours and programs is not None and SHARED_PLUGIN in programs:
        yield Finding(
            subject=f"program {SHARED_PLUGIN}",
            observed=f"runs alongside nodetopo, which advertises {listed(ours)}",
            expected="one plugin for the shared HCAs",
        )
    yield from missing_rdma_devices(snapshot)
    if sockets is None:
        yield Missing("sockets of device plugins", because(snapshot, "kubelet"))
    if programs is None:
        yield Missing("programs that run on the host")


@rule("PLG-011", Severity.WARNING)
def deleted_specifications(snapshot: Snapshot) -> Judgement:
    """Find the shared plugin with CDI on a node where others write files that it deletes."""
    programs = snapshot.host.peer_programs if snapshot.host else None
    specs = snapshot.host.cdi_specs if snapshot.host else None
    if programs is not None and SHARED_PLUGIN not in programs:
        yield Skip(f"{SHARED_PLUGIN} does not run here")
        return
    its_own = [spec.path for spec in specs or () if spec.kind == _NET_RDMA]
    at_risk = [
        spec.path
        for spec in specs or ()
        if spec.kind != _NET_RDMA and spec.path.rpartition("/")[2].startswith("nvidia.com")
    ]
    if programs is not None and its_own and at_risk:
        yield Finding(
            subject=f"program {SHARED_PLUGIN}",
            observed=f"writes {its_own[0]}, and would delete {listed(at_risk)}",
            expected="no CDI on a node with CDI specifications of GPUs",
        )
    if programs is None:
        yield Missing("programs that run on the host")
    if specs is None:
        yield Missing("CDI specifications")
