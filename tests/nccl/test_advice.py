"""What to set for which release, and what not."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodetopo.errors import InputError
from nodetopo.machines.bundled import machine, names
from nodetopo.model.gpu import C2c
from nodetopo.model.hca import Gid, HcaPort, LinkLayer
from nodetopo.model.pci import PciFunction
from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.advice import (
    DEFAULT_FILE,
    JobAdvice,
    advise,
    checked_version,
    gid_index,
    nearest_set,
)
from nodetopo.nccl.variables import KNOWN
from nodetopo.topology.affinity import rail_numbers
from tests.nccl.nccl_machines import machine as tree_machine
from tests.topology.trees import gpu, hca

GID = "NCCL_IB_GID_INDEX"
LEVEL = "NCCL_NET_GDR_LEVEL"
FILE = "NCCL_TOPO_FILE"

LINK_LOCAL = "fe80:0000:0000:0000:a288:c2ff:feab:0000"
IPV4 = "0000:0000:0000:0000:0000:ffff:0a00:0001"
IPV6 = "fd00:0000:0000:0000:0000:0000:0000:0001"
V1, V2 = "IB/RoCE v1", "RoCE v2"
USUAL = ((LINK_LOCAL, V1), (LINK_LOCAL, V2), (IPV4, V1), (IPV4, V2))


def _gids(*entries: tuple[str, str | None]) -> tuple[Gid, ...]:
    return tuple(Gid(index=at, gid=gid, type=kind) for at, (gid, kind) in enumerate(entries))


def _of(
    snapshot: Snapshot,
    variable: str,
    nccl: str | None = None,
    topology_file: str | None = None,
) -> list[JobAdvice]:
    """What is said of *variable* for all GPUs and HCAs of *snapshot*."""
    every = advise(
        snapshot, snapshot.gpus, snapshot.hcas or (), nccl=nccl, topology_file=topology_file
    )
    return [one for one in every if one.variable == variable]


def _values(
    snapshot: Snapshot, variable: str, **more: str
) -> list[tuple[str, str | None, str | None]]:
    return [(one.since, one.until, one.value) for one in _of(snapshot, variable, **more)]


def _roce(*tables: Sequence[tuple[str, str | None]]) -> Snapshot:
    """A GPU, and a RoCE HCA for each table of GIDs."""
    port = HcaPort(number=1, state="ACTIVE", layer=LinkLayer.ETHERNET)
    return tree_machine(
        gpu(0, 1, 2, 3),
        *(
            replace(hca(f"mlx5_{at}", 1, 2, 10 + at), ports=(replace(port, gids=_gids(*table)),))
            for at, table in enumerate(tables)
        ),
    )


# Releases.


@pytest.mark.parametrize(
    ("since", "until", "version", "expected"),
    [
        ("2.21.5", None, "2.21.5", True),
        ("2.21.5", None, "2.21", True),
        ("2.21.5", None, "2.30.7", True),
        ("2.21.5", None, "2.9", False),
        ("2.21.5", None, "2.21.4", False),
        ("2.3.5", "2.20.5", "2.20", True),
        ("2.3.5", "2.20.5", "2.20.5.1", True),
        ("2.3.5", "2.20.5", "2.21", False),
        ("2.3.5", "2.9.9", "2.10.3", False),
    ],
)
def test_a_release_is_compared_as_numbers(
    since: str, until: str | None, version: str, expected: bool
) -> None:
    one = JobAdvice(
        variable="V", value="1", library="NCCL", since=since, until=until, reason="r", source="s"
    )
    assert one.is_about(version) is expected


@pytest.mark.parametrize("text", ["", "2", "2.x", "v2.21.5", "2.21.5-1", "2..1", "2.1.1.1.1"])
def test_what_is_no_release_is_an_error(text: str) -> None:
    with pytest.raises(InputError, match="not a version of NCCL"):
        checked_version(text)


@pytest.mark.parametrize("name", names())
def test_every_variable_of_nccl_is_read_by_the_releases_that_it_is_for(name: str) -> None:
    """And none has two values for one release."""
    snapshot = machine(name)
    hcas = nearest_set(snapshot, snapshot.gpus)
    every = advise(snapshot, snapshot.gpus, hcas, topology_file=DEFAULT_FILE)
    for one in every:
        assert one.reason
        assert one.source
        if one.library == "NCCL":
            known = KNOWN[one.variable]
            # The table begins with what was published as source, and names gaps in no release.
            assert one.is_about(one.since)
            assert _key(one.since) >= _key(known.since), one.variable
            assert known.until is None
    for version in ("2.3.5", "2.20.5", "2.21.5", "2.25.1", "2.26.2", "2.30.7"):
        said = [one.variable for one in every if one.library == "NCCL" and one.is_about(version)]
        assert len(said) == len(set(said)), (version, said)


def _key(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


# The index of the GID, for old releases.


def test_the_index_is_given_to_releases_that_do_not_find_it() -> None:
    assert _values(_roce(USUAL, USUAL), GID) == [
        ("2.3.5", "2.20.5", "3"),
        ("2.21.5", "2.25.1", None),
        ("2.26.2", None, None),
    ]
    assert [one.value for one in _of(_roce(USUAL), GID, nccl="2.19.3")] == ["3"]
    assert [one.value for one in _of(_roce(USUAL), GID, nccl="2.21.5")] == [None]


def test_infiniband_needs_no_index() -> None:
    snapshot = tree_machine(gpu(0, 1, 2, 3), hca("mlx5_0", 1, 2, 4))
    assert _values(snapshot, GID) == [("2.3.5", None, None)]


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        (
            (USUAL, USUAL[2:]),
            "one index serves all ports, and theirs differ: mlx5_0:1 3, mlx5_1:1 1",
        ),
        ((USUAL, USUAL[:2]), "mlx5_1:1 has no RoCE v2 entry with an IPv4 address that is known"),
        ((((IPV4, None), (IPV4, V2)),), "mlx5_0:1 has no RoCE v2 entry"),
        (((),), "mlx5_0:1 has no RoCE v2 entry"),
    ],
    ids=["differ", "no address", "another namespace", "empty"],
)
def test_an_index_that_may_be_wrong_is_not_given(
    tables: tuple[Sequence[tuple[str, str | None]], ...], reason: str
) -> None:
    old, *_, new = _of(_roce(*tables), GID)
    assert (old.value, new.value) == (None, None)
    assert old.reason.startswith(reason)


@pytest.mark.parametrize(
    ("tables", "value"),
    [
        ((((IPV4, None), (IPV4, V1), (IPV4, V2)),), "2"),
        ((((IPV4, V1), (IPV4, V2), (IPV4, None)), ((IPV4, V1), (IPV4, V2))), "1"),
        ((((IPV4, V1), (IPV4, None), (IPV4, V2)), ((IPV4, V1), (IPV4, V2))), None),
        ((((IPV4, None), (IPV4, None)),), None),
    ],
    ids=["before", "after", "theirs differ", "none of this namespace"],
)
def test_releases_that_end_on_an_address_of_another_namespace_get_an_index(
    tables: tuple[Sequence[tuple[str, str | None]], ...], value: str | None
) -> None:
    snapshot = _roce(*tables)
    for version in ("2.21.5", "2.22.3", "2.25.1"):
        (one,) = _of(snapshot, GID, nccl=version)
        assert one.value == value
        assert "mlx5_0:1" in one.reason
        assert "2.26" in one.reason
    (newer,) = _of(snapshot, GID, nccl="2.26.2")
    assert newer.value is None


def test_one_address_of_another_namespace_ends_no_search() -> None:
    (one,) = _of(_roce(((LINK_LOCAL, V2), (IPV4, None), (IPV6, None))), GID, nccl="2.21.5")
    assert (one.value, one.since, one.until) == (None, "2.21.5", "2.25.1")


def test_a_job_in_another_namespace_is_told_of_the_hosts_addresses() -> None:
    (one,) = _of(_roce(USUAL), GID, nccl="2.23.4")
    assert "in another network namespace, needs the index" in one.reason
    (newer,) = _of(_roce(USUAL), GID, nccl="2.26.2")
    assert newer.reason.endswith("in the network that the job is in")
    without = _roce(((LINK_LOCAL, V1), (IPV6, V2)))
    assert _values(without, GID)[1:] == [("2.21.5", None, None)]


@given(
    st.lists(
        st.tuples(st.sampled_from((LINK_LOCAL, IPV4, IPV6, "")), st.sampled_from((V1, V2))),
        max_size=8,
    )
)
def test_the_index_is_that_of_nccls_own_walk(table: list[tuple[str, str]]) -> None:
    """Where an entry with an IPv4 address and version 2 exists; empty ones are unset."""
    entries = [Gid(index=at, gid=gid, type=kind) for at, (gid, kind) in enumerate(table) if gid]
    if (IPV4, V2) in table:
        assert gid_index(entries) == _walk(table)
    else:
        assert gid_index(entries) is None


class EndedError(Exception):
    """NCCL ended with an error."""


def _walk(table: Sequence[tuple[str, str | None]]) -> int:
    """Walk as ncclIbGetGidIndex of 2.21.5 with AF_INET, ::/0 and version 2, step by step.

    Raises:
        EndedError: it reads a type that the kernel refuses.
    """
    chosen = 0
    for candidate in range(1, len(table)):
        gid, kind = table[chosen]
        other, other_kind = table[candidate]
        if (other == IPV4) != (gid == IPV4) and other == IPV4:
            chosen = candidate
        elif other == IPV4:
            if kind is None or other_kind is None:
                raise EndedError
            is_valid = gid not in ("", LINK_LOCAL)
            if (kind != other_kind or not is_valid) and other_kind == V2:
                chosen = candidate
    return chosen


@given(
    st.lists(
        st.tuples(st.sampled_from((LINK_LOCAL, IPV4, IPV6, "")), st.sampled_from((V1, V2, None))),
        min_size=1,
        max_size=8,
    )
)
def test_the_releases_that_end_are_told_by_nccls_own_walk(
    table: list[tuple[str, str | None]],
) -> None:
    """Holes stop nothing, wherever they are; types of other namespaces do."""
    try:
        _walk(table)
    except EndedError:
        ends = True
    else:
        ends = False
    gids = tuple(Gid(index=at, gid=gid, type=kind) for at, (gid, kind) in enumerate(table) if gid)
    snapshot = _roce(())
    first = (snapshot.hcas or ())[0]
    port = replace(first.ports[0], gids=gids)
    snapshot = replace(snapshot, hcas=(replace(first, ports=(port,)),))
    said = [one for one in _of(snapshot, GID, nccl="2.23.4") if "read failed in" in one.reason]
    assert bool(said) is ends


# Rails.


def test_rails_are_given_to_releases_that_read_them() -> None:
    dgx = machine("dgx-h100")
    numbers = rail_numbers(dgx)
    old, new = (
        one
        for one in advise(dgx, dgx.gpus, dgx.hcas or (), rails=numbers)
        if one.variable == "NCCL_IB_HCA"
    )
    assert (old.since, old.until, new.since, new.until) == ("2.5.6", "2.30.4", "2.30.7", None)
    assert old.value == "=" + ",".join(f"{hca.name}:1" for hca in dgx.hcas or ())
    assert new.value == "=" + ",".join(
        f"{hca.name}:1:{at}" for at, hca in enumerate(dgx.hcas or ())
    )
    part = (dgx.hcas or ())[2:4]
    (one,) = (
        one
        for one in advise(dgx, dgx.gpus[2:4], part, nccl="2.30.7", rails=numbers)
        if one.variable == "NCCL_IB_HCA"
    )
    assert one.value == f"={part[0].name}:1:2,{part[1].name}:1:3"


def test_a_rail_that_is_not_certain_is_not_given() -> None:
    dgx = machine("dgx-h100")
    numbers = {name: number for name, number in rail_numbers(dgx).items() if number != 3}
    (one,) = (
        one
        for one in advise(dgx, dgx.gpus, dgx.hcas or (), rails=numbers)
        if one.variable == "NCCL_IB_HCA"
    )
    assert one.value == "=" + ",".join(f"{hca.name}:1" for hca in dgx.hcas or ())
    assert one.reason.endswith(f"the rail of {(dgx.hcas or ())[3].name} is not known")
    assert rail_numbers(machine("ac922")) == {}


# How far GPUDirect RDMA goes.


def test_a_level_is_given_only_to_old_releases_on_grace() -> None:
    tray = machine("gb200-nvl72")
    assert _values(tray, LEVEL) == [("2.6.4", "2.25.1", "PHB"), ("2.27.3", None, None)]
    assert _values(tray, "NCCL_NET_GDR_C2C") == [("2.26.2", "2.26.6", "1")]
    without = replace(
        tray, gpus=tuple(replace(one, c2c=C2c(is_enabled=False)) for one in tray.gpus)
    )
    assert [one.value for one in _of(without, LEVEL)] == [None]
    assert _of(without, "NCCL_NET_GDR_C2C") == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("dgx-h100", "GPUDirect RDMA is on by default"),
        ("h100-vm-8", "if this virtual machine hides a switch, give NCCL the provider's topology"),
    ],
)
def test_elsewhere_the_level_is_left_to_nccl(name: str, reason: str) -> None:
    (one,) = _of(machine(name), LEVEL)
    assert (one.value, one.until) == (None, None)
    assert reason in one.reason


def test_a_way_through_the_cpu_is_not_forced() -> None:
    (one,) = _of(tree_machine(gpu(0, 1, 2), hca("mlx5_0", 3, 4)), LEVEL)
    assert one.value is None
    assert "(PHB), where NCCL keeps GPUDirect RDMA off: through a CPU it is often" in one.reason


# The file of the topology.


def test_a_file_elsewhere_needs_the_variable_and_nccls_own_place_only_before_it() -> None:
    dgx = machine("dgx-h100")
    assert _values(dgx, FILE) == [("2.6.4", None, None)]
    assert _values(dgx, FILE, topology_file="/topo.xml") == [("2.6.4", None, "/topo.xml")]
    assert _values(dgx, FILE, topology_file=DEFAULT_FILE) == [
        ("2.6.4", "2.9.9", DEFAULT_FILE),
        ("2.10.3", None, None),
    ]


def test_a_virtual_machine_is_referred_to_its_provider() -> None:
    (one,) = _of(machine("h100-vm-8"), FILE)
    assert "mount the provider's file" in one.reason


# The HCAs of a job that names none.


def test_each_gpu_gets_its_nearest_hca() -> None:
    dgx = machine("dgx-h100")
    assert [one.name for one in nearest_set(dgx, (dgx.gpus[6], dgx.gpus[1]))] == [
        "mlx5_1",
        "mlx5_6",
    ]


def test_storage_cards_are_not_for_jobs() -> None:
    dgx = machine("dgx-a100")
    chosen = nearest_set(dgx, dgx.gpus)
    assert len(chosen) == len(dgx.gpus)
    assert {port.layer for one in chosen for port in one.ports} == {LinkLayer.INFINIBAND}


def test_an_hca_that_is_down_is_passed_over_for_that_of_another_gpu() -> None:
    down = HcaPort(number=1, state="DOWN", layer=LinkLayer.INFINIBAND)
    snapshot = tree_machine(
        gpu(0, 1, 2, 3),
        gpu(1, 11, 12, 13),
        replace(hca("mlx5_0", 1, 2, 4), ports=(down,)),
        hca("mlx5_1", 11, 12, 14),
    )
    assert [one.name for one in nearest_set(snapshot, snapshot.gpus[:1])] == ["mlx5_1"]
    assert [one.name for one in nearest_set(snapshot, snapshot.gpus)] == ["mlx5_1"]


def test_the_ports_of_a_card_stay_together() -> None:
    """Each is a function of its own, as on Oracle's H100; NCCL makes one device of them."""
    snapshot = tree_machine(
        gpu(0, 1, 2, 3),
        gpu(1, 11, 12, 13),
        *(
            hca(
                f"mlx5_{2 * card + at}",
                10 * card + 1,
                10 * card + 2,
                10 * card + 4,
                function=at,
                guid=f"{card:04x}",
            )
            for card in range(2)
            for at in range(2)
        ),
    )
    assert [one.name for one in nearest_set(snapshot, snapshot.gpus[:1])] == ["mlx5_0", "mlx5_1"]
    assert len(nearest_set(snapshot, snapshot.gpus)) == 4


