"""Claims that are prepared: once, for good, and never with a GPU of another."""

import errno
import fcntl
import os
import threading
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from nodetopo.components.dra.driver.claims import AllocatedDevice, ClaimReference
from nodetopo.components.dra.driver.prepared import PreparedClaims
from nodetopo.components.dra.pool import BackingDevices
from nodetopo.deviceplugin.host_files import FileContent, HostFile
from nodetopo.errors import ApiUnavailable, InputError, UnreadableError
from nodetopo.model.dra import DRIVER, ClaimedDevice
from tests.failing_files import failing

BACKING = {
    "gpu-1b": BackingDevices(uuids=("GPU-a",), gpus=("GPU-a",)),
    "gpu-43": BackingDevices(uuids=("GPU-b",), gpus=("GPU-b",)),
    "gpus-1b-43": BackingDevices(uuids=("GPU-a", "GPU-b"), gpus=("GPU-a", "GPU-b")),
    "admin-1b": BackingDevices(uuids=("GPU-a",), gpus=("GPU-a",), needs_admin=True),
    "mig-1": BackingDevices(uuids=("MIG-1",), gpus=("GPU-c",), is_part=True),
    "mig-2": BackingDevices(uuids=("MIG-2",), gpus=("GPU-c",), is_part=True),
}


