"""What a person is told: each change once, in words."""

from nodetopo.components.gpus.health.notices import notices
from nodetopo.components.gpus.health.rules import HealthRules
from nodetopo.model.gpu_health import HealthClass
from nodetopo.model.notice import Notice
from nodetopo.model.nvml_event import NvmlTrouble
from tests.components.gpus.health.gpu_history import PENDING, SOUND, A, B, Story, seen, trouble, xid

RULES = HealthRules()


def told(story: Story, step: Story) -> tuple[Notice, ...]:
    return notices(story.state, step.state, step.rules)


def after(story: Story) -> Story:
    """Return another story that goes on from *story*."""
    return Story(story.rules, story.now, story.state)


def test_an_unhealthy_gpu_is_told_by_name_with_what_to_do() -> None:
    story = Story().look()
    assert told(story, after(story).events(xid(79))) == (
        Notice(
            reason="GpuUnhealthy",
            message=f"GPU0 ({A}): XID 79, the GPU fell off the bus; it needs a reboot of the node",
            is_warning=True,
            gpu=A,
            key=f"{A} Xid79",
        ),
    )


def test_the_same_again_is_told_once() -> None:
    story = Story().look().events(xid(79))
    assert told(story, after(story).wait(600).events(xid(79)).look()) == ()


def test_a_second_fault_of_the_same_gpu_is_told_too() -> None:
    story = Story().look().events(xid(79))
    (notice,) = told(story, after(story).events(xid(63)))
    assert (notice.reason, notice.key) == ("GpuDegraded", f"{A} Xid63")


def test_a_recovery_is_told_and_is_no_warning() -> None:
    story = Story().look().events(xid(95)).look().wait(60)
    (notice,) = told(story, after(story).look())
    assert (notice.reason, notice.message, notice.is_warning) == (
        "GpuRecovered",
        f"GPU0 ({A}): Healthy",
        False,
    )


def test_a_recovery_that_leaves_a_gpu_degraded_says_so() -> None:
    lost = seen(is_lost=True)
    story = Story().look(lost).events(xid(92)).looks_for(59)
    (notice,) = told(story, after(story).wait(1).look())
    assert notice.reason == "GpuRecovered"
    assert "allocated last: XID 92, high rate of corrected memory errors" in notice.message


def test_an_application_fault_is_told_once_a_minute_and_is_no_warning() -> None:
    story = Story().look()
    step = after(story).events(xid(13, count=99), xid(13))
    (notice,) = told(story, step)
    assert (notice.reason, notice.is_warning) == ("GpuXid", False)
    assert notice.message == f"GPU0 ({A}): XID 13, graphics engine exception"
    assert told(step, after(step).wait(59).events(xid(13))) == ()
    assert len(told(step, after(step).wait(60).events(xid(13)))) == 1


def test_codes_that_only_follow_others_are_told_to_nobody() -> None:
    story = Story().look()
    assert told(story, after(story).events(xid(45), xid(154))) == ()


def test_a_silent_code_that_an_operator_cares_for_is_told() -> None:
    story = Story(HealthRules(classes={45: HealthClass.RESET})).look()
    (notice,) = told(story, after(story).events(xid(45)))
    assert notice.reason == "GpuUnhealthy"


def test_nvml_in_trouble_is_told_once_for_the_node_and_not_for_every_gpu() -> None:
    story = Story().look()
    step = after(story).look(SOUND, trouble(NvmlTrouble.NO_ANSWER, 3))
    (notice,) = told(story, step)
    assert (notice.reason, notice.gpu, notice.is_warning) == ("NvmlUnresponsive", None, True)
    assert notice.message == "all GPUs are Unhealthy, the driver hangs: NVML said so"
    (back,) = told(step, after(step).look().wait(5))
    assert (back.reason, back.is_warning) == ("NvmlAnswers", False)
    assert back.key == notice.key, "Events of one subject keep their order"


def test_a_wish_for_a_fresh_container_is_told() -> None:
    story = Story().look().look(SOUND, trouble(NvmlTrouble.REFUSED, 1, 999))
    (notice,) = told(story, after(story).wait(120))
    assert (notice.reason, notice.gpu) == ("FreshContainerWanted", None)


def test_a_gpu_that_only_events_told_of_goes_by_its_uuid() -> None:
    (notice,) = told(Story(), Story().events(xid(79, on=B)))
    assert notice.message.startswith(f"{B}: XID 79")


def test_what_a_look_shows_is_told_in_the_order_of_gpus_and_reasons() -> None:
    story = Story().look()
    step = after(story).look(seen(remapped_rows=PENDING, recovery_action=1)).events(xid(95, on=B))
    assert [notice.key for notice in told(story, step)] == [
        f"{A} ResetRequired",
        f"{A} RowRemapPending",
        f"{B} Xid95",
    ]
