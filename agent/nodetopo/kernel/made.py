"""Makes the components that the settings ask for, when their time has come."""

from nodetopo.kernel.component import Component, Kernel, Start
from nodetopo.kernel.components import COMPONENTS, part, terms_of
from nodetopo.kernel.settings.declare import Settings


def checked(settings: Settings) -> tuple[str, ...]:
    """Let every component check *settings*; return the resources that they would offer.

    Raises:
        AgentError: they cannot be used.
    """
    offered: list[str] = []
    for terms in map(terms_of, COMPONENTS):
        if hasattr(terms, "check"):
            terms.check(settings)
        if hasattr(terms, "resources"):
            offered += terms.resources(settings)
    return tuple(offered)


def make(kernel: Kernel, start: Start) -> list[Component]:
    """Import and make the wanted components of *start*, and add them to those of *kernel*.

    Raises:
        AgentError: the settings do not fit this machine.
    """
    made, running = [], {component.name for component in kernel.running}
    for name in COMPONENTS:
        terms = terms_of(name)
        if name in running:
            continue
        if terms.START is start and terms.is_wanted(kernel):
            made.append(add(kernel, name))
    order = list(COMPONENTS)
    kernel.running.sort(key=lambda component: order.index(component.name))
    return made


def add(kernel: Kernel, name: str) -> Component:
    """Import and make the component *name*."""
    component: Component = getattr(part(name, "component"), COMPONENTS[name])(kernel)
    component.name = name
    kernel.running.append(component)
    return component
