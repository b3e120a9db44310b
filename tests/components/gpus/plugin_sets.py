"""A set of plugins beside a kubelet, for tests of what is served."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from nodetopo.components.gpus.component import Gpus
from nodetopo.kernel.component import Kernel
from nodetopo.model.hca_health import HcaHealth
from tests.deviceplugin.eventually import eventually
from tests.kernel.running import component_of, kernel_of, kubelet_of, running

WAIT_S = 60.0


class ServedNode:
    """The plugins of GPUs and HCAs, and the kubelet that they serve."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.plugins = component_of(kernel, Gpus).plugins
        self.kubelet = kubelet_of(kernel)
        self.directory = kernel.target.socket_dir

    def reconfigure(self, **settings: Any) -> None:
        """Ask for other settings, all but *settings* as they are by default."""
        chosen = kernel_of(self.directory, **settings).settings
        changes = [component.reconfigured(chosen) for component in self.kernel.running]
        for change in reversed(changes):
            change()

    @property
    def hcas(self) -> Any:
        """The companion of the component ``rdma``, which offers HCAs alongside the GPUs."""
        (component,) = (it for it in self.kernel.running if it.name == "rdma")
        return component.companion  # type: ignore[attr-defined] # of a component that may be gone

    def pool(self, resource: str) -> Any:
        """Return the pool *resource* as it is offered after the latest snapshot."""
        (pool,) = (it for it in self.hcas.pools if it.resource.name == resource)
        return pool.resource

    def have_unhealthy(self, *keys: str) -> None:
        """Have the HCAs with these *keys* Unhealthy from the next snapshot on."""
        view = {key: HcaHealth(name=key, is_healthy=False) for key in keys}
        self.hcas._health = SimpleNamespace(view=view, known=())

    def listed(self, *resources: str) -> dict[str, int]:
        """Return how many devices of each the kubelet has, waiting for them."""
        views = (self.kubelet.wait_registered(WAIT_S, name) for name in resources)
        return {view.resource: len(view.devices) for view in views}

    def is_followed(self, resource: str) -> bool:
        """Tell whether the kubelet follows the plugin of now, and none from before it.

        Up to 1.36 it drops the newest plugin when it notices the end of an older one.
        """
        view, following = self.kubelet.view(resource), self.kubelet._streaming
        paths = [one.path.name for one in tuple(following) if one.resource == resource]
        endpoint = self.plugins.states[resource].endpoint
        return view is not None and [view.endpoint] == paths == [endpoint]

    def lacks(self, resource: str) -> bool:
        """Tell whether the kubelet has no connection for *resource*, after a while."""
        return eventually(lambda: self.kubelet.view(resource) is None)


@contextmanager
def serving_node(**settings: Any) -> Iterator[ServedNode]:
    """Yield the plugins that *settings* ask for; they have taken nothing yet."""
    with running("gpus", "rdma", **settings) as kernel:
        yield ServedNode(kernel)
