"""How a setting is declared: its default, its help text, its reader and its group."""

from collections.abc import Callable
from dataclasses import MISSING, field
from typing import Any, TypeVar

from msgspec import Struct

from nodetopo.kernel.settings import values
from nodetopo.kernel.settings.values import Option

Default = TypeVar("Default")

REQUIRED: Any = MISSING
"""In place of a default."""


class Group(Struct, frozen=True):
    """Declares the settings of one group; *title* is its heading in ``run --help``."""

    title: str

    def __call__(self, default: Default, explanation: str, *form: Any, **how: Any) -> Default:
        """Return the field of a setting.

        Args:
            form: nothing for a switch, the words of a choice, or a reader and a metavariable.
            how: the rest of :class:`Option`.
        """
        read: Callable[[Any], Any] = values.switch
        metavar, choices = "BOOL", ()
        if form and callable(form[0]):
            (read, metavar), choices = form, ()
        elif form:
            read, metavar, choices = values.one_of(form), "WORD", form
        option = Option(
            read=read,
            help=explanation,
            metavar=metavar,
            group=self.title,
            choices=choices,
            **how,
        )
        declared: Default = field(default=default, metadata={"option": option})
        return declared


NODE = Group("node")
LOG = Group("metrics and log")
CLUSTER = Group("API server and Node object")
NAMED = Group("named configs")
LABELS = Group("labels")
KUBELET = Group("kubelet")
DEVICES = Group("resources and placement")
CONTAINERS = Group("containers")
RDMA = Group("RDMA")
HEALTH = Group("health of GPUs")
AUDIT = Group("audit of the node and its pods")

GROUPS = (
    *(NODE, LOG, CLUSTER, NAMED, LABELS, KUBELET),
    *(DEVICES, CONTAINERS, RDMA, HEALTH, AUDIT),
)
"""In the order of ``run --help``."""
