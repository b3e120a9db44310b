"""How a setting is declared: its default, its reader, its help text and its group."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from nodetopo.kernel.settings import values
from nodetopo.kernel.settings.values import Option

Default = TypeVar("Default")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Group:
    """Declares the settings of one group; *title* is its heading in ``run --help``.

    ``before`` in a declaration names the setting of the same group that follows it in the help;
    without it a setting comes last, in the order of its class.
    """

    title: str

    def option(
        self,
        read: Callable[[Any], Any],
        explanation: str,
        metavar: str,
        *,
        choices: tuple[str, ...] = (),
        words: tuple[str, ...] = (),
        is_live: bool = False,
        before: str = "",
        writes: bool = False,
    ) -> Mapping[str, Option]:
        """Return the field metadata of a setting; *is_live*: it can change without a restart."""
        option = Option(
            read=read,
            help=explanation,
            metavar=metavar,
            group=self.title,
            choices=choices,
            words=words,
            is_live=is_live,
            before=before,
            writes=writes,
        )
        return {"option": option}

    def setting(
        self,
        default: Default,
        read: Callable[[Any], Value],
        explanation: str,
        metavar: str,
        *,
        words: tuple[str, ...] = (),
        is_live: bool = False,
        before: str = "",
    ) -> Default | Value:
        """Declare a setting that *read* parses from text or YAML; *words* are those of its list."""
        metadata = self.option(
            read, explanation, metavar, words=words, is_live=is_live, before=before
        )
        return field(default=default, metadata=metadata)

    def choice(
        self,
        default: str,
        explanation: str,
        *choices: str,
        is_live: bool = False,
        before: str = "",
    ) -> str:
        """Declare a setting that is one of *choices*."""
        metadata = self.option(
            values.one_of(choices),
            explanation,
            "WORD",
            choices=choices,
            is_live=is_live,
            before=before,
        )
        return field(default=default, metadata=metadata)

    def switch(
        self,
        default: bool,
        explanation: str,
        *,
        is_live: bool = False,
        before: str = "",
        writes: bool = False,
    ) -> bool:
        """Declare a setting that is true or false; *writes*: it lets the API server be written."""
        metadata = self.option(
            values.switch, explanation, "BOOL", is_live=is_live, before=before, writes=writes
        )
        return field(default=default, metadata=metadata)


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