# The other libraries.


def test_more_hcas_than_old_releases_list_are_for_newer_ones() -> None:
    port = HcaPort(number=1, state="ACTIVE", layer=LinkLayer.INFINIBAND)
    card = replace(
        hca("mlx5_0", 1, 2, 4), ports=tuple(replace(port, number=n) for n in range(1, 18))
    )
    snapshot = tree_machine(gpu(0, 1, 2, 3), card)
    since = {one.variable: one.since for one in advise(snapshot, snapshot.gpus, (card,))}
    assert (since["NCCL_IB_HCA"], since["NVSHMEM_HCA_LIST"]) == ("2.18.5", "3.3.9")


def test_nvshmem_is_told_of_names_that_its_gpu_transports_pass_over() -> None:
    snapshot = tree_machine(gpu(0, 1, 2, 3), hca("ibp4s0", 1, 2, 4))
    (one,) = _of(snapshot, "NVSHMEM_HCA_LIST")
    assert "IBGDA takes ibp4s0 only with NVSHMEM_HCA_PREFIX" in one.reason


def test_efa_is_reached_by_libfabric_and_by_no_list_of_hcas() -> None:
    """Its ports have a link layer of their own, which sysfs calls Unspecified."""
    card = hca("rdmap0s0", 1, 2, 4)
    port = HcaPort(number=1, state="ACTIVE", layer=None)
    function = PciFunction(vendor="1d0f", device="efa1", driver="efa")
    fabric = replace(card, ports=(port,), function=function)
    snapshot = tree_machine(gpu(0, 1, 2, 3), fabric)
    every = advise(snapshot, snapshot.gpus, (fabric,))
    assert {one.variable: one.value for one in every if one.value is not None} == {
        "FI_PROVIDER": "efa"
    }
    said = {one.variable: one.reason for one in every}
    assert "aws-ofi-nccl" in said["FI_PROVIDER"]
    for name in ("NCCL_IB_HCA", "UCX_NET_DEVICES", "NVSHMEM_HCA_LIST"):
        assert said[name] == "rdmap0s0 is EFA, which speaks neither InfiniBand nor RoCE"
    assert "NCCL_NET_GDR_LEVEL" not in said


def test_without_hcas_every_list_says_so() -> None:
    snapshot = machine("l40s-pcie-4")
    said = {one.variable: (one.value, one.reason) for one in advise(snapshot, snapshot.gpus, ())}
    assert said["NCCL_IB_HCA"] == (None, "there is no HCA for the job")
    assert all(value is None for value, _ in said.values())
