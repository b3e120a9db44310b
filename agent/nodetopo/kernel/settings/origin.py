"""A value of a setting, and where it was given."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from msgspec import Struct, field


class SettingSource(IntEnum):
    """The source of a value; the higher one wins, as with NVIDIA's device plugin.

    A named file is the node's choice among several; NVIDIA's plugin has only that one.
    """

    DEFAULT = 0
    FILE = 1
    NAMED_FILE = 2
    ENVIRONMENT = 3
    FLAG = 4


class Given(Struct, frozen=True, kw_only=True):
    """One value of one setting."""

    value: Any
    origin: str  # where it was given, for people
    place: SettingSource
    is_ours: bool = False  # it was given under our name of the setting, not under NVIDIA's


class ConfigFile(Struct, frozen=True, kw_only=True):
    """A configuration file that was read; *name* is for messages."""

    name: str
    text: str
    place: SettingSource = SettingSource.FILE


class FileContents(Struct, frozen=True, kw_only=True):
    """The settings in a configuration file."""

    # Under our names, by field; the values are not parsed yet.
    ours: Mapping[str, Given] = field(default_factory=dict)
    nvidia: Mapping[str, Given] = field(default_factory=dict)  # by NVIDIA's name
    warnings: tuple[str, ...] = ()  # a sentence each
    is_nvidias: bool = False  # it has NVIDIA's form, with or without settings of ours
