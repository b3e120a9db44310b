"""NVML's numbers in the model's words; whatever is unknown is refused, not guessed."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from nodetopo.model.gpu import (
    ConfidentialCompute,
    Fabric,
    FabricState,
    MigPlacement,
    RemappedRows,
    Virtualization,
)
from nodetopo.model.numa import CpuSet
from nodetopo.model.nvlink import Closeness, P2pStatus, PeerKind
from nodetopo.model.pci import PciAddress
from nodetopo.probes.nvml import values


def _fabric(state: int, cluster: bytes) -> SimpleNamespace:
    return SimpleNamespace(state=state, status=0, cliqueId=3, clusterUuid=cluster)


def _field(kind: int, **value: float) -> SimpleNamespace:
    return SimpleNamespace(valueType=kind, value=SimpleNamespace(**value))


@pytest.mark.parametrize(
    ("convert", "answer", "meaning"),
    [
        (values.architecture, 8, "ada-lovelace"),
        (values.architecture, 13, "rubin"),
        (values.cuda_version, 13000, (13, 0)),
        (values.cuda_version, 12040, (12, 4)),
        (values.cpu_set, [0b101, 0, 1 << 63], CpuSet.of((0, 2, 191))),
        (values.cpu_set, [0, 0], None),
        (values.positive, 0, None),
        (values.positive, 16, 16),
        (values.flag, 1, True),
        (values.peer_kind, 1, PeerKind.CPU),
        (values.peer_kind, 255, None),
        (values.closeness, 0, Closeness.INTERNAL),
        (values.p2p_status, 0, P2pStatus.OK),
        (values.p2p_status, 4, P2pStatus.DISABLED_BY_REGKEY),
        (values.p2p_status, 5, P2pStatus.NOT_SUPPORTED),
        (values.p2p_status, 6, None),
        (values.virtualization, 0, Virtualization.NONE),
        (values.virtualization, 4, Virtualization.HOST_VSGA),
        (values.node_set, [0b101, 2], (0, 2, 65)),
        (values.node_set, [0, 0], None),
        (values.numa_node, 18, 18),
        (values.numa_node, -1, None),
        (values.numa_node, 0xFFFFFFFF, None),
        (values.text, " 1654321 ", "1654321"),
        (values.text, "", None),
        (values.count, 5_000_000_000, 5_000_000_000),
        (values.board, 0x90600, 0x90600),
        (
            values.confidential_compute,
            SimpleNamespace(environment=2, ccFeature=1, devToolsMode=0),
            ConfidentialCompute(is_enabled=True, is_dev_tools=False),
        ),
        (
            values.mig_place,
            SimpleNamespace(profileId=19, placement=SimpleNamespace(start=3, size=1)),
            (19, MigPlacement(start=3, size=1)),
        ),
        (values.mig_profile, "NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", "1g.10gb+me"),
        (values.mig_profile, "NVIDIA H100 80GB HBM3", None),
        (
            values.pci_address,
            SimpleNamespace(busId="00010000:1B:00.0"),
            PciAddress(0x10000, 0x1B, 0, 0),
        ),
        (values.peer_address, SimpleNamespace(busId="FFFFFFFF:FF:FF.F"), None),
        (values.peer_address, SimpleNamespace(busId="ffffffff:ff:ff.0"), None),
        (
            values.remapped_rows,
            (1, 2, 1, 0),
            RemappedRows(correctable=1, uncorrectable=2, is_pending=True, has_failed=False),
        ),
        (
            values.fabric,
            _fabric(2, bytes(16)),
            Fabric(state=FabricState.IN_PROGRESS, status=0, clique_id=3),
        ),
        (values.field_value, _field(3, ullVal=7), 7),
        (values.field_value, _field(0, dVal=25781.0), 25781),
    ],
)
def test_known_answers_have_their_meaning(
    convert: Callable[[Any], object],
    answer: object,
    meaning: object,
) -> None:
    assert convert(answer) == meaning


@pytest.mark.parametrize(
    ("convert", "answer"),
    [
        (values.architecture, 0xFFFFFFFF),
        (values.flag, 2),
        (values.small, -1),
        (values.small, 0xA5A5A5A5),
        (values.peer_kind, 3),
        (values.closeness, 35),
        (values.p2p_status, 7),
        (values.p2p_status, -1),
        (values.virtualization, 5),
        (values.numa_node, -2),
        (values.count, 0xA5A5A5A5A5A5A5A5),
        (values.board, 0xA5A5A5A5),
        (
            values.confidential_compute,
            SimpleNamespace(environment=2, ccFeature=2, devToolsMode=0),
        ),
        (values.pci_address, SimpleNamespace(busId="nonsense")),
        (values.memory_mib, SimpleNamespace(total=0xA5A5A5A5A5A5A5A5)),
        (values.fabric, _fabric(9, bytes(16))),
        (values.field_value, _field(99)),
        (values.field_value, _field(5, siVal=-1)),
    ],
)
def test_unknown_answers_are_refused(convert: Callable[[Any], object], answer: object) -> None:
    with pytest.raises(ValueError, match=r"unknown|neither|implausible|not a|valid"):
        convert(answer)


@pytest.mark.parametrize(
    ("number", "generation"),
    [(0, None), (1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 5), (8, 6)],
)
def test_an_nvlink_version_counts_minor_versions_too(number: int, generation: int | None) -> None:
    assert values.nvlink_generation(number) == generation


@pytest.mark.parametrize("number", [-1, 9])
def test_an_nvlink_version_of_the_future_is_not_guessed(number: int) -> None:
    with pytest.raises(ValueError, match="unknown NVLink version"):
        values.nvlink_generation(number)
