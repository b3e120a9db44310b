"""The rules on MIG: layouts that nobody can be given, and pods that ask for others."""

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Verdict
from nodetopo.model.gpu import Gpu, Mig, MigInstance
from nodetopo.model.node import NodeStatus
from nodetopo.model.pod import Pod
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import healthy, result
from tests.components.audit.rules.gpu_pods import (
    found,
    missing,
    node,
    observed,
    pod,
    trainer,
    verdict,
)

H100 = "NVIDIA H100 80GB HBM3"
SINGLE = NodeStatus(capacity={"nvidia.com/gpu": 7})
MIXED = NodeStatus(capacity={"nvidia.com/gpu": 7, "nvidia.com/mig-1g.10gb": 7})
CODES = [f"MIG-{number:03}" for number in range(1, 6)]


def divided(snapshot: Snapshot, *layouts: str | None) -> Snapshot:
    """Return *snapshot* with its first GPUs in MIG mode, with these profiles in each."""
    parts = [
        replace(gpu, mig=_mig(layout)) for gpu, layout in zip(snapshot.gpus, layouts, strict=False)
    ]
    return replace(snapshot, gpus=(*parts, *snapshot.gpus[len(parts) :]))


def _mig(layout: str | None) -> Mig:
    names = (layout or "").split()
    return Mig(
        is_enabled=True,
        is_pending=False,
        instances=tuple(
            MigInstance(uuid=f"MIG-{number}", profile=None if name == "?" else name)
            for number, name in enumerate(names)
        ),
    )


def asks(**profiles: int) -> Pod:
    """Return a pod that waits for MIG devices, ``_1g_10gb=2``."""
    amounts = {
        f"nvidia.com/mig-{name[1:].replace('_', '.')}": count for name, count in profiles.items()
    }
    return pod(replace(trainer(), requests=amounts, limits=amounts))


def test_a_gpu_in_mig_mode_without_devices_lies_idle() -> None:
    snapshot = divided(node(node_status=MIXED), "1g.10gb", "")
    (finding,) = found("MIG-001", snapshot)
    assert finding[0].startswith("GPU1 ")
    assert finding[1:] == ("MIG mode without a MIG device", "MIG devices, or MIG mode off")


@pytest.mark.parametrize(
    ("layouts", "status", "seen"),
    [
        (
            ("1g.10gb 1g.10gb",),
            SINGLE,
            ["2 of 1g.10gb, 7 whole GPUs; offered: nvidia.com/gpu"],
        ),
        (
            ("1g.10gb",) * 7 + ("3g.40gb",),
            NodeStatus(capacity={}),
            ["7 of 1g.10gb, 1 of 3g.40gb, 0 whole GPUs; offered: nothing"],
        ),
        (("1g.10gb",), MIXED, []),
        (("1g.10gb",) * 8, SINGLE, []),
        ((), SINGLE, []),
    ],
)
def test_a_layout_is_held_against_what_is_offered(
    layouts: tuple[str, ...], status: NodeStatus, seen: list[str]
) -> None:
    assert observed("MIG-001", divided(node(node_status=status), *layouts)) == seen


def test_what_a_mixed_layout_is_offered_as_must_be_known() -> None:
    snapshot = divided(node(node_status=None, offer=None), "1g.10gb")
    assert missing("MIG-001", snapshot) == ("resources of the node",)
    assert verdict("MIG-001", node(node_status=None, offer=None)) is Verdict.PASS


@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_mode_that_waits_for_a_reset_is_found(is_enabled: bool) -> None:
    first, *others = healthy().gpus
    mig = Mig(is_enabled=is_enabled, is_pending=True)
    snapshot = node(gpus=(replace(first, mig=mig), *others))
    way = "goes off" if is_enabled else "comes on"
    assert observed("MIG-002", snapshot) == [f"MIG mode {way} at the next reset"]


@pytest.mark.parametrize(
    ("gpus", "layouts", "seen"),
    [
        (4, ("1g.10gb",), []),
        (8, ("1g.10gb",), ["8 of nvidia.com/gpu; 1 of the node's 8 GPUs are in MIG mode"]),
        (2, ("1g.10gb",) * 8, ["2 of nvidia.com/gpu; 8 of the node's 8 GPUs are in MIG mode"]),
        (1, ("1g.10gb",) * 8, []),
        (8, (), []),
    ],
)
def test_a_job_of_several_gpus_needs_them_whole(
    gpus: int, layouts: tuple[str, ...], seen: list[str]
) -> None:
    job = pod(trainer({"nvidia.com/gpu": gpus}))
    assert observed("MIG-003", divided(node(job), *layouts)) == seen


