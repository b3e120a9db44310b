"""What a pod holds of each resource at its greediest moment."""

from collections.abc import Callable, Mapping

from agent.model.pod import Container, ContainerKind, Pod

Amounts = Mapping[str, int]
"""Resource → amount, CPU in millicores, everything else in its base unit."""


def at_once(pod: Pod, amounts: Callable[[Container], Amounts]) -> dict[str, int]:
    """Return the most that containers of *pod* hold of each resource at any one time.

    Init containers run one by one, beside the sidecars that began before them; app containers
    run beside all sidecars (KEP-753; k8s.io/component-helpers 1.36
    resource.AggregateContainerRequests). Resources are in the order of their first mention.

    Args:
        amounts: what one container holds; a resource it does not name counts as 0.
    """
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in started(pod):
        wanted = summed(running, amounts(container))
        if container.kind is ContainerKind.INIT:
            peak = _most(peak, wanted)
        else:
            running = wanted
    return _most(peak, running)


def started(pod: Pod) -> tuple[Container, ...]:
    """Return the containers in the order in which the kubelet serves them: init ones first."""
    return tuple(sorted(pod.containers, key=lambda one: one.kind is ContainerKind.APP))


def summed(amounts: Amounts, more: Amounts) -> dict[str, int]:
    """Return both together, by resource."""
    return {name: amounts.get(name, 0) + more.get(name, 0) for name in {**amounts, **more}}


def _most(one: Amounts, other: Amounts) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}
