"""Configurations that both plugins must read alike, with what a node then offers."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import yaml
from msgspec import Struct, field

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
ONE, THREE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"

Amounts = Mapping[str, int]

_NO_EXTRAS = {"gdrcopyEnabled": False, "gdsEnabled": False, "mofedEnabled": False}
"""What containers get beside GPUs is on by default in v0.19.0, and off in ours."""


class Case(Struct, frozen=True, kw_only=True):
    """One configuration on one machine.

    Attributes:
        machine: a name of :data:`~tests.lab.nvidia.machines.MACHINES`.
        amounts: how many devices of each resource both plugins list.
        mig: ``flags.migStrategy``.
        slicing: ``sharing.timeSlicing``.
        plugin: ``flags.plugin``; devices are handed over by ``envvar`` unless it says else.
        flags: the rest of ``flags``.
        more: further keys of the file.
    """

    machine: str
    amounts: Amounts
    mig: str = "none"
    slicing: Mapping[str, Any] | None = None
    plugin: Mapping[str, Any] = field(default_factory=dict)
    flags: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> str:
        """The file, as an operator would write it."""
        handing = {"deviceListStrategy": "envvar", **self.plugin}
        flags = {"migStrategy": self.mig, **_NO_EXTRAS, **self.flags, "plugin": handing}
        sharing = {} if self.slicing is None else {"sharing": {"timeSlicing": dict(self.slicing)}}
        return yaml.safe_dump({"version": "v1", "flags": flags, **sharing, **self.more})


def sliced(*resources: tuple[str, int], **options: bool) -> dict[str, Any]:
    """Return a ``timeSlicing`` of replicas by resource."""
    return {**options, "resources": [{"name": name, "replicas": n} for name, n in resources]}


_RENAMED_ONE = f"{ONE}.shared"
_CHOOSY = {"name": GPU, "rename": "nvidia.com/other", "devices": [0], "replicas": 2}
_PATTERNS = {"gpus": [{"pattern": "*H100*", "name": "hopper"}], "mig": []}

_OFFERS: Mapping[str, Case] = MappingProxyType(
    {
        "whole": Case(machine="whole", amounts={GPU: 8}),
        "sparse-numa-nodes": Case(machine="power9", amounts={GPU: 4}),
        "memory-without-cpus": Case(machine="gb200", amounts={GPU: 4}),
        "whole-single": Case(machine="whole", amounts={GPU: 8}, mig="single"),
        "whole-mixed": Case(machine="whole", amounts={GPU: 8}, mig="mixed"),
        "replicas": Case(machine="whole", amounts={GPU: 16}, slicing=sliced((GPU, 2))),
        "renamed": Case(
            machine="whole",
            amounts={SHARED: 32},
            slicing=sliced((GPU, 4), renameByDefault=True),
        ),
        "one-each": Case(
            machine="whole",
            amounts={GPU: 32},
            slicing=sliced((GPU, 4), failRequestsGreaterThanOne=True),
        ),
        "no-such-resource": Case(machine="whole", amounts={GPU: 8}, slicing=sliced((ONE, 2))),
        "rename-and-devices-are-ignored": Case(
            machine="whole", amounts={GPU: 16}, slicing={"resources": [_CHOOSY]}
        ),
        "patterns-are-ignored": Case(
            machine="whole", amounts={GPU: 8}, more={"resources": _PATTERNS}
        ),
        "mig-none": Case(machine="mig", amounts={GPU: 8}),
        "mig-mixed": Case(machine="mig", amounts={GPU: 5, ONE: 7, THREE: 2}, mig="mixed"),
        "mig-mixed-replicas": Case(
            machine="mig",
            amounts={GPU: 10, ONE: 21, THREE: 2},
            mig="mixed",
            slicing=sliced((GPU, 2), (ONE, 3)),
        ),
        "mig-mixed-renamed": Case(
            machine="mig",
            amounts={GPU: 5, _RENAMED_ONE: 14, THREE: 2},
            mig="mixed",
            slicing=sliced((ONE, 2), renameByDefault=True),
        ),
        "uniform-single": Case(machine="uniform", amounts={GPU: 16}, mig="single"),
        "uniform-mixed": Case(machine="uniform", amounts={THREE: 16}, mig="mixed"),
        "uniform-single-replicas": Case(
            machine="uniform",
            amounts={GPU: 64},
            mig="single",
            slicing=sliced((GPU, 4), failRequestsGreaterThanOne=True),
        ),
    }
)
"""By what is offered."""

_MIXED = {GPU: 5, ONE: 7, THREE: 2}
_SPECS = {"passDeviceSpecs": True}
_EXTRAS = dict.fromkeys(_NO_EXTRAS, True)
_ALL_OF_CDI = {"deviceListStrategy": ["cdi-cri", "cdi-annotations"]}
_DRIVER = {"containerDriverRoot": "@HOST@"}
_KIND = {"nodetopo": {"cdi-kind": "k8s.device-plugin.nvidia.com/gpu"}}
"""NVIDIA's plugin names devices by a kind that no setting changes (v0.19.0, plugin-manager.go)."""

_ANSWERS: Mapping[str, Case] = MappingProxyType(
    {
        "nodes": Case(machine="whole", amounts={GPU: 8}, plugin=_SPECS),
        "nodes-of-mig": Case(machine="mig", amounts=_MIXED, mig="mixed", plugin=_SPECS),
        "nodes-elsewhere": Case(
            machine="whole",
            amounts={GPU: 8},
            flags={"nvidiaDriverRoot": "/run/nvidia/driver"},
            plugin=_SPECS,
        ),
        "mounts": Case(
            machine="mig",
            amounts=_MIXED,
            mig="mixed",
            plugin={"deviceListStrategy": "volume-mounts"},
        ),
        "mounts-and-variable": Case(
            machine="whole",
            amounts={GPU: 16},
            slicing=sliced((GPU, 2)),
            plugin={"deviceListStrategy": ["envvar", "volume-mounts"], **_SPECS},
        ),
        "imex-and-extras": Case(
            machine="whole",
            amounts={GPU: 8},
            flags=_EXTRAS,
            plugin={"deviceListStrategy": ["envvar", "volume-mounts"], **_SPECS},
            more={"imex": {"channelIDs": [0]}},
        ),
        "cdi": Case(
            machine="whole",
            amounts={GPU: 16},
            slicing=sliced((GPU, 2)),
            plugin={**_ALL_OF_CDI, **_SPECS, **_DRIVER},
            more=_KIND,
        ),
        "cdi-of-mig": Case(
            machine="mig",
            amounts=_MIXED,
            mig="mixed",
            plugin={**_ALL_OF_CDI, **_DRIVER},
            more=_KIND,
        ),
        "cdi-and-variable": Case(
            machine="whole",
            amounts={GPU: 8},
            flags=_EXTRAS,
            plugin={"deviceListStrategy": ["cdi-cri", "envvar"], **_SPECS, **_DRIVER},
            more={**_KIND, "imex": {"channelIDs": [0]}},
        ),
    }
)
"""By how devices are handed over."""

CASES: Mapping[str, Case] = MappingProxyType({**_OFFERS, **_ANSWERS})
