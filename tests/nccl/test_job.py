"""The variables of containers: exact values, and every reason to leave one out."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodetopo.machines.bundled import machine
from nodetopo.model.hca import Hca, HcaKind, HcaPort, LinkLayer
from nodetopo.model.pci import PciAddress, PciPath
from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.job import JobVariable, container_variables, job_ports, port_list, vllm_mapping
from nodetopo.rdma.pairing import Pairing
from tests.strategies import machines
from tests.topology.trees import gpu, hca

ALL = tuple(JobVariable)
NCCL, UCX, NVSHMEM, VLLM = ALL
SELECTION = "VLLM_NIC_SELECTION_VARS"

UP = HcaPort(number=1, state="ACTIVE", layer=LinkLayer.INFINIBAND)
DOWN = replace(UP, state="DOWN")
ROCE = replace(UP, layer=LinkLayer.ETHERNET)


def _node(*ports: Sequence[HcaPort]) -> Snapshot:
    """A machine of a GPU and an HCA behind a switch for each element of *ports*."""
    places = range(len(ports))
    return Snapshot(
        gpus=tuple(
            gpu(at, 16 * at + 1, 16 * at + 2, 16 * at + 3, 16 * at + 5, numa=0) for at in places
        ),
        hcas=tuple(
            replace(
                hca(f"mlx5_{at}", 16 * at + 1, 16 * at + 2, 16 * at + 4, 16 * at + 6, numa=0),
                ports=tuple(ports[at]),
            )
            for at in places
        ),
    )


def _variables(snapshot: Snapshot, *, hcas: Sequence[Hca] | None = None) -> dict[str, str]:
    given = snapshot.hcas or () if hcas is None else hcas
    return dict(container_variables(snapshot, snapshot.gpus, given, ALL))


def _why(snapshot: Snapshot, hcas: Sequence[Hca] | None = None) -> str:
    """Why there is no list; and that there is then no variable at all."""
    given = snapshot.hcas or () if hcas is None else hcas
    assert _variables(snapshot, hcas=given) == {}
    return job_ports(snapshot, given).problem


# Values.


def test_each_library_gets_the_form_that_it_reads() -> None:
    assert _variables(_node([UP], [UP])) == {
        "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1",
        "NVSHMEM_HCA_LIST": "mlx5_0:1,mlx5_1:1",
        "VLLM_GPU_NIC_PCIE_MAPPING": "0000:05:00.0=0000:06:00.0,0000:15:00.0=0000:16:00.0",
        SELECTION: "UCX_NET_DEVICES:1",
    }


def test_ucx_has_a_list_where_vllm_has_no_mapping() -> None:
    snapshot = _node([UP], [UP])
    given = (snapshot, snapshot.gpus, snapshot.hcas or ())
    without = [variable for variable in JobVariable if variable is not VLLM]
    assert container_variables(*given, without)["UCX_NET_DEVICES"] == "mlx5_0:1,mlx5_1:1"


def test_only_what_is_wanted_is_given() -> None:
    snapshot = _node([UP])
    given = (snapshot, snapshot.gpus, snapshot.hcas or ())
    assert container_variables(*given, ()) == {}
    assert container_variables(*given, {NCCL}) == {"NCCL_IB_HCA": "=mlx5_0:1"}
    assert set(container_variables(*given, {VLLM})) == {"VLLM_GPU_NIC_PCIE_MAPPING", SELECTION}


def test_without_gpus_the_lists_are_given_and_the_mapping_is_not() -> None:
    snapshot = _node([UP], [UP])
    found = container_variables(snapshot, (), snapshot.hcas or (), ALL)
    assert set(found) == {"NCCL_IB_HCA", "UCX_NET_DEVICES", "NVSHMEM_HCA_LIST"}


def test_a_bundled_machine_maps_each_gpu_to_the_hca_behind_its_switch() -> None:
    dgx = machine("dgx-h100")
    gpus, hcas = (dgx.gpus[2], dgx.gpus[5]), (dgx.hcas or ())[::-1]
    chosen = [one for one in hcas if one.name in ("mlx5_5", "mlx5_2")]
    found = container_variables(dgx, gpus, chosen, ALL)
    assert found["NCCL_IB_HCA"] == "=mlx5_2:1,mlx5_5:1"
    assert found["VLLM_GPU_NIC_PCIE_MAPPING"] == (
        "0000:52:00.0=0000:4f:00.0,0000:c3:00.0=0000:c0:00.0"
    )


def test_a_pairing_at_hand_changes_nothing() -> None:
    dgx = machine("dgx-h100")
    given = (dgx, dgx.gpus, dgx.hcas or (), ALL)
    assert container_variables(*given, pairing=Pairing(snapshot=dgx)) == container_variables(*given)


def test_both_ports_of_a_card_are_named_and_vllm_takes_the_first() -> None:
    found = _variables(_node([UP, replace(UP, number=2)]))
    assert found["NCCL_IB_HCA"] == "=mlx5_0:1,mlx5_0:2"
    assert found[SELECTION] == "UCX_NET_DEVICES:1"


def test_several_gpus_share_an_hca() -> None:
    snapshot = _node([UP], [UP])
    found = _variables(snapshot, hcas=(snapshot.hcas or ())[:1])
    assert found["VLLM_GPU_NIC_PCIE_MAPPING"] == (
        "0000:05:00.0=0000:06:00.0,0000:15:00.0=0000:06:00.0"
    )


# Reasons.


def test_ports_that_are_not_active_are_left_out_and_named() -> None:
    snapshot = _node([UP], [DOWN], [replace(UP, state="INIT")])
    found = _variables(snapshot)
    assert found["NCCL_IB_HCA"] == "=mlx5_0:1"
    assert found["VLLM_GPU_NIC_PCIE_MAPPING"].count("=0000:06:00.0") == 3
    reason = port_list(NCCL, job_ports(snapshot, snapshot.hcas or ())).reason
    assert reason == (
        "1 ACTIVE InfiniBand port of the job's HCAs; mlx5_1:1 is DOWN; mlx5_2:1 is INIT"
    )


@pytest.mark.parametrize(
    ("snapshot", "reason"),
    [
        (_node([DOWN], [DOWN]), "no port is ACTIVE: mlx5_0:1 is DOWN, mlx5_1:1 is DOWN"),
        (_node([UP], []), "the ports of mlx5_1 are not known"),
        (_node([UP], [replace(UP, state=None)]), "the ports of mlx5_1 are not known"),
        (_node([UP], [replace(UP, layer=None)]), "the ports of mlx5_1 are not known"),
        (
            _node([UP], [ROCE]),
            "mlx5_1:1 speaks Ethernet and mlx5_0:1 speaks InfiniBand, which do not reach each",
        ),
        (_node([replace(UP, number=at) for at in range(1, 34)]), "33 ports are ACTIVE, and lists"),
        (_node(), "there is no HCA for the job"),
    ],
    ids=["down", "no ports", "no state", "no layer", "mixed", "too many", "none"],
)
def test_what_has_no_right_value_is_left_out(snapshot: Snapshot, reason: str) -> None:
    assert _why(snapshot).startswith(reason)


def test_as_many_ports_as_lists_hold_are_given() -> None:
    found = _variables(_node([replace(UP, number=at) for at in range(1, 33)]))
    assert len(found["NCCL_IB_HCA"].split(",")) == 32


def test_an_unread_port_counts_only_among_the_hcas_of_the_job() -> None:
    snapshot = _node([UP], [])
    assert _variables(snapshot, hcas=(snapshot.hcas or ())[:1])["NVSHMEM_HCA_LIST"] == "mlx5_0:1"


def test_a_renamed_hca_goes_by_its_present_name() -> None:
    before = _node([UP], [UP])
    renamed = replace(
        before,
        hcas=tuple(replace(one, name=f"ibp{at}s0") for at, one in enumerate(before.hcas or ())),
    )
    found = _variables(renamed, hcas=before.hcas)
    assert found["NCCL_IB_HCA"] == "=ibp0s0:1,ibp1s0:1"
    assert job_ports(renamed, before.hcas or ()).remarks[0] == "mlx5_0 is now called ibp0s0"


def test_names_that_were_exchanged_follow_the_function() -> None:
    """After a reload of the driver mlx5_0 may be what mlx5_1 was."""
    before = _node([UP], [UP])
    names = ("mlx5_1", "mlx5_0")
    after = replace(
        before,
        hcas=tuple(
            replace(one, name=name) for one, name in zip(before.hcas or (), names, strict=True)
        ),
    )
    assert _variables(after, hcas=(before.hcas or ())[:1])["NCCL_IB_HCA"] == "=mlx5_1:1"


def test_an_hca_that_is_gone_leaves_everything_out() -> None:
    before = _node([UP], [UP])
    after = replace(before, hcas=(before.hcas or ())[:1])
    assert _why(after, before.hcas) == "mlx5_1 is not on the node any more"
    assert _why(replace(before, hcas=None), before.hcas) == "the node's HCAs are not known"


@pytest.mark.parametrize(
    "name", ["mlx5,0", "mlx5:0", "^mlx5", "=mlx5", "mlx5 0", "m" * 64, "ü", ""]
)
def test_a_name_that_a_list_would_read_as_another_is_left_out(name: str) -> None:
    snapshot = _node([UP])
    odd = replace(snapshot, hcas=tuple(replace(one, name=name) for one in snapshot.hcas or ()))
    assert _why(odd).startswith("a list cannot hold the name")


# vLLM's mapping, of which a wrong or missing entry ends a worker.


def _mapping(snapshot: Snapshot) -> str:
    given = vllm_mapping(snapshot, snapshot.gpus, job_ports(snapshot, snapshot.hcas or ()))
    assert given.value is None
    assert SELECTION not in _variables(snapshot)
    assert NCCL in _variables(snapshot)
    return given.reason


def test_a_subfunction_has_no_address_for_vllm() -> None:
    snapshot = _node([UP])
    hcas = tuple(
        replace(one, kind=HcaKind.SUBFUNCTION, subfunction=88) for one in snapshot.hcas or ()
    )
    expected = "mlx5_0 has no PCI address of its own, by which vLLM finds it"
    assert _mapping(replace(snapshot, hcas=hcas)) == expected


def test_of_two_devices_on_a_function_vllm_finds_the_first_name() -> None:
    snapshot = _node([UP])
    first = (snapshot.hcas or ())[0]
    both = replace(snapshot, hcas=(first, replace(first, name="a_rep")))
    found = container_variables(both, both.gpus, (first,), ALL)
    assert "VLLM_GPU_NIC_PCIE_MAPPING" not in found
    assert found["NCCL_IB_HCA"] == "=mlx5_0:1"


def test_vllm_takes_one_port_number_for_all() -> None:
    reason = _mapping(_node([UP], [replace(DOWN), replace(UP, number=2)]))
    assert reason == "vLLM takes one port number for all, and the ports are mlx5_0:1, mlx5_1:2"


def test_a_gpu_without_an_address_or_a_distance_leaves_the_mapping_out() -> None:
    snapshot = _node([UP])
    lost = replace(snapshot, gpus=tuple(replace(one, pci=None) for one in snapshot.gpus))
    assert _mapping(lost) == "the PCI address of GPU0 is not known"
    unplaced = replace(snapshot, gpus=tuple(replace(one, path=None) for one in snapshot.gpus))
    assert _mapping(unplaced) == "how far GPU0 is from mlx5_0 is not known"


def test_a_virtual_machine_that_shows_no_switch_gets_no_mapping() -> None:
    vm = machine("h100-vm-8")
    assert _mapping(vm).startswith("this virtual machine may hide which HCA is nearest to GPU")


def test_a_guess_about_the_gpus_leaves_no_gpu_of_the_node_without_a_nic() -> None:
    dgx = machine("dgx-h100")
    gpus, hcas = dgx.gpus[:2], [one for one in dgx.hcas or () if one.name in ("mlx5_0", "mlx5_1")]
    certain = container_variables(dgx, gpus, hcas, (VLLM,))[VLLM].split(",")
    guessed = container_variables(dgx, gpus, hcas, (VLLM,), are_gpus_certain=False)[VLLM].split(",")
    assert len(certain) == 2
    assert set(certain) <= set(guessed)
    pairs = dict(pair.split("=") for pair in guessed)
    assert set(pairs) == {str(one.pci) for one in dgx.gpus}
    assert set(pairs.values()) == {str(one.pci) for one in hcas}
    absent = container_variables(dgx, (), hcas, (VLLM,), are_gpus_certain=False)
    assert absent == {}


# Any machine.


def _with_ports(draw: st.DrawFn, snapshot: Snapshot) -> Snapshot:
    port = st.builds(
        HcaPort,
        number=st.integers(1, 2),
        state=st.sampled_from(("ACTIVE", "ACTIVE", "DOWN", None)),
        layer=st.sampled_from((*LinkLayer, LinkLayer.INFINIBAND, None)),
    )
    unique = st.lists(port, max_size=2, unique_by=lambda one: one.number)
    hcas = tuple(
        replace(
            one,
            pci=PciAddress(0, 0x80 + at, 0, 0),
            path=PciPath(root="pci0000:80", hops=(PciAddress(0, 0x80 + at, 0, 0),)),
            ports=tuple(draw(unique)),
        )
        for at, one in enumerate(snapshot.hcas or ())
    )
    return replace(snapshot, hcas=hcas)


@given(st.data(), machines())
def test_every_value_names_what_is_there_and_active(data: st.DataObject, node: Snapshot) -> None:
    snapshot = data.draw(st.composite(_with_ports)(node))
    chosen = data.draw(st.lists(st.sampled_from(snapshot.hcas or (None,)), unique=True))
    hcas = [one for one in chosen if one is not None]
    found = container_variables(snapshot, snapshot.gpus, hcas, ALL)
    active = {
        f"{one.name}:{port.number}" for one in hcas for port in one.ports if port.state == "ACTIVE"
    }
    if not found:
        return
    assert set(found["NCCL_IB_HCA"].removeprefix("=").split(",")) == active
    assert f"={found['NVSHMEM_HCA_LIST']}" == found["NCCL_IB_HCA"]
    assert found.get(UCX) == (None if VLLM in found else found[NVSHMEM])
    assert (VLLM in found) is (SELECTION in found)
    if VLLM in found:
        pairs = dict(pair.split("=") for pair in found[VLLM].split(","))
        assert set(pairs) == {str(one.pci) for one in snapshot.gpus}
        assert set(pairs.values()) <= {str(one.pci) for one in hcas}
