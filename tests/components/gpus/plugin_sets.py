"""A set of plugins beside a kubelet, for tests of what is served."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from nodetopo.components.gpus.plan import load_table
from nodetopo.components.gpus.plugins import PluginSet
from nodetopo.components.rdma.companion import HcaCompanion
from nodetopo.components.rdma.plan import RdmaPlan
from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from nodetopo.kernel.offers import NoCompanion
from nodetopo.kernel.places import Places
from nodetopo.kernel.settings.declare import Settings
from nodetopo.model.hca_health import HcaHealth
from tests.deviceplugin.eventually import eventually
from tests.generous_deadlines import generous_deadlines

WAIT_S = 60.0


class ServedNode:
    """A set of plugins, and the kubelet that it serves."""

    def __init__(
        self,
        plugins: PluginSet,
        companion: HcaCompanion | None,
        kubelet: FakeKubelet,
        directory: Path,
    ) -> None:
        self.plugins = plugins
        self._companion = companion
        self.kubelet = kubelet
        self.directory = directory

    def reconfigure(self, **settings: Any) -> None:
        """Ask for other settings, all but *settings* as they are by default."""
        settings = {"device_list_strategy": ("cdi-cri",), **settings}
        chosen = Settings(node_name="n", device_plugin_dir=self.directory, **settings)
        change = self.plugins.reconfigured(chosen, load_table(chosen))
        if self._companion is not None:
            plan = RdmaPlan.of(chosen, is_simulated=False)
            self._companion.use(plan, Places.of(chosen, self.directory, is_simulated=False))
        change()

    @property
    def hcas(self) -> HcaCompanion:
        """The HCAs that are offered alongside the GPUs."""
        assert self._companion is not None
        return self._companion

    def have_unhealthy(self, *keys: str) -> None:
        """Have the HCAs with these *keys* Unhealthy from the next snapshot on."""
        view = {key: HcaHealth(name=key, is_healthy=False) for key in keys}
        self.hcas._health = SimpleNamespace(view=view)  # type: ignore[assignment]

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


def companion_of(settings: Settings, directory: Path) -> HcaCompanion | None:
    """Return what offers HCAs by *settings* to the kubelet in *directory*, if they ask for any."""
    if settings.rdma_config is None and settings.gpu_hca_resource is None:
        return None
    plan = RdmaPlan.of(settings, is_simulated=False)
    return HcaCompanion(plan, Places.of(settings, directory, is_simulated=False))


@contextmanager
def serving_node(**settings: Any) -> Iterator[ServedNode]:
    """Yield a set of plugins with *settings* that has taken nothing yet."""
    settings = {"device_list_strategy": ("cdi-cri",), **settings}  # not by this machine's files
    with (
        generous_deadlines(),
        TemporaryDirectory(prefix="nodetopo-") as directory,
        FakeKubelet(Path(directory)) as it,
    ):
        chosen = Settings(node_name="n", device_plugin_dir=Path(directory), **settings)
        companion = companion_of(chosen, Path(directory))
        plugins = PluginSet(
            chosen,
            Path(directory),
            load_table(chosen),
            companion=lambda: companion or NoCompanion(),
        )
        try:
            yield ServedNode(plugins, companion, it, Path(directory))
        finally:
            plugins.stop()
