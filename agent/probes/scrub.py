"""Invented names in place of those that tell one node, owner or workload from others.

Each original has one substitute of the same form, the same wherever it stands, so that what
was equal stays equal. Substitutes come from a counter, not from the original: nobody can find
out the original by trying candidates.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from agent.model.codec import decode, encode
from agent.model.hca import Hca
from agent.model.pod import Container, Pod
from agent.model.snapshot import Kernel, ProbeIssue, Snapshot

NODE = "node"
"""What every scrubbed node is called."""

PARAMETERS = frozenset(
    """
    amd_iommu amd_pstate cgroup_enable cgroup_no_v1 clocksource default_hugepagesz hugepages
    hugepagesz idle init_on_alloc intel_idle.max_cstate intel_iommu intel_pstate iommu
    iommu.passthrough iommu.strict irqaffinity isolcpus kthread_cpus maxcpus mitigations
    nmi_watchdog nohz nohz_full noht nosmt nosoftlockup nr_cpus numa numa_balancing pci
    pcie_acs_override pcie_aspm pcie_ports processor.max_cstate quiet rcu_nocbs ro rw
    skew_tick split_lock_detect transparent_hugepage tsc vfio-pci.ids
    systemd.unified_cgroup_hierarchy
    """.split(),  # noqa: SIM905 - as prose
)
"""Kernel parameters that are kept with their value (admin-guide/kernel-parameters.txt)."""

MODULES = ("nvidia", "nvidia_drm", "nvidia-drm", "mlx5_core", "mlx4_core", "ib_core", "vfio_pci")
"""Kernel modules whose parameters (``module.name=value``) are kept too."""

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_MAC = re.compile(r"(?<![0-9a-f:])[0-9a-f]{2}(?::[0-9a-f]{2}){5}(?![0-9a-f:])", re.IGNORECASE)
_IPV4 = re.compile(r"(?<![0-9.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![0-9.])")
_IPV4_GID = re.compile(r"((?:0000:){5}ffff:)[0-9a-f]{4}:[0-9a-f]{4}", re.IGNORECASE)
_NAMED_BY_ADDRESS = re.compile(r"(?:enx|wlx|ibx|rocex|iwx|rdmax)([0-9a-f]{12,16})")
"""How udev and rdma-core call a device after its MAC address or GUID."""
_NETWORK_PROBES = ("pods", "podresources")
_DIGITS, _HEX = "0123456789", "0123456789abcdef"
_LEAST = 4
"""Shorter texts are no identifiers, and would be found inside of others."""


@dataclass(slots=True)
class Substitutes:
    """The invented name of each original, by kind."""

    kinds: dict[str, dict[str, str]] = field(default_factory=dict)

    def of(self, kind: str, original: str) -> str:
        """Return the substitute of *original*, inventing it at first sight."""
        known = self.kinds.setdefault(kind, {})
        if original not in known:
            known[original] = _invented(kind, len(known), original)
        return known[original]

    def learn(self, snapshot: Snapshot) -> None:
        """Invent substitutes for what identifies the devices of *snapshot*."""
        for kind, original in _originals(snapshot):
            if len(original) >= _LEAST and original.strip("0:-") != "":
                self.of(kind, original)

    def learn_text(self, text: str) -> None:
        """Invent substitutes for all UUIDs and MAC addresses in *text*."""
        for match in _UUID.finditer(text):
            if match[0].strip("0-"):
                self.of("UUID", match[0])
        for match in _MAC.finditer(text):
            if match[0].strip("0f:"):
                self.of("MAC address", match[0])

    def apply(self, text: str) -> str:
        """Return *text* with every known original replaced, as far as it stands by itself."""
        table = {original: new for known in self.kinds.values() for original, new in known.items()}
        if not table:
            return text
        longest_first = sorted(table, key=len, reverse=True)
        alternatives = "|".join(map(re.escape, longest_first))
        pattern = re.compile(f"(?<![0-9A-Za-z])(?:{alternatives})(?![0-9A-Za-z])")
        return pattern.sub(lambda match: table[match[0]], text)

    def summary(self) -> Iterator[str]:
        """Yield how many of each kind were replaced."""
        for kind, known in self.kinds.items():
            yield f"{len(known)} {kind}{'' if len(known) == 1 else 's'} replaced"


def scrubbed(
    snapshot: Snapshot, substitutes: Substitutes, hosts: Iterable[str] = ()
) -> tuple[Snapshot, tuple[str, ...]]:
    """Return *snapshot* without what identifies its node, and what was done to it.

    Args:
        hosts: other names of the node.
    """
    before = snapshot.kernel.command_line if snapshot.kernel else None
    learn_hosts(substitutes, (snapshot.node or "", *hosts))
    substitutes.learn(snapshot)
    named = replace(
        snapshot,
        node=None if snapshot.node is None else NODE,
        kernel=_kernel(snapshot.kernel),
        pods=None if snapshot.pods is None else _pods(snapshot.pods, substitutes),
        issues=tuple(_issue(issue, snapshot.pods or ()) for issue in snapshot.issues),
    )
    text = encode(named)
    substitutes.learn_text(text)
    after = named.kernel.command_line if named.kernel else None
    done = [] if before == after else ["parameters of the kernel's command line left out"]
    return decode(substitutes.apply(text)).snapshot, (*substitutes.summary(), *done)


def learn_hosts(substitutes: Substitutes, names: Iterable[str]) -> None:
    """Invent nothing for the node's names: all of them become :data:`NODE`."""
    for name in names:
        if len(name) >= _LEAST:
            substitutes.kinds.setdefault("host name", {})[name] = NODE


