"""The RDMA shared device plugin and ours, given one file on one machine, offer the same HCAs.

Each difference that remains is a row of docs/operate/rdma.md, and named here by what it is about.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from nodetopo.components.rdma.pools_file import parse
from nodetopo.errors import InputError
from nodetopo.model.codec import decode
from nodetopo.model.hca import Hca
from tests.conftest import NODES
from tests.nightly.rdma_shared import Offered, RdmaDesk

pytestmark = pytest.mark.nightly

_CM = frozenset({"rdma_cm"})
_MOST = 9


class Differs(Struct, frozen=True, kw_only=True):
    """What differs on a machine.

    Attributes:
        left_out: HCAs that ours leaves out of pools with others: for storage, of the NVLink
            fabric, and virtual functions alongside their card.
        unseen: interfaces that theirs does not know: of bonds, of subfunctions, and the second of
            a function.
        second: device nodes of ports that theirs does not give.
    """

    left_out: frozenset[str] = frozenset()
    unseen: frozenset[str] = frozenset()
    second: frozenset[str] = frozenset()


def _hcas(*numbers: int) -> frozenset[str]:
    return frozenset(f"mlx5_{number}" for number in numbers)


MACHINES: Mapping[str, Differs] = {
    "h100x8-nvswitch-2numa-8cx7": Differs(),
    "h100x8-vm-2numa-8vf": Differs(),
    "v100x8-cubemesh-2numa-4cx4": Differs(),
    "v100x4-power9-sparse-6mlx5": Differs(),
    "gb300x2-station-1grace-datadirect": Differs(),
    "l4x10-pcie-1root-2switch": Differs(left_out=_hcas(1)),
    "a100x8-nvswitch-8numa-10cx6": Differs(left_out=_hcas(4, 5, 10, 11)),
    "v100x16-nvswitch-2numa-8cx": Differs(left_out=_hcas(4, 5)),
    "gb200x4-nvl72-34numa-4cx7": Differs(left_out=_hcas(2, 3, 6, 7)),
    "b200x8-nvswitch-2numa-8cx7": Differs(left_out=_hcas(0, 1, 2, 3)),
    "h200x8-nvswitch-2numa-10roce": Differs(
        left_out=_hcas(2) | {"mlx5_bond_0"}, unseen=frozenset({"bond0"})
    ),
    "a100x8-nvswitch-2numa-sfvf": Differs(
        left_out=_hcas(4, 5, 6, 7) | {"mlx4_0"},
        unseen=frozenset({"enp165s0f0s88", "enp165s0f0s89", "ib0"}),
        second=frozenset({"umad3"}),
    ),
}


class Compared(Struct, frozen=True, kw_only=True):
    """One machine under one file with pools of every selector.

    Attributes:
        hcas: of the machine, those of the NVLink fabric included.
        pools: of the file, by resource.
    """

    differs: Differs
    hcas: tuple[Hca, ...]
    pools: Mapping[str, Mapping[str, Any]]
    theirs: Mapping[str, Offered]
    ours: Mapping[str, Offered]

    def seen(self) -> Iterator[tuple[str, Offered, Offered]]:
        """Yield the resources that have HCAs by theirs, with what both offer."""
        for name, their in self.theirs.items():
            if their.devices:
                yield name, their, self.ours[name]


@pytest.fixture(scope="module", params=MACHINES)
def compared(request: pytest.FixtureRequest) -> Iterator[Compared]:
    """Return what both plugins offer on each machine in turn."""
    snapshot = decode((NODES / request.param / "snapshot.json").read_text("utf-8")).snapshot
    hcas = (*(snapshot.hcas or ()), *(snapshot.management_hcas or ()))
    pools = _pools(hcas)
    with _desk(request.param) as desk:
        yield Compared(
            differs=MACHINES[request.param],
            hcas=hcas,
            pools={f"rdma/{pool['resourceName']}": pool for pool in pools},
            theirs=desk.theirs(pools),
            ours=desk.ours(pools),
        )


def test_the_same_resources_have_devices_but_for_interfaces_that_theirs_does_not_know(
    compared: Compared,
) -> None:
    assert compared.theirs.keys() == compared.pools.keys()
    theirs = {name for name, offered in compared.theirs.items() if offered.devices}
    unseen = {f"rdma/if_{name}" for name in compared.differs.unseen}
    assert len(theirs) >= 7
    assert compared.ours.keys() - theirs == unseen
    assert theirs <= compared.ours.keys()
    for name in unseen:
        assert len(compared.ours[name].devices) == _MOST


def test_both_list_as_many_healthy_devices_without_numa_nodes(compared: Compared) -> None:
    for name, their, our in compared.seen():
        most = compared.pools[name]["rdmaHcaMax"]
        for offered in (their, our):
            assert len(offered.devices) == most, name
            assert all(device.is_healthy for device in offered.devices), name
            assert {device.numa_nodes for device in offered.devices} == {()}, name


def test_a_container_gets_the_same_device_nodes_but_for_hcas_that_are_left_out(
    compared: Compared,
) -> None:
    hca_of = {node: hca.name for hca in compared.hcas for node in hca.char_devices}
    left_out = set()
    for name, their, our in compared.seen():
        by_hca: dict[str, set[str]] = {}
        for node in their.names - _CM:
            by_hca.setdefault(hca_of[node], set()).add(node)
        kept = by_hca.keys() - compared.differs.left_out or by_hca.keys()
        left_out |= by_hca.keys() - kept
        expected = _CM.union(*(by_hca[hca] for hca in kept))
        second = {node for node in compared.differs.second if hca_of[node] in kept}
        assert our.names == expected | second, name
        assert {access for _, access in (*our.nodes, *their.nodes)} == {"rwm"}, name
    assert left_out == compared.differs.left_out


@contextmanager
def _desk(shape: str) -> Iterator[RdmaDesk]:
    home = Path(tempfile.mkdtemp(prefix="nt-"))
    desk = RdmaDesk(home, shape)
    try:
        yield desk
    finally:
        desk.close()
        shutil.rmtree(home, ignore_errors=True)


def _pools(hcas: tuple[Hca, ...]) -> list[Mapping[str, Any]]:
    """Return pools by each value of each selector that an HCA has, and one that none has."""
    functions = [hca.function for hca in hcas if hca.function is not None]
    wanted: dict[str, Mapping[str, list[str]]] = {"none": {"ifNames": ["absent0"]}}
    for link in ("ether", "infiniband"):
        wanted[link] = {"linkTypes": [link]}
    for one in functions:
        wanted[f"vendor_{one.vendor}"] = {"vendors": [str(one.vendor)]}
        wanted[f"id_{one.device}"] = {"vendors": [str(one.vendor)], "deviceIDs": [str(one.device)]}
        wanted[f"driver_{one.driver}"] = {"drivers": [str(one.driver)]}
    for netdev in (netdev for hca in hcas for netdev in hca.netdevs):
        wanted[f"if_{netdev.name}"] = {"ifNames": [netdev.name]}
    every = {"drivers": sorted({str(one.driver) for one in functions})}
    pools = [(name, _MOST, selectors) for name, selectors in wanted.items()]
    return [
        {"resourceName": name, "rdmaHcaMax": most, "selectors": selectors}
        for name, most, selectors in [*pools, ("few", 1, every)]
    ]


_SELECTORS = {"vendors": ["15b3"]}


def _file(**entry: Any) -> dict[str, Any]:
    """Return a file of one pool."""
    pool = {"resourceName": "a", "rdmaHcaMax": 9, "selectors": _SELECTORS, **entry}
    return {"configList": [pool]}


_BOTH_ACCEPT = {
    "plain": _file(),
    "unknown key": {**_file(), "version": 1},
    "unknown key of an entry": _file(_comment="x"),
    "rootDevices": _file(rootDevices=["0000:18:00.0"]),
    "pfNames": _file(selectors={**_SELECTORS, "pfNames": ["ens1"]}),
    "isRdma": _file(selectors={**_SELECTORS, "isRdma": True}),
    "keys in another case": {"CONFIGLIST": [{"RESOURCENAME": "a", "Selectors": _SELECTORS}]},
    "70 pools": {
        "configList": [_file(resourceName=f"a{number}")["configList"][0] for number in range(70)]
    },
    "prefix": _file(resourcePrefix="example.com"),
    "empty lists and devices": _file(selectors={"vendors": []}, devices=["ib0"]),
    "interval 0": {**_file(), "periodicUpdateInterval": 0},
    "interval null": {**_file(), "periodicUpdateInterval": None},
    "keys of ours": _file(mode="chosen", issm=False, numa=True),
}
_BOTH_REFUSE = {
    "no pool": {"configList": []},
    "null pool": {"configList": [None]},
    "name with a dash": _file(resourceName="a-b"),
    "no name": _file(resourceName=""),
    "no selector": _file(selectors={}),
    "selectors and devices": _file(devices=["ib0"]),
    "negative number": _file(rdmaHcaMax=-1),
    "number with a fraction": _file(rdmaHcaMax=1.5),
    "number as text": _file(rdmaHcaMax="9"),
    "negative interval": {**_file(), "periodicUpdateInterval": -1},
    "interval as text": {**_file(), "periodicUpdateInterval": "60"},
    "vendors of numbers": _file(selectors={"vendors": [15]}),
    "the same name twice": {"configList": _file()["configList"] * 2},
    "more after the end": json.dumps(_file()) + " {}",
}
_ONLY_OURS_ACCEPTS = {
    "a name under two prefixes": {
        "configList": [*_file()["configList"], *_file(resourcePrefix="x.com")["configList"]]
    },
    "a byte order mark": "\ufeff" + json.dumps(_file()),
    "YAML": 'configList:\n- {resourceName: a, rdmaHcaMax: 9, selectors: {vendors: ["15b3"]}}\n',
}


@pytest.fixture(scope="module")
def desk() -> Iterator[RdmaDesk]:
    """Return a machine on which files are tried."""
    with _desk("h100x8-nvswitch-2numa-8cx7") as one:
        yield one


@pytest.mark.parametrize("name", [*_BOTH_ACCEPT, *_BOTH_REFUSE, *_ONLY_OURS_ACCEPTS])
def test_ours_accepts_what_theirs_accepts_and_three_things_more(desk: RdmaDesk, name: str) -> None:
    content = {**_BOTH_ACCEPT, **_BOTH_REFUSE, **_ONLY_OURS_ACCEPTS}[name]
    text = content if isinstance(content, str) else json.dumps(content)
    refusal = desk.refusal(text)
    assert (refusal is None) == (name in _BOTH_ACCEPT), refusal
    if name in _BOTH_REFUSE:
        with pytest.raises(InputError):
            parse("config.json", text)
    else:
        assert parse("config.json", text).pools
