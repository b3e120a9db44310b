"""Labels of a Node that say what is being done to its GPUs, and which machine it is.

Sources: NVIDIA/k8s-operator-libs pkg/upgrade/consts.go (states of a driver upgrade),
NVIDIA/k8s-driver-manager cmd/driver-manager (``maybeSetPaused``), NVIDIA/mig-parted
pkg/mig/reconfigure and deployments/container/reconfigure-mig.sh.
"""

from collections.abc import Mapping

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
"""The provider's name of the machine's type (well-known label of Kubernetes)."""

DEVICE_PLUGIN = "nvidia.com/gpu.deploy.device-plugin"
"""Whether the GPU Operator runs a device plugin on the node."""

GPU_CLIENT = "nvidia.com/gpu.deploy.client"
"""Whether DaemonSets of others that use GPUs can run; the driver manager and the MIG manager wait
for pods whose DaemonSet selects nodes by this label."""

UPGRADE_STATE = "nvidia.com/gpu-driver-upgrade-state"
"""How far the GPU Operator's upgrade of the driver has come."""

MIG_STATE = "nvidia.com/mig.config.state"
"""How far the MIG manager has come with a change."""

KEPT = (INSTANCE_TYPE, DEVICE_PLUGIN, GPU_CLIENT, UPGRADE_STATE, MIG_STATE)
"""The labels that a snapshot has."""

_PAUSED = "paused-for-"
"""Followed by ``driver-upgrade`` or ``mig-change``. Behind a value of an administrator's the driver
manager appends it after an underscore."""

_UNLOADING = frozenset(
    {
        "pod-deletion-required",
        "drain-required",
        "node-maintenance-required",
        "post-maintenance-required",
        "pod-restart-required",
        "upgrade-failed",
    }
)
"""States in which the driver is about to be unloaded, or could not be. Earlier ones let jobs run;
from ``validation-required`` on the new driver is loaded."""

_CHANGING = "pending"


def driver_claim(labels: Mapping[str, str]) -> str | None:
    """Return the label, ``key=value``, that asks for the driver to be free; ``None`` for none."""
    asks = {
        DEVICE_PLUGIN: _PAUSED in labels.get(DEVICE_PLUGIN, ""),
        GPU_CLIENT: _PAUSED in labels.get(GPU_CLIENT, ""),
        UPGRADE_STATE: labels.get(UPGRADE_STATE) in _UNLOADING,
        MIG_STATE: labels.get(MIG_STATE) == _CHANGING,
    }
    return next((f"{key}={labels[key]}" for key, is_asking in asks.items() if is_asking), None)