def test_a_profile_that_the_layout_lacks_is_found() -> None:
    snapshot = divided(node(asks(_1g_10gb=1, _2g_20gb=2)), "1g.10gb 2g.20gb")
    assert found("MIG-004", snapshot) == [
        ("ml/job-0", "2 of 2g.20gb; the node has 1", "a layout with 2 of 2g.20gb")
    ]
    assert verdict("MIG-005", snapshot) is Verdict.PASS


def test_a_profile_with_media_engines_is_spelled_as_resources_are() -> None:
    snapshot = divided(node(asks(_1g_10gb_me=1)), "1g.10gb+me")
    assert verdict("MIG-004", snapshot) is Verdict.PASS


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (
            asks(_1g_10gb=57),
            (
                "at most 56 of 1g.10gb on 8 GPUs: 7 on each, as one takes 1 of 8 memory slices, "
                "from 0, 1, 2, 3, 4, 5, 6 on"
            ),
        ),
        (asks(_1g_5gb=1), f"profiles of {H100}, of which 1g.5gb is none"),
        (
            asks(_4g_40gb=8, _2g_20gb=9),
            (
                "what 8 GPUs can hold together: this is 50 of 64 memory slices, but 2g.20gb begins "
                "at slice 0, 2, 4; 4g.40gb begins at slice 0"
            ),
        ),
    ],
)
def test_what_no_such_node_can_hold_is_explained(job: Pod, reason: str) -> None:
    snapshot = divided(node(job), *("1g.10gb",) * 8)
    (finding,) = found("MIG-005", snapshot)
    assert (finding[0], finding[2]) == ("ml/job-0", reason)
    assert verdict("MIG-004", snapshot) is Verdict.PASS


def test_gpus_that_cannot_be_divided_hold_no_mig_device() -> None:
    snapshot = node(asks(_1g_5gb=1), machine="l40s-pcie-4")
    assert found("MIG-005", snapshot) == [("ml/job-0", "1 of 1g.5gb", "GPUs that can be divided")]


@pytest.mark.parametrize("code", ["MIG-004", "MIG-005"])
@pytest.mark.parametrize(
    "job",
    [
        replace(asks(_1g_5gb=99), phase="Running"),
        replace(asks(_1g_5gb=99), owner_kind="DaemonSet"),
        pod(trainer({"nvidia.com/mig-1g.10gb.shared": 900})),
        pod(trainer({"nvidia.com/mig-": 1, "nvidia.com/mig-1c.3g.40gb": 1})),
    ],
    ids=["runs", "an agent", "shared", "no profile"],
)
def test_a_pod_that_has_its_devices_or_asks_for_no_profile_is_not_judged(
    code: str, job: Pod
) -> None:
    assert verdict(code, divided(node(job), "1g.10gb")) is Verdict.PASS


def test_a_product_that_nobody_described_leaves_its_profiles_unknown() -> None:
    def strange(gpu: Gpu) -> Gpu:
        return replace(gpu, product="NVIDIA X1", compute_capability=(19, 0))

    snapshot = node(asks(_1g_5gb=1), gpus=tuple(map(strange, healthy().gpus)))
    assert observed("MIG-005", snapshot) == []
    assert missing("MIG-005", snapshot)[0].startswith("MIG profiles of GPU0, GPU1")


def test_an_existing_device_proves_that_it_can_be() -> None:
    snapshot = divided(node(asks(_1g_5gb=1)), "1g.5gb")
    assert verdict("MIG-005", snapshot) is Verdict.PASS


@pytest.mark.parametrize("code", CODES)
def test_an_unread_mode_leaves_every_rule_unknown(code: str) -> None:
    gpus = tuple(replace(gpu, mig=None) for gpu in healthy().gpus)
    found_ = result(code, node(asks(_1g_10gb=1), gpus=gpus))
    assert (found_.verdict, found_.findings) == (Verdict.UNKNOWN, ())


@pytest.mark.parametrize("code", ["MIG-001", "MIG-004", "MIG-005"])
def test_an_unread_profile_leaves_the_layout_unknown(code: str) -> None:
    snapshot = divided(node(asks(_1g_10gb=1), node_status=MIXED), "2g.20gb ?")
    found_ = result(code, snapshot)
    assert (found_.verdict, found_.findings) == (Verdict.UNKNOWN, ())


@pytest.mark.parametrize("machine", ["dgx-1v", "l40s-pcie-4", "dgx-h100", "hgx-b200"])
@pytest.mark.parametrize("code", CODES)
def test_nodes_without_mig_pass(code: str, machine: str) -> None:
    assert verdict(code, node(pod(), machine=machine)) is Verdict.PASS
