"""Where the node stands in its cluster's network: its tiers, by its own Node's labels or a file."""

from collections.abc import Mapping
from pathlib import Path

from agent.config import levels_file
from agent.config.settings import Settings
from agent.config.settings_labels import ANY, OFF
from agent.errors import InputError
from agent.labels.levels import node_levels, tiers
from agent.labels.levels_file import file_tiers
from agent.labels.levels_platform import Platform, platform


class NodePlace:
    """The tiers that settings ask for; any thread may tell it of the Node, or ask.

    Raises:
        InputError: the file of levels does not do.
    """

    def __init__(self, settings: Settings) -> None:
        path = settings.topology_levels_file
        self._node = settings.node_name
        self._file = None if path is None else levels_file.load(path)
        self._wanted = settings.topology_levels
        self._only: Platform | None = None
        if self._wanted not in (OFF, ANY):
            self._only = platform(self._wanted)
        self._labels: Mapping[str, str] | None = None
        self._check_keys(f"{settings.label_prefix}tier-", path)

    @property
    def needs_labels(self) -> bool:
        """Whether tiers depend on the labels of the Node."""
        if self._wanted != OFF:  # the file may name fewer tiers than they
            return True
        file = self._file
        return file is not None and bool(file.labels) and not file.nodes.get(self._node)

    def _check_keys(self, own: str, path: Path | None) -> None:
        """Raise where tiers would be made of themselves, and never come to rest."""
        for key in () if self._file is None else self._file.labels:
            if key.startswith(own):
                cause = f"{path}: levels.labels: {key} is made from these labels itself"
                raise InputError(cause, "name the label that tells the place, of another program")

    def note(self, labels: Mapping[str, str]) -> None:
        """Take the labels of the Node as they are now, whoever wrote them."""
        self._labels = dict(labels)

    def tiers(self) -> Mapping[str, str] | None:
        """Return value by tier; ``None`` where they depend on labels that are not known yet.

        What the file says of a tier wins.
        """
        if self._labels is None and self.needs_labels:
            return None
        labels = self._labels or {}
        found: dict[str, str] = {}
        if self._wanted != OFF:
            found |= tiers(node_levels(labels, self._only))
        if self._file is not None:
            found |= file_tiers(self._file, self._node, labels)
        return found
