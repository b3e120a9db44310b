"""One node as its Topology Manager knows it, changed by each pod that is admitted."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.admission.cpu_manager import Cpus
from agent.admission.device_manager import Devices
from agent.admission.memory_manager import Memory
from agent.admission.merge import Merger


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What pods may ask for in sum, which the kubelet checks last.

    Attributes:
        allocatable: resource → amount, CPU in millicores.
        requested: the same, of all pods together.
    """

    allocatable: Mapping[str, int]
    requested: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The managers of one kubelet.

    Attributes:
        merger: ``None`` under policy ``none``.
        scope: ``container`` or ``pod``.
        cpus, memory: ``None`` where the manager's policy is none.
        devices: by resource.
        room: ``None`` where it is not known.
    """

    merger: Merger | None
    scope: str
    cpus: Cpus | None
    memory: Memory | None
    devices: Mapping[str, Devices] = field(default_factory=dict)
    room: Room | None = None

    def copy(self) -> "Node":
        """Return a copy to admit one pod on, with nothing to reuse from the pod before."""
        copy = replace(
            self,
            cpus=self.cpus and self.cpus.copy(),
            memory=self.memory and self.memory.copy(),
            devices={name: one.copy() for name, one in self.devices.items()},
        )
        copy.forget_reusable()
        return copy

    def forget_reusable(self) -> None:
        """Begin a pod: nothing is left of init containers."""
        if self.cpus is not None:
            self.cpus.reusable = frozenset()
        if self.memory is not None:
            self.memory.reusable = {}
        for one in self.devices.values():
            one.reusable = frozenset()
