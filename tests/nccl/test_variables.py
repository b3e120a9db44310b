"""NCCL's variables: what is known of them, and what a slip was meant to be."""

import pytest

from nodetopo.nccl.variables import ELSEWHERE, FAMILIES, KNOWN, Standing, instead_of, is_foreign


@pytest.mark.parametrize(
    ("name", "standing", "since", "until"),
    [
        ("NCCL_IB_HCA", Standing.CONFIGURATION, "2.3.5", None),
        ("NCCL_P2P_DISABLE", Standing.DEBUGGING, "2.3.5", None),
        ("NCCL_HOSTID", Standing.UNDOCUMENTED, "2.5.6", None),
        ("NCCL_NET_GDR_LEVEL", Standing.DEBUGGING, "2.4.2", None),
        ("NCCL_IB_GDR_LEVEL", Standing.UNDOCUMENTED, "2.3.5", "2.3.7"),
        ("NCCL_TREE_THRESHOLD", Standing.DEBUGGING, "2.4.2", "2.4.8"),
        ("NCCL_CREATE_THREAD_CONTEXT", Standing.UNDOCUMENTED, "2.13.4", "2.30.4"),
        ("NCCL_DEBUG_SUBSYS", Standing.CONFIGURATION, "2.3.5", None),
        ("NCCL_NET_MERGE_POLICY", Standing.DEBUGGING, "2.30.7", None),
    ],
)
def test_a_variable_has_the_releases_that_read_it(
    name: str, standing: Standing, since: str, until: str | None
) -> None:
    known = KNOWN[name]
    assert (known.standing, known.since, known.until) == (standing, since, until)


def test_what_guides_invented_is_no_variable_of_nccl() -> None:
    assert {"NCCL_PORT_RANGE", "NCCL_TIMEOUT", "NCCL_IB_ENABLE"}.isdisjoint(KNOWN)


def test_each_variable_is_listed_once_and_belongs_to_one_program() -> None:
    assert len(KNOWN) == 301
    assert ELSEWHERE.isdisjoint(KNOWN)
    assert not [name for name in KNOWN if name.startswith(FAMILIES)]


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("NCCL_IB_HCAS", "NCCL_IB_HCA"),
        ("NCCL_SOCKET_IFNAMES", "NCCL_SOCKET_IFNAME"),
        ("NCCL_P2P_DISABLED", "NCCL_P2P_DISABLE"),
        ("NCCL_MAX_CHANNELS", "NCCL_MAX_NCHANNELS"),
        ("NCCL_SOMETHING_ELSE_ENTIRELY", None),
        ("NCCL_" + "A" * 100_000, None),
    ],
)
def test_a_slip_is_told_what_it_was_meant_to_be(slip: str, meant: str | None) -> None:
    assert instead_of(slip) == meant


def test_the_port_range_is_explained_rather_than_corrected() -> None:
    assert "net.ipv4.ip_local_port_range" in str(instead_of("NCCL_PORT_RANGE"))


@pytest.mark.parametrize(
    "name",
    ["PATH", "NVIDIA_VISIBLE_DEVICES", "NCCL_ASYNC_ERROR_HANDLING", "NCCL_FASTRAK_NUM_FLOWS"],
)
def test_variables_of_other_programs_are_left_alone(name: str) -> None:
    assert is_foreign(name)


def test_a_variable_of_nccl_is_not_another_programs() -> None:
    assert not is_foreign("NCCL_DEBUG")
