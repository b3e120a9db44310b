"""No file of ours ends a loop: every one, with every error, at the start and meanwhile."""

import errno
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.components.audit.check_terms import OverridesFile
from nodetopo.components.dra.driver.claims import AllocatedDevice, ClaimReference
from nodetopo.components.dra.driver.prepared import PreparedClaims
from nodetopo.components.dra.driver.server import DraServer
from nodetopo.components.dra.driver.service import DeviceHealth, DraServicer
from nodetopo.components.dra.held import HeldDevices
from nodetopo.components.dra.neighbours import claims_of
from nodetopo.components.dra.pool import BackingDevices
from nodetopo.components.dra.terms import needs_driver
from nodetopo.components.gpus.expected import ExpectedGpuCount, expected_here
from nodetopo.components.gpus.health.clear_socket import ClearServer
from nodetopo.components.gpus.health.monitor import configured_gpus, configured_health
from nodetopo.components.labels.outputs.nfd import NfdFile
from nodetopo.components.rdma.health.monitor import configured_hca_health
from nodetopo.deviceplugin.cdi_writer import CdiFile
from nodetopo.deviceplugin.nccl_file import NcclHints
from nodetopo.errors import AgentError
from nodetopo.kernel.log_writer import LogCopy
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kernel.settings.kept import keep_settings
from nodetopo.kernel.settings.named import listed
from nodetopo.kernel.settings.resolve import Resolved
from nodetopo.machines.bundled import machine
from nodetopo.model.nvml_event import EventKind, NvmlEvent, NvmlStatus
from nodetopo.probes.kubelet.podresources import PodResources
from tests.components.labels.outputs.desired_labels import desired
from tests.failing_files import failing
from tests.kernel.running import kernel_of

Use = Callable[[], object]

DGX = machine("dgx-h100")

CODES = (
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
    errno.ESTALE,
    errno.ELOOP,
    errno.ENOTDIR,
    errno.EROFS,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EMFILE,
    errno.EBUSY,
)


def settings(folder: Path) -> Settings:
    return Settings(node_name="n", health_file=folder / "health.json")


def gpu_count(folder: Path) -> Use:
    count = ExpectedGpuCount(settings(folder), folder / "health.json")
    numbers = iter(range(3, 8))

    def use() -> None:
        snapshot = replace(DGX, gpus=(), pci_gpus=(DGX.pci_gpus or ())[: next(numbers)])
        count.put_into(snapshot)
        expected_here(settings(folder), folder / "health.json")

    return use


def health(folder: Path) -> Use:
    watch = configured_health(settings(folder), "boot", lambda: None)
    assert watch is not None
    codes = iter((79, 95, 48, 119, 64))

    def use() -> None:
        gpu = DGX.gpus[0].id
        event = NvmlEvent(kind=EventKind.XID, gpu=gpu, xid=next(codes), count=1)
        watch.take_events([event])
        watch.tick()
        watch.look(DGX, NvmlStatus())

    return use


def known_gpus(folder: Path) -> Use:
    known = configured_gpus(settings(folder), "boot")
    assert known is not None
    numbers = iter(range(1, 8))
    known.load()
    return lambda: known.save(DGX.gpus[: next(numbers)])


def hcas(folder: Path) -> Use:
    watch = configured_hca_health(settings(folder), lambda: None)
    assert watch is not None
    numbers = iter(range(1, 8))

    def use() -> None:
        watch.take(replace(DGX, hcas=(DGX.hcas or ())[: next(numbers)]))
        watch.look()

    return use


def claims(folder: Path) -> Use:
    uids = iter("abcde")
    prepared = PreparedClaims(
        folder / "claims.json",
        "n",
        lambda claim: (AllocatedDevice(request="r", device=claim.uid, is_admin=False),),
        lambda name: BackingDevices(uuids=(name,), gpus=(name,)),
        tuple,
        give_up_s=0.0,
    )

    def use() -> None:
        uid = next(uids)
        prepared.refresh()
        needs_driver(kernel_of(folder, health_file=folder / "health.json"))
        with suppress(AgentError):  # the kubelet asks again
            prepared.prepare(ClaimReference(uid=uid, namespace="n", name=uid))
        with suppress(AgentError):
            prepared.unprepare(uid)

    return use


