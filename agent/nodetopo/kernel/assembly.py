"""Creates the enabled components, when their time has come."""

from collections.abc import Collection

from nodetopo.kernel.component import Component, Kernel, Start
from nodetopo.kernel.components import COMPONENTS, part, terms_of
from nodetopo.kernel.settings.declare import Settings


def checked(settings: Settings, running: Collection[str] = ()) -> tuple[str, ...]:
    """Let the components check *settings*; return the resources that they would offer.

    Args:
        running: the names of components that run already and are not asked, nor those that start
            later: what these read at the start has its own way to change.

    Raises:
        AgentError: the settings cannot be used.
    """
    offered: list[str] = []
    for name in COMPONENTS:
        terms = terms_of(name)
        if running and (name in running or terms.START is not Start.AT_ONCE):
            continue
        if hasattr(terms, "check"):
            terms.check(settings)
        if hasattr(terms, "resources"):
            offered += terms.resources(settings)
    return tuple(offered)


def make(kernel: Kernel, start: Start) -> list[Component]:
    """Import and create the enabled components of *start*, and add them to *kernel*.

    Raises:
        AgentError: the settings do not fit this machine.
    """
    running = {component.name for component in kernel.running}
    return [
        add(kernel, name)
        for name in COMPONENTS
        if name not in running
        and terms_of(name).START is start
        and terms_of(name).is_wanted(kernel)
    ]


def add(kernel: Kernel, name: str) -> Component:
    """Import and make the component *name*."""
    component: Component = getattr(part(name, "component"), COMPONENTS[name])(kernel)
    component.name = name
    order = list(COMPONENTS)
    running = (*kernel.running, component)
    kernel.running = tuple(sorted(running, key=lambda it: order.index(it.name)))
    return component
