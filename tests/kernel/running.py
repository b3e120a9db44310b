"""Components on a node beside a kubelet, made as a daemon makes them."""

import dataclasses
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from nodetopo.kernel.assembly import add
from nodetopo.kernel.component import Component, Kernel
from nodetopo.kernel.components import COMPONENTS, terms_of
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kernel.store import SnapshotStore
from nodetopo.kernel.target import Machine, Target
from nodetopo.model.nvml_event import NvmlStatus
from nodetopo.model.snapshot import Snapshot
from tests.deviceplugin import machines
from tests.generous_deadlines import generous_deadlines

WHOLE = machines.node("h100x8-nvswitch-2numa-8cx7")

QUIET: dict[str, Any] = {
    "device_list_strategy": ("cdi-cri",),  # not by this machine's files
    "health_file": None,
    "metrics_address": None,
}
"""Settings of a daemon that leaves this machine alone."""

Kind = TypeVar("Kind", bound=Component)


def kernel_of(
    directory: Path, node: Snapshot = WHOLE, *, simulated: str | None = None, **settings: Any
) -> Kernel:
    """Return the kernel of a daemon on *node* that serves the kubelet in *directory*."""
    machine = Machine(read=lambda: node, reread=lambda: None, nvml=NvmlStatus)
    chosen: dict[str, Any] = {
        **QUIET,
        "kubeconfig": directory / "none",
        "device_plugin_dir": directory,
        **settings,
    }
    return Kernel(
        settings=Settings(node_name="gpu-1", **chosen),
        target=Target(machine=machine, simulated=simulated, socket_dir=directory),
        store=SnapshotStore(),
    )


def added(kernel: Kernel, name: str) -> Component | None:
    """Make the component *name* for *kernel*; ``None`` where the settings do not ask for it."""
    is_wanted = name in COMPONENTS and terms_of(name).is_wanted(kernel)
    return add(kernel, name) if is_wanted else None


def loops(kernel: Kernel, names: Iterable[str]) -> list[str]:
    """Return the loops of the components *names* that are wanted."""
    made = [added(kernel, name) for name in names]
    return [name for component in made if component is not None for name, _ in component.loops()]


def component_of(kernel: Kernel, kind: type[Kind]) -> Kind:
    """Return the component of *kernel* of this *kind*."""
    (found,) = (component for component in kernel.running if isinstance(component, kind))
    return found


def with_settings(kernel: Kernel, **settings: Any) -> None:
    """Have other *settings* in force in *kernel*."""
    kernel.settings = dataclasses.replace(kernel.settings, **settings)


@contextmanager
def running(
    *names: str, node: Snapshot = WHOLE, simulated: str | None = None, **settings: Any
) -> Iterator[Kernel]:
    """Yield a kernel with the components *names* on *node*, alongside a kubelet.

    They have taken nothing yet, and none of their loops runs. The kubelet is a stand-in, by
    ``kubelet_of``.
    """
    with (
        generous_deadlines(),
        TemporaryDirectory(prefix="nodetopo-") as folder,
        FakeKubelet(Path(folder)) as kubelet,
    ):
        kernel = kernel_of(Path(folder), node, simulated=simulated, **settings)
        _kubelets[id(kernel)] = kubelet
        try:
            for name in names:
                added(kernel, name)
            yield kernel
        finally:
            for component in kernel.running:
                component.close()
            del _kubelets[id(kernel)]


def kubelet_of(kernel: Kernel) -> FakeKubelet:
    """Return the stand-in for the kubelet that the components of *kernel* serve."""
    return _kubelets[id(kernel)]


_kubelets: dict[int, FakeKubelet] = {}
"""By the identity of the kernel, which does not know that its kubelet is a stand-in."""