def dra_socket(folder: Path) -> Use:
    prepared = PreparedClaims(None, "n", lambda _: (), lambda _: None, tuple)
    device_health = DeviceHealth("n")
    server = DraServer(folder, DraServicer(prepared), device_health)

    def use() -> None:
        server.keep_up()
        server.newer()
        server.stop()

    return use


def held(folder: Path) -> Use:
    devices = HeldDevices(PodResources(folder / "kubelet.sock", timeout_s=0.01), folder)
    claimed = claims_of(folder / "pod-resources" / "kubelet.sock")

    def use() -> None:
        devices.keep_up()
        claimed()

    return use


def kept_settings(folder: Path) -> Use:
    return lambda: keep_settings(
        folder / "settings.json",
        Resolved(settings=settings(folder), origins={}, nvidia={}, warnings=()),
    )


def log_copy(folder: Path) -> Use:
    copy = LogCopy(folder / "log")
    return lambda: copy.keep(b"x" * 100_000)


def clear_socket(folder: Path) -> Use:
    def use() -> None:
        stopping = threading.Event()
        server = ClearServer(folder, lambda _request: ((), True))
        stopping.set()
        server.run(stopping)

    return use


def nfd_file(folder: Path) -> Use:
    output = NfdFile(folder / "nodetopo", pause=lambda _seconds: None)
    values = iter("12345")

    def use() -> None:
        with suppress(AgentError):  # the loop of labels tries again
            output.publish(desired({"nvidia.com/gpu.count": next(values)}))
        with suppress(AgentError):
            output.remove()

    return use


def cdi_file(folder: Path) -> Use:
    file = CdiFile(folder, "nodetopo.io/gpu")
    versions = iter("12345")

    def use() -> None:
        file.write({"kind": "nodetopo.io/gpu", "cdiVersion": next(versions)})
        file.devices()
        file.remove()

    return use


def nccl_file(folder: Path) -> Use:
    hints = NcclHints(Path("/hints"), host_root=folder)
    numbers = iter(range(1, 8))
    return lambda: hints.update(replace(DGX, gpus=DGX.gpus[: next(numbers)]))


def checks_file(folder: Path) -> Use:
    path = folder / "checks.yaml"
    path.write_text("waivers: []\n")
    overrides = OverridesFile(path)
    return overrides.current


def named_configs(folder: Path) -> Use:
    (folder / "a.yaml").write_text("")

    def use() -> None:
        with suppress(AgentError):  # the settings in force stay
            listed(folder)

    return use


FILES = {
    use.__name__: use
    for use in (
        gpu_count,
        health,
        known_gpus,
        hcas,
        claims,
        dra_socket,
        held,
        kept_settings,
        log_copy,
        clear_socket,
        nfd_file,
        cdi_file,
        nccl_file,
        checks_file,
        named_configs,
    )
}

AT_START = FILES.keys() - {"checks_file", "named_configs"}
"""Without those that a person writes: a bad one ends the start on purpose."""


@pytest.fixture(params=["reads", "writes", "both"])
def failure(request: pytest.FixtureRequest) -> dict[str, bool]:
    """Return which calls fail."""
    both = request.param == "both"
    return {"reads": both or request.param == "reads", "writes": both or request.param == "writes"}


@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
@pytest.mark.parametrize("name", sorted(AT_START))
def test_a_file_that_fails_at_the_start_ends_nothing(
    name: str, code: int, failure: dict[str, bool], tmp_path: Path
) -> None:
    with failing(tmp_path, code, **failure):
        use = FILES[name](tmp_path)
        use()
        use()
    use()


@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_that_fails_meanwhile_ends_nothing(
    name: str, code: int, failure: dict[str, bool], tmp_path: Path
) -> None:
    use = FILES[name](tmp_path)
    use()
    with failing(tmp_path, code, **failure):
        use()
        use()
    use()