def command_line(text: str) -> str:
    """Return a kernel command line with the parameters that are known to tell no secret."""
    kept = (word for word in text.split() if _is_kept(word.partition("=")[0]))
    return " ".join(kept)


def _is_kept(name: str) -> bool:
    return name in PARAMETERS or name.startswith(tuple(f"{module}." for module in MODULES))


def _kernel(kernel: Kernel | None) -> Kernel | None:
    if kernel is None or kernel.command_line is None:
        return kernel
    return replace(kernel, command_line=command_line(kernel.command_line))


def _originals(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for gpu in snapshot.gpus:
        yield "serial number", gpu.serial or ""
        yield "GPU UUID", gpu.uuid or ""
        for instance in gpu.mig.instances if gpu.mig else ():
            yield "MIG UUID", instance.uuid
        yield "UUID", (gpu.fabric and gpu.fabric.cluster_uuid) or ""
    for hca in (*(snapshot.hcas or ()), *(snapshot.management_hcas or ())):
        yield from _of_hca(hca)


def _of_hca(hca: Hca) -> Iterator[tuple[str, str]]:
    yield "GUID", hca.node_guid or ""
    yield "GUID", hca.sys_image_guid or ""
    for name in (hca.name, *(netdev.name for netdev in hca.netdevs)):
        if _NAMED_BY_ADDRESS.fullmatch(name):
            yield "device name", name
    for port in hca.ports:
        for gid in port.gids:
            yield "GID", gid.gid


def _pods(pods: Iterable[Pod], substitutes: Substitutes) -> tuple[Pod, ...]:
    return tuple(
        replace(
            pod,
            namespace=_counted(substitutes, "namespace", pod.namespace),
            name=_counted(substitutes, "pod", f"{pod.namespace}/{pod.name}"),
            uid=None if pod.uid is None else substitutes.of("UUID", pod.uid),
            containers=tuple(_container(container, substitutes) for container in pod.containers),
        )
        for pod in pods
    )


def _container(container: Container, substitutes: Substitutes) -> Container:
    # The ids of its devices are UUIDs and PCI addresses: the first are replaced as text.
    return replace(container, name=_counted(substitutes, "container", container.name))


def _counted(substitutes: Substitutes, kind: str, original: str) -> str:
    # A kind of its own, and no text: `default` and `gpu` are words of other places too.
    known = substitutes.kinds.setdefault(f"{kind} name", {})
    key = f"\0{original}"
    known.setdefault(key, f"{kind}-{len(known)}")
    return known[key]


def _issue(issue: ProbeIssue, pods: Iterable[Pod]) -> ProbeIssue:
    if issue.probe not in _NETWORK_PROBES:
        return issue
    names = [n for pod in pods for n in (pod.name, pod.namespace, pod.uid or "")]
    subject, reason = issue.subject, _IPV4.sub("192.0.2.1", issue.reason)
    for name in filter(None, names):
        subject, reason = subject.replace(name, "…"), reason.replace(name, "…")
    return replace(issue, subject=subject, reason=reason)


def _invented(kind: str, number: int, original: str) -> str:
    seed = f"nodetopo {kind} {number}"
    if kind == "GID":
        return _gid(seed, original)
    kept = ""
    if named := _NAMED_BY_ADDRESS.fullmatch(original):
        kept = original[: named.start(1)]
    elif "UUID" in kind and (prefix := re.match(r"(?:MIG-)?(?:GPU-)?", original)):
        kept = prefix[0]
    alphabet = _DIGITS if original.isdecimal() else _HEX
    return kept + _shaped(seed, original[len(kept) :], alphabet)


def _gid(seed: str, original: str) -> str:
    """Keep what a GID's form says: an IPv4 address, a link-local one, the zeros between."""
    if _IPV4_GID.fullmatch(original):
        return f"{original[:30]}0a{_shaped(seed, '00:0000', _HEX)}"
    groups = [
        group if group in ("fe80", "0000") else _shaped(f"{seed} {at}", group, _HEX)
        for at, group in enumerate(original.split(":"))
    ]
    return ":".join(groups)


def _shaped(seed: str, original: str, alphabet: str) -> str:
    """Return *original* with each letter and digit replaced, everything else kept."""
    digest = hashlib.sha256(seed.encode()).digest() * (len(original) // 32 + 1)
    pairs = zip(original, digest, strict=False)
    return "".join(
        (alphabet[byte % len(alphabet)] if sign.isalnum() else sign) for sign, byte in pairs
    )
