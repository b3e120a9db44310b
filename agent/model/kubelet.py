"""What the kubelet was told to do."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletSettings:
    """Effective settings that decide alignment, with where they were learnt.

    Policies are spelled as the kubelet spells them (``static``, ``single-numa-node``,
    ``Static`` for memory); a setting absent from a file that was read has the kubelet's
    default here. ``None`` means that the source does not tell.

    Attributes:
        source: ``configz``, or the path of the file.
        system_reserved, kube_reserved, eviction_hard: resource → quantity as written.
    """

    source: str
    version: str | None = None
    cpu_manager_policy: str | None = None
    cpu_manager_options: Mapping[str, str] | None = None
    memory_manager_policy: str | None = None
    topology_manager_policy: str | None = None
    topology_manager_scope: str | None = None
    topology_manager_options: Mapping[str, str] | None = None
    reserved_system_cpus: str | None = None
    system_reserved: Mapping[str, str] | None = None
    kube_reserved: Mapping[str, str] | None = None
    eviction_hard: Mapping[str, str] | None = None
