"""A value of a setting, and where it was given."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class SettingSource(IntEnum):
    """Where a value was given; the higher wins, as with NVIDIA's device plugin.

    A named file is the one of several that the node takes, which NVIDIA's plugin has instead of
    a file of its own.
    """

    DEFAULT = 0
    FILE = 1
    NAMED_FILE = 2
    ENVIRONMENT = 3
    FLAG = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One value of one setting.

    Attributes:
        origin: where it was given, for people.
        is_ours: it was given under our name of the setting, not under NVIDIA's.
    """

    value: Any
    origin: str
    place: SettingSource
    is_ours: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """A configuration file that was read; *name* is for messages."""

    name: str
    text: str
    place: SettingSource = SettingSource.FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class FileContents:
    """What a configuration file sets.

    Attributes:
        ours: under our names, by field; the values are not parsed yet.
        nvidia: by NVIDIA's name.
        warnings: a sentence each.
        is_nvidias: it has NVIDIA's form, whether or not it has settings of ours too.
    """

    ours: Mapping[str, Given] = field(default_factory=dict)
    nvidia: Mapping[str, Given] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    is_nvidias: bool = False
