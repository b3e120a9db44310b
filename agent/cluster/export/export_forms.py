"""Who can be exported to, and in which forms; apart, so that ``--help`` need load no more."""

from collections.abc import Mapping
from types import MappingProxyType

FORMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "kai": (),
        "kueue": (),
        "volcano": ("hypernodes", "discovery"),
        "kubernetes": ("v1alpha2", "v1beta1"),
        "grove": (),
        "lws": (),
        "runai": (),
        "slurm": ("yaml", "conf-tree", "conf-block"),
        "topograph": ("engine", "provider"),
    }
)
"""Forms by scheduler, the usual one first; empty where there is one only.

Versions are those of PodGroup, alike in what is used here: Kubernetes 1.36 and 1.37 (k8s.io/api
v0.36.3 scheduling/v1alpha2, v0.37.0 scheduling/v1beta1).
"""

SCHEDULERS: tuple[str, ...] = tuple(FORMS)
"""In the order of ``--help``."""

DEFAULT_NAME = "gpu-topology"
"""Of the object; short enough for all (Volcano's discovery takes 20 characters)."""
