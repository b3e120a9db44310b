"""Pauses after a refusal: longer each time, never too long, and short again after a success."""

from agent.kubeapi.backoff import RetryPause


def test_pauses_double_up_to_the_longest_until_reset() -> None:
    pause = RetryPause(1.0, 8.0, least_s=0.5)
    for longest_s in (1.0, 2.0, 4.0, 8.0, 8.0):
        assert 0.5 <= pause.next_s(None) <= longest_s
    pause.reset()
    assert 0.5 <= pause.next_s(None) <= 1.0


def test_the_pause_that_the_server_asked_for_comes_on_top() -> None:
    assert 30.5 <= RetryPause(1.0, 8.0, least_s=0.5).next_s(30.0) <= 31.0


def test_a_least_pause_as_long_as_the_first_leaves_nothing_to_chance() -> None:
    assert RetryPause(1.0, 8.0, least_s=1.0).next_s(None) == 1.0
