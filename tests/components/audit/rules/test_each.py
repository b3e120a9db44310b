"""Rules that judge each device by itself: findings in order, and the devices not known."""

from msgspec.structs import replace

from nodetopo.checks.inputs import no_adapters
from nodetopo.checks.rule import Finding, Judgement, Missing, Rule, Severity, Skip, rule
from nodetopo.components.audit.rules.each import gpu_rule, hca_rule, known
from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import Hca
from nodetopo.model.snapshot import Snapshot


@gpu_rule("GPU-001", Severity.ERROR, "persistence mode", expected="on")
def persistent(gpu: Gpu) -> str | None:
    return None if known(gpu.persistence) else "off"


@hca_rule("RDM-001", Severity.ERROR, "board", expected="a")
def boards(hca: Hca) -> str | None:
    board = known(hca.board_id)
    return None if board == "a" else board


@rule("GPU-002", Severity.ERROR, unless=(no_adapters, lambda _: "second"))
def two_reasons(_snapshot: Snapshot) -> Judgement:
    raise AssertionError


def parts(entry: Rule, snapshot: Snapshot) -> list[Finding | Missing | Skip]:
    return list(entry.judge(snapshot))


def test_findings_come_in_the_order_of_gpus_and_then_those_that_are_not_known() -> None:
    states = (False, None, True, False)
    gpus = tuple(Gpu(index=index, persistence=state) for index, state in enumerate(states))
    lost = replace(gpus[2], is_lost=True)
    snapshot = Snapshot(gpus=(*gpus[:2], lost, gpus[3]))
    assert parts(persistent, snapshot) == [
        Finding(subject="GPU0", observed="off", expected="on"),
        Finding(subject="GPU3", observed="off", expected="on"),
        Missing("persistence mode of GPU1, GPU2"),
    ]


def test_a_rule_of_gpus_is_skipped_without_any() -> None:
    assert parts(persistent, Snapshot()) == [Skip("no GPU")]


def test_a_rule_of_hcas_names_those_that_are_not_known() -> None:
    hcas = (Hca(name="mlx5_0", board_id="b"), Hca(name="mlx5_1"), Hca(name="mlx5_2", board_id="a"))
    assert parts(boards, Snapshot(hcas=hcas)) == [
        Finding(subject="mlx5_0", observed="b", expected="a"),
        Missing("board of mlx5_1"),
    ]
    assert parts(boards, Snapshot()) == [Missing("HCAs")]


def test_the_first_of_several_reasons_is_why_a_rule_does_not_apply() -> None:
    assert parts(two_reasons, Snapshot(hcas=())) == [Skip("no RDMA device")]
    assert parts(two_reasons, Snapshot()) == [Skip("second")]
