"""What there is to show of the pools of HCAs once the kubelet has the devices."""

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.components.gpus.plugins import PluginSet
from nodetopo.components.rdma.answers import given_hcas
from nodetopo.components.rdma.companion import HcaCompanion
from nodetopo.components.rdma.plugins import ServedPool
from nodetopo.components.rdma.resources import RdmaResource
from nodetopo.deviceplugin.plugin import PluginState
from nodetopo.kernel.component import Kernel
from nodetopo.kernel.target import Target
from nodetopo.rdma.pairing import Pair, Pairing


class ReadyPool(Struct, frozen=True, kw_only=True):
    """A pool of HCAs that the kubelet has."""

    resource: RdmaResource
    plugin: PluginState
    # Those of a container that asks the stand-in kubelet for four GPUs and as many devices of the
    # pool; empty with a real kubelet.
    gpus: tuple[str, ...] = ()
    hcas: tuple[str, ...] = ()  # names of the HCAs that this container gets
    pairs: tuple[Pair, ...] = ()  # how these belong together


def ready_pools(kernel: Kernel, most: int) -> tuple[ReadyPool, ...]:
    """Return the pools that the kubelet has; the container shown asks for up to *most* of each."""
    companion, plugins = kernel.companion, kernel.gpus
    assert isinstance(companion, HcaCompanion)
    assert isinstance(plugins, PluginSet)
    return tuple(_ready_pool(pool, plugins, kernel.target, most) for pool in companion.pools)


def _ready_pool(pool: ServedPool, plugins: PluginSet, target: Target, most: int) -> ReadyPool:
    """Return *pool*; on a stand-in kubelet, admit a container that asks for GPUs and HCAs."""
    resource, kubelet = pool.resource, target.fake_kubelet
    ready = ReadyPool(resource=resource, plugin=pool.plugin.state)
    served = next((offered for offered in plugins.served if offered.resource.is_whole), None)
    snapshot = plugins.taken
    if kubelet is None or served is None or snapshot is None:
        return ready
    free = sum(device.is_healthy for device in served.resource.devices)
    tokens = sum(device.is_healthy for device in resource.devices)
    size = min(most, free, tokens)
    if size == 0:
        return ready
    gpus = kubelet.preferred(size, resource=served.resource.name)
    kubelet.allocate(gpus, served.resource.name)
    ids = kubelet.preferred(size, resource=resource.name)
    kubelet.allocate(ids, resource.name)
    given = given_hcas(resource, [device for device in resource.devices if device.id in ids])
    positions = [at for at, gpu in enumerate(snapshot.gpus) if gpu.id in gpus]
    hcas = [resource.positions[key] for key in given]
    return replace(
        ready,
        gpus=gpus,
        hcas=tuple(hca.name for hca in given.values()),
        pairs=Pairing(snapshot=snapshot).matched(positions, hcas),
    )
