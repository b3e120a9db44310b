"""Verifies whether GPUs and HCAs assumed to belong to one container really do."""

import structlog

from nodetopo.components.rdma.joint import JointPlacement
from nodetopo.errors import UnreadableError
from nodetopo.kernel.loops import PeriodicLoop
from nodetopo.kernel.settings.own import KernelSettings
from nodetopo.outage import Outage
from nodetopo.probes.kubelet.podresources import PodResources

INTERVAL_S = 15.0
"""Between two looks; the kubelet is asked only where a guess waits."""

SETTLED_S = 5.0
"""How long after an allocation the kubelet certainly lists the container. It does as soon as the
pod is admitted, which takes milliseconds from there."""


class JointLoop(PeriodicLoop):
    """Reads the containers' devices from the kubelet, and decides the guesses by them."""

    def __init__(self, settings: KernelSettings, joint: JointPlacement) -> None:
        """Ask nothing yet."""
        self._pods = PodResources(settings.pod_resources_socket)
        self._joint = joint
        self._problem = Outage()

    def step(self) -> float:
        """Decide the open guesses; return the seconds until the next look."""
        if not self._joint.guesses:
            return INTERVAL_S
        try:
            pods = self._pods.assigned()
        except UnreadableError as error:
            if self._problem.failed(str(error)):
                structlog.get_logger().warning("joint placement not verified", problem=str(error))
            return INTERVAL_S
        self._problem.ended()
        held = [
            {(given.resource, name) for given in container.devices or () for name in given.ids}
            for pod in pods
            for container in pod.containers
        ]
        self._joint.verify(held, SETTLED_S)
        return INTERVAL_S

    def close(self) -> None:
        """Close the connection to the kubelet."""
        self._pods.close()
