"""Which GPUs and HCAs belong together, and the flags that rdma_topo demands of their ports.

The expected flags are those that rdma-core's own ``rdma_topo check`` printed for the same dumps.
"""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from nodetopo.machines.bundled import machine
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.complexes import (
    DIRECT,
    Complexes,
    ComplexKind,
    as_flags,
    complexes,
    kernel_argument,
    with_flags,
)
from tests.tools.importers.rdma_topo import parse_rdma_topo
from tests.tools.importers.rdma_topo_text import (
    PLAIN_SWITCH,
    Function,
    changed,
    data_direct,
    inline,
    text,
    vera,
)


def snapshot(functions: Iterable[Function]) -> Snapshot:
    return parse_rdma_topo(text(functions))


def members(found: Complexes) -> list[tuple[ComplexKind, list[str], list[str]]]:
    return [
        (it.kind, [gpu.name for gpu in it.gpus], [hca.name for hca in it.hcas])
        for it in found.complexes
    ]


def flags(found: Complexes) -> dict[str, str | None]:
    return {str(port.address): port.expected for port in found.ports}


def test_data_direct_joins_an_adapter_with_the_gpu_on_its_switch() -> None:
    found = complexes(snapshot(data_direct()))
    assert found.layout is ComplexKind.DATA_DIRECT
    assert members(found) == [
        (ComplexKind.DATA_DIRECT, ["GPU0"], ["mlx5_0"]),
        (ComplexKind.DATA_DIRECT, ["GPU1"], ["mlx5_1"]),
    ]
    first = found.complexes[0]
    assert first.data_direct is not None
    assert (str(first.data_direct.pci), str(first.root_port), str(first.switch)) == (
        "0008:03:00.0",
        "0008:00:00.0",
        "0008:01:00.0",
    )
    assert {at: it for at, it in flags(found).items() if at < "0009"} == {
        "0000:00:00.0": "xx111x1",
        "0000:02:00.0": "xx111x1",
        "0002:00:00.0": "xx111x1",
        "0002:02:00.0": "xx111x1",
        "0008:00:00.0": "xx111x0",
        "0008:01:00.0": None,  # an upstream port has no ACS
        "0008:02:00.0": "xx110x1",
        "0008:02:03.0": "xx101x1",
        "0008:04:00.0": None,
        "0008:05:00.0": "xx111x1",
    }
    assert all(port.is_right for port in found.ports if port.expected)
    assert kernel_argument(found) == (
        "pci=config_acs=xx111x0@0008:00:00.0;xx110x1@0008:02:00.0;xx101x1@0008:02:03.0;"
        "xx111x0@0009:00:00.0;xx110x1@0009:02:00.0;xx101x1@0009:02:03.0"
    )


@pytest.mark.parametrize(
    ("for_virtual_machines", "expected"),
    [
        (False, ("xx000x0", "xx000x0", "xx000x0", "xx000x0", "xx000x0")),
        (True, ("xx111x1", "xx111x1", "1x111x1", "xx111x1", "xx111x1")),
    ],
)
def test_adapter_and_gpu_on_one_switch_are_set_as_the_node_is_used(
    for_virtual_machines: bool, expected: tuple[str, ...]
) -> None:
    one = snapshot(inline(for_virtual_machines=for_virtual_machines))
    found = complexes(one)
    assert found.for_virtual_machines is for_virtual_machines
    assert members(found) == [
        (ComplexKind.INLINE, ["GPU0"], ["mlx5_0"]),
        (ComplexKind.INLINE, ["GPU1"], ["mlx5_1"]),
    ]
    ports = ("0000:00:01.0", "0000:02:00.0", "0000:04:00.0", "0000:04:01.0", "0000:07:00.0")
    assert tuple(flags(found)[port] for port in ports) == expected
    assert all(port.is_right for port in found.ports if port.expected)
    # Asked for the other use, all of them are wrong.
    other = complexes(one, for_virtual_machines=not for_virtual_machines)
    assert not any(port.is_right for port in other.ports if port.expected)


def test_adapters_that_differ_leave_the_use_of_the_node_open() -> None:
    found = complexes(snapshot(changed(inline(), "0001:05:00.0", ats=True)))
    assert (found.layout, found.for_virtual_machines) == (ComplexKind.INLINE, None)
    assert set(flags(found).values()) == {None}


