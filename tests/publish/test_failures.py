"""A failure that repeats itself is one line, and its end another one with a count."""

from structlog.testing import capture_logs

from agent.publish.failures import Failures


def test_a_failure_is_logged_once_for_each_cause_and_counted_at_its_end() -> None:
    failures = Failures("labels not published", output="node")
    with capture_logs() as lines:
        for error in ("refused", "refused", "refused", "timed out", "refused"):
            failures.failed(error)
        for _ in range(2):
            failures.succeeded()
        failures.failed("refused")
    assert [(line["event"], line.get("error"), line.get("failed")) for line in lines] == [
        ("labels not published", "refused", None),
        ("labels not published", "timed out", None),
        ("labels not published", "refused", None),
        ("published again", None, 5),
        ("labels not published", "refused", None),
    ]
    assert {line["output"] for line in lines} == {"node"}


def test_success_alone_says_nothing() -> None:
    with capture_logs() as lines:
        Failures("not published", what="zones").succeeded()
    assert lines == []
