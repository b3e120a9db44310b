"""The table of measured alignment."""

from msgspec.structs import replace

from nodetopo.cli.alignment import plain, text
from nodetopo.cli.output import Style
from nodetopo.components.audit.alignment.measure import measured
from nodetopo.components.audit.alignment.record import PodAlignment
from nodetopo.model.pod import Pod
from tests.components.audit.alignment.alignment_nodes import GIB, NONE, node, worker

H100 = node(settings=NONE)
PLAIN = Style(is_on=False)
PODS = (
    Pod(
        namespace="ml",
        name="good",
        containers=(worker(H100, [0, 1], hcas=["mlx5_0"], cpus="0-3", memory={0: GIB}),),
    ),
    Pod(
        namespace="ml",
        name="shares",
        qos_class="Burstable",
        containers=(worker(H100, [2]),),
    ),
    Pod(
        namespace="ml",
        name="silent",
        containers=(replace(worker(H100, [3, 4]), cpus=None, memory=None),),
    ),
)
ROWS = measured(replace(H100, pods=PODS))


def test_a_row_holds_gpus_numa_nodes_verdict_and_causes() -> None:
    assert text(ROWS, PLAIN) == (
        "measured alignment, by NUMA node:\n"
        "POD        CONTAINER  GPUS  GPU  CPU   MEMORY  HCA  NVLINK  VERDICT     CAUSE\n"
        "ml/good    worker     0-1   0    0     0       0    all     aligned     -\n"
        "ml/shares  worker     2     0    0,1*  0,1*    -    -       misaligned  "
        "KUB-001, QOS-001, KUB-004\n"
        "ml/silent  worker     3-4   0,1  ?     ?       -    all     misaligned  KUB-003\n"
    )


def test_without_rows_there_is_no_table() -> None:
    assert text((), PLAIN) == ""


def test_gpus_that_do_not_follow_each_other_are_named_one_by_one() -> None:
    row = PodAlignment(
        namespace="a", pod="b", container="c", gpus=("GPU0", "GPU2", "GPU-x", "GPU7")
    )
    assert " 0,2,GPU-x,7 " in text((row,), PLAIN)
    huge = replace(row, gpus=(f"GPU{'9' * 5000}",))
    assert f" GPU{'9' * 5000} " in text((huge,), PLAIN)


def test_verdicts_are_coloured_on_a_terminal() -> None:
    lines = text(ROWS, Style(is_on=True)).splitlines()
    assert "\x1b[32maligned\x1b[0m" in lines[2]
    assert "\x1b[31mmisaligned\x1b[0m" in lines[3]
    assert "\x1b" not in "".join(lines[:2])


def test_names_cannot_steer_the_terminal_or_break_the_table() -> None:
    row = replace(ROWS[0], pod="a\x1b[31m\n\u2028b aligned x", container="c\r\u202e")
    found = text((row,), PLAIN)
    assert len(found.splitlines()) == 3
    assert "\x1b" not in found
    assert "\u202e" not in found


def test_json_has_a_row_for_each_container() -> None:
    assert [(row["pod"], row["verdict"]) for row in plain(ROWS)] == [
        ("good", "aligned"),
        ("shares", "misaligned"),
        ("silent", "misaligned"),
    ]