class Cluster:
    """The claims of an API server, and which GPUs the host's CDI specification has."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.allocations: dict[str, tuple[AllocatedDevice, ...]] = {}
        self.users: Sequence[ClaimedDevice] | None = None
        self.reads = 0
        self.missing: set[str] = set()
        self.changes = 0

    def read(self, claim: ClaimReference) -> tuple[AllocatedDevice, ...]:
        """Return what is allocated to *claim*."""
        self.reads += 1
        if claim.uid not in self.allocations:
            raise ApiUnavailable("no answer")
        return self.allocations[claim.uid]

    def names(self, uuids: Collection[str]) -> tuple[str, ...]:
        """Return the CDI names of *uuids*."""
        if missing := self.missing & set(uuids):
            raise UnreadableError(f"no CDI specification of ours has {missing}")
        return tuple(f"k/gpu={uuid}" for uuid in uuids)

    def start(self) -> PreparedClaims:
        """Return the claims as a new process sees them."""
        prepared = PreparedClaims(
            self.path,
            "n",
            self.read,
            BACKING.get,
            self.names,
            users=lambda: self.users,
            give_up_s=0.2,
        )

        def changed() -> None:
            self.changes += 1

        prepared.on_change = changed
        return prepared

    def allocate(self, uid: str, *devices: str, is_admin: bool = False) -> ClaimReference:
        """Allocate *devices* to a claim and return it."""
        self.allocations[uid] = tuple(
            AllocatedDevice(request="gpus", device=device, is_admin=is_admin) for device in devices
        )
        return ClaimReference(uid=uid, namespace="ns", name=f"claim-{uid}")


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "claims.json")


def test_a_claim_is_given_its_gpus_by_cdi(cluster: Cluster) -> None:
    prepared = cluster.start()
    claim = prepared.prepare(cluster.allocate("1", "gpus-1b-43"))
    (device,) = claim.devices
    assert device.cdi == ("k/gpu=GPU-a", "k/gpu=GPU-b")
    assert prepared.used == {"GPU-a", "GPU-b"}
    assert cluster.changes == 1


def test_the_same_claim_is_answered_from_memory(cluster: Cluster) -> None:
    prepared = cluster.start()
    claim = cluster.allocate("1", "gpu-1b")
    first = prepared.prepare(claim)
    cluster.allocations.clear()
    cluster.missing = {"GPU-a"}
    assert prepared.prepare(claim) == first
    assert (cluster.reads, cluster.changes) == (1, 1)


def test_claims_outlive_the_process(cluster: Cluster) -> None:
    first = cluster.start().prepare(cluster.allocate("1", "gpu-1b", "gpu-43"))
    after = cluster.start()
    assert after.claims == (first,)
    assert after.prepare(ClaimReference(uid="1", namespace="ns", name="claim-1")) == first
    assert cluster.reads == 1


def test_no_gpu_is_given_to_two_claims(cluster: Cluster) -> None:
    prepared = cluster.start()
    prepared.prepare(cluster.allocate("1", "gpus-1b-43"))
    with pytest.raises(InputError, match="GPU-b, which the claim ns/claim-1 has as gpus-1b-43"):
        prepared.prepare(cluster.allocate("2", "gpu-43"))
    assert [claim.uid for claim in cluster.start().claims] == ["1"]
    prepared.unprepare("1")
    assert prepared.prepare(cluster.allocate("2", "gpu-43")).uid == "2"


def test_an_administrator_has_a_gpu_beside_others(cluster: Cluster) -> None:
    prepared = cluster.start()
    prepared.prepare(cluster.allocate("1", "gpu-1b"))
    prepared.prepare(cluster.allocate("2", "gpu-1b", is_admin=True))
    assert prepared.used == {"GPU-a"}
    prepared.unprepare("1")
    assert prepared.used == frozenset()
    prepared.prepare(cluster.allocate("3", "gpu-1b"))


def test_mig_devices_of_one_gpu_go_to_different_claims(cluster: Cluster) -> None:
    prepared = cluster.start()
    prepared.prepare(cluster.allocate("1", "mig-1"))
    prepared.prepare(cluster.allocate("2", "mig-2"))
    with pytest.raises(InputError, match="GPU-c"):
        prepared.prepare(cluster.allocate("3", "mig-1"))


def test_what_fails_leaves_nothing_prepared(cluster: Cluster) -> None:
    prepared = cluster.start()
    cluster.missing = {"GPU-b"}
    for claim, problem in (
        (cluster.allocate("1", "gpu-1b", "gpu-43"), UnreadableError),
        (cluster.allocate("2", "gpu-1b", "gpu-ff"), InputError),
        (ClaimReference(uid="3", namespace="ns", name="c"), ApiUnavailable),
    ):
        with pytest.raises(problem):
            prepared.prepare(claim)
    assert prepared.claims == ()
    assert cluster.changes == 0


def test_what_cannot_be_kept_is_not_prepared(cluster: Cluster) -> None:
    prepared = cluster.start()
    cluster.path.mkdir()
    with pytest.raises(UnreadableError, match="Is a directory"):
        prepared.prepare(cluster.allocate("1", "gpu-1b"))
    assert prepared.claims == ()


def test_giving_up_twice_is_no_error(cluster: Cluster) -> None:
    prepared = cluster.start()
    prepared.prepare(cluster.allocate("1", "gpu-1b"))
    assert prepared.unprepare("1")
    assert not prepared.unprepare("1")
    assert cluster.start().claims == ()


DAMAGED = ["", "{", "[]", '{"schema": "other", "pool": "n", "claims": []}']
NEWER = '{"schema": "nodetopo-claims/v2", "release": "9.1.0", "pool": "n", "claims": []}'


def used_by(device: str, claim: str) -> ClaimedDevice:
    """Return a device of ours as the kubelet lists it."""
    return ClaimedDevice(driver=DRIVER, pool="n", name=device, namespace="ns", claim=claim)


@pytest.mark.parametrize("text", [*DAMAGED, NEWER])
def test_while_claims_are_unknown_only_the_kubelet_knows_free_gpus(
    cluster: Cluster, text: str
) -> None:
    cluster.path.write_text(text, "utf-8")
    for _ in range(2):  # a restart makes nothing known
        prepared = cluster.start()
        with pytest.raises(InputError, match="claims of running pods are not known"):
            prepared.prepare(cluster.allocate("1", "gpu-1b"))
        cluster.users = [used_by("gpus-1b-43", "claim-0"), used_by("mig-1", "claim-5")]
        with pytest.raises(InputError, match=r"as gpus-1b-43 by the claim ns/claim-0 — it is"):
            prepared.prepare(cluster.allocate("1", "gpu-1b"))
        assert prepared.prepare(cluster.allocate("0", "gpus-1b-43")).uid == "0"
        assert prepared.prepare(cluster.allocate("6", "mig-2")).uid == "6"
        prepared.prepare(cluster.allocate("7", "gpu-1b", is_admin=True))
        prepared.unprepare("0")
        cluster.users = [used_by("gone", "claim-9")]
        with pytest.raises(InputError, match="as gone by the claim ns/claim-9"):
            prepared.prepare(cluster.allocate("1", "gpu-1b"))
        cluster.users = []
        prepared.prepare(cluster.allocate("1", "gpu-1b"))
        for uid in "167":
            prepared.unprepare(uid)
        cluster.users = None
    bad = cluster.path.with_name("claims.json.bad")
    assert (cluster.path if text == NEWER else bad).read_text() == text
    assert bad.exists() is (text != NEWER)


@pytest.mark.parametrize("text", [*DAMAGED, NEWER])
def test_lost_claims_are_reported_once(cluster: Cluster, text: str) -> None:
    cluster.path.write_text(text, "utf-8")
    prepared = cluster.start()
    prepared.refresh()
    (notice,) = prepared.notices()
    assert notice.message.startswith("prepared claims: ")
    prepared.refresh()
    assert prepared.notices() == ()


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_claims_that_cannot_be_read_are_unknown_until_they_can(cluster: Cluster, code: int) -> None:
    cluster.start().prepare(cluster.allocate("1", "gpu-1b"))
    with failing(cluster.path.parent, code, reads=True, writes=True):
        prepared = cluster.start()
        with pytest.raises(InputError, match="claims of running pods are not known"):
            prepared.prepare(cluster.allocate("2", "gpu-43"))
    assert prepared.prepare(cluster.allocate("2", "gpu-43")).uid == "2"
    assert prepared.used == {"GPU-a", "GPU-b"}


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO, errno.ENOMEM])
def test_claims_that_one_read_missed_are_kept(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    cluster.start().prepare(cluster.allocate("1", "gpu-1b"))
    cluster.users = []
    with monkeypatch.context() as patch:
        patch.setattr(HostFile, "read", lambda _: FileContent(problem=os.strerror(code)))
        prepared = cluster.start()
        with pytest.raises(UnreadableError, match=os.strerror(code)):
            prepared.prepare(cluster.allocate("2", "gpu-43"))
    assert prepared.prepare(cluster.allocate("2", "gpu-43")).uid == "2"
    assert prepared.is_complete
    assert [claim.uid for claim in cluster.start().claims] == ["1", "2"]


def test_a_running_process_knows_its_claims_and_writes_them_again(cluster: Cluster) -> None:
    prepared = cluster.start()
    prepared.prepare(cluster.allocate("1", "gpu-1b"))
    cluster.path.write_text("{")
    prepared.prepare(cluster.allocate("2", "gpu-43"))
    again = cluster.start()
    assert [claim.uid for claim in again.claims] == ["1", "2"]
    assert again.is_complete


def test_a_file_system_without_locks_is_named(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    prepared = cluster.start()
    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(UnreadableError, match=r"cannot lock claims\.lock: No locks available"):
        prepared.prepare(cluster.allocate("1", "gpu-1b"))


def test_a_claim_waits_for_the_one_that_is_being_given_up(cluster: Cluster) -> None:
    path, read = cluster.path, cluster.read
    prepared = PreparedClaims(path, "n", read, BACKING.get, cluster.names, give_up_s=30)
    prepared.prepare(cluster.allocate("1", "gpu-1b"))
    answers: list[str] = []
    claim = cluster.allocate("2", "gpu-1b")
    waiting = threading.Thread(target=lambda: answers.append(prepared.prepare(claim).uid))
    waiting.start()
    waiting.join(0.2)
    assert answers == []
    prepared.unprepare("1")
    waiting.join(10)
    assert answers == ["2"]


def test_many_threads_give_each_gpu_once(cluster: Cluster) -> None:
    prepared = cluster.start()
    claims = [cluster.allocate(str(number), "gpus-1b-43") for number in range(16)]
    done: list[str] = []

    def ask(claim: ClaimReference) -> None:
        try:
            done.append(prepared.prepare(claim).uid)
        except InputError:
            return

    threads = [threading.Thread(target=ask, args=(claim,)) for claim in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(done) == 1
    assert [claim.uid for claim in prepared.claims] == done


def test_another_process_sees_each_change_before_its_own(cluster: Cluster) -> None:
    first, second = cluster.start(), cluster.start()
    first.prepare(cluster.allocate("1", "gpu-1b"))
    with pytest.raises(InputError, match="which the claim ns/claim-1 has"):
        second.prepare(cluster.allocate("2", "gpus-1b-43"))
    assert second.unprepare("1"), "prepared by the other"
    assert first.prepare(cluster.allocate("2", "gpus-1b-43")).uid == "2"
    second.refresh()
    assert second.used == {"GPU-a", "GPU-b"}


def test_a_claim_waits_for_one_that_another_process_gives_up(cluster: Cluster) -> None:
    path, read = cluster.path, cluster.read
    first = PreparedClaims(path, "n", read, BACKING.get, cluster.names, give_up_s=60)
    second = cluster.start()
    second.prepare(cluster.allocate("1", "gpu-1b"))
    answers: list[str] = []
    claim = cluster.allocate("2", "gpu-1b")
    waiting = threading.Thread(target=lambda: answers.append(first.prepare(claim).uid))
    waiting.start()
    second.unprepare("1")
    waiting.join(60)
    assert answers == ["2"]


def test_a_claim_file_that_somebody_deletes_loses_no_claim(cluster: Cluster) -> None:
    prepared = cluster.start()
    prepared.prepare(cluster.allocate("1", "gpu-1b"))
    cluster.path.unlink()
    prepared.refresh()
    assert prepared.used == {"GPU-a"}
    prepared.prepare(cluster.allocate("2", "gpu-43"))
    assert [claim.uid for claim in cluster.start().claims] == ["1", "2"]


def test_a_device_for_administration_needs_admin_access(cluster: Cluster) -> None:
    prepared = cluster.start()
    with pytest.raises(InputError, match="admin-1b is for administration only"):
        prepared.prepare(cluster.allocate("1", "admin-1b"))
    prepared.prepare(cluster.allocate("2", "admin-1b", is_admin=True))
    prepared.prepare(cluster.allocate("3", "gpu-1b"))


def test_nothing_is_prepared_while_the_driver_is_off(cluster: Cluster) -> None:
    cluster.start().prepare(cluster.allocate("1", "gpu-1b"))
    prepared = cluster.start()
    prepared.is_off = True
    assert prepared.prepare(cluster.allocate("1", "gpu-1b")).uid == "1", "it is prepared already"
    with pytest.raises(InputError, match="dra is off on this node"):
        prepared.prepare(cluster.allocate("2", "gpu-43"))
    assert prepared.unprepare("1")


def test_a_gpu_that_somebody_else_gave_away_is_refused(cluster: Cluster) -> None:
    path, read = cluster.path, cluster.read
    taken = {"GPU-b"}

    def refusal(devices: Sequence[BackingDevices]) -> str | None:
        shared = taken.intersection(gpu for device in devices for gpu in device.gpus)
        return f"a pod has {shared}" if shared else None

    prepared = PreparedClaims(path, "n", read, BACKING.get, cluster.names, refusal=refusal)
    with pytest.raises(InputError, match=r"a pod has \{'GPU-b'\}"):
        prepared.prepare(cluster.allocate("1", "gpus-1b-43"))
    prepared.prepare(cluster.allocate("2", "gpu-1b"))
    taken.add("GPU-a")
    assert prepared.prepare(cluster.allocate("2", "gpu-1b")).uid == "2", "it was given it before"
    prepared.prepare(cluster.allocate("3", "gpu-43", is_admin=True))