def test_vera_joins_what_is_on_one_numa_node() -> None:
    found = complexes(snapshot(vera()))
    assert members(found) == [
        (ComplexKind.NUMA, ["GPU0", "GPU1"], ["mlx5_0", "mlx5_1"]),
        (ComplexKind.NUMA, ["GPU2", "GPU3"], ["mlx5_2", "mlx5_3"]),
    ]
    # A root port of Vera cannot redirect completions; the adapter's switch can.
    assert flags(found)["0008:00:00.0"] == "xx101x1"
    assert flags(found)["0000:02:00.0"] == "xx111x1"
    assert kernel_argument(found) is None


@pytest.mark.parametrize(
    ("machine", "doubt"),
    [
        (changed(data_direct(), "0000:03:00.0", fields={"V3": "other"}), "no HCA names the card"),
        (changed(data_direct(), "0008:05:00.0", ids=PLAIN_SWITCH), "not wired in a way"),
        (
            tuple(it for it in data_direct() if it.address != "0008:06:00.0"),
            "0 GPUs share a root port",
        ),
    ],
)
def test_a_wiring_that_is_not_known_is_named_and_no_flags_are_demanded(
    machine: tuple[Function, ...], doubt: str
) -> None:
    found = complexes(snapshot(machine))
    (doubtful,) = (it for it in found.complexes if it.doubt is not None)
    assert doubtful.doubt is not None
    assert doubt in doubtful.doubt
    assert {port.expected for port in doubtful.ports} <= {None}


def test_an_adapter_of_two_ports_is_one_member_with_both() -> None:
    (nic,) = (it for it in inline() if it.address == "0000:05:00.0")
    second = replace(nic, place=f"{nic.place[:-1]}1", names={"infiniband": ["mlx5_9"]})
    found = complexes(snapshot((*inline(), second)))
    assert members(found)[0] == (ComplexKind.INLINE, ["GPU0"], ["mlx5_0", "mlx5_9"])
    assert found.complexes[0].doubt is None


def test_behind_other_switches_nothing_may_turn_peers_away() -> None:
    whole = machine("dgx-h100")
    found = complexes(whole)
    assert found.layout is None
    assert members(found) == [(ComplexKind.SWITCH, [f"GPU{at}"], [f"mlx5_{at}"]) for at in range(8)]
    port = found.complexes[0].ports[2]
    assert (port.expected, port.is_right) == (DIRECT, True)
    assert kernel_argument(found) is None
    bridges = tuple(
        replace(it, acs_control=0x1D) if it.address == port.address else it
        for it in whole.bridges or ()
    )
    redirecting = complexes(replace(whole, bridges=bridges))
    assert kernel_argument(redirecting) == f"pci=config_acs={DIRECT}@{port.address}"


def test_gb200_has_a_complex_for_each_cpu_and_leaves_bluefield_out() -> None:
    found = complexes(machine("gb200-nvl72"))
    assert members(found) == [
        (ComplexKind.NUMA, ["GPU0", "GPU1"], ["mlx5_0", "mlx5_1"]),
        (ComplexKind.NUMA, ["GPU2", "GPU3"], ["mlx5_4", "mlx5_5"]),
    ]
    assert [hca.name for hca in found.lone_hcas] == ["mlx5_2", "mlx5_3", "mlx5_6", "mlx5_7"]


def test_any_server_with_gpus_on_root_ports_decides_its_flags_itself() -> None:
    found = complexes(machine("l40s-pcie-4"))
    assert {port.expected for port in found.ports} <= {None}
    assert [gpu.name for gpu in found.lone_gpus] == ["GPU0", "GPU1", "GPU2", "GPU3"]


def test_a_register_that_could_not_be_read_is_neither_right_nor_wrong() -> None:
    whole = snapshot(data_direct())
    bridges = tuple(
        replace(it, acs_control=None, acs_capability=None)
        if it.address == PciAddress.parse("0008:02:00.0")
        else it
        for it in whole.bridges or ()
    )
    (port,) = (
        it
        for it in complexes(replace(whole, bridges=bridges)).ports
        if str(it.address) == "0008:02:00.0"
    )
    assert (port.expected, port.is_right, port.wanted) == ("xx110x1", None, None)


@pytest.mark.parametrize(
    ("control", "wanted", "result"),
    [(0b0011101, "xx000x0", 0), (0, "xx110x1", 0b0011001), (0x7F, "xxxxxxx", 0x7F)],
)
def test_flags_change_only_the_bits_that_they_name(control: int, wanted: str, result: int) -> None:
    assert with_flags(control, wanted) == result
    assert as_flags(0x1D) == "0011101"


def test_nothing_known_is_no_complex() -> None:
    assert complexes(Snapshot()) == Complexes()
