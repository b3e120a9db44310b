"""A set of plugins beside a kubelet, for tests of what is served."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agent.config.settings import Settings
from agent.daemon.plugin_plan import load_pools, load_table
from agent.daemon.plugins import PluginSet
from agent.deviceplugin.fake_kubelet import FakeKubelet
from tests.deviceplugin.eventually import eventually
from tests.generous_deadlines import generous_deadlines

WAIT_S = 60.0


class ServedNode:
    """A set of plugins, and the kubelet that it serves."""

    def __init__(self, plugins: PluginSet, kubelet: FakeKubelet, directory: Path) -> None:
        self.plugins = plugins
        self.kubelet = kubelet
        self.directory = directory

    def reconfigure(self, **settings: Any) -> None:
        """Ask for other settings, all but *settings* as they are by default."""
        settings = {"device_list_strategy": ("cdi-cri",), **settings}
        chosen = Settings(node_name="n", device_plugin_dir=self.directory, **settings)
        self.plugins.reconfigure(chosen, load_table(chosen), load_pools(chosen))

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
    """Yield a set of plugins with *settings* that has taken nothing yet."""
    settings = {"device_list_strategy": ("cdi-cri",), **settings}  # not by this machine's files
    with (
        generous_deadlines(),
        TemporaryDirectory(prefix="nodetopo-") as directory,
        FakeKubelet(Path(directory)) as it,
    ):
        chosen = Settings(node_name="n", device_plugin_dir=Path(directory), **settings)
        plugins = PluginSet(chosen, Path(directory), load_table(chosen), load_pools(chosen))
        try:
            yield ServedNode(plugins, it, Path(directory))
        finally:
            plugins.stop()
