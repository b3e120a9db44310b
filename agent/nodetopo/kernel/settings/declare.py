"""All settings of the daemon, from the kernel and every component, as one class.

A setting is declared by its component in ``settings.py``. :mod:`nodetopo.kernel.settings.resolve`
gives it a value, and the component uses it.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, make_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodetopo.kernel.components import COMPONENTS, part
from nodetopo.kernel.settings.groups import GROUPS
from nodetopo.kernel.settings.own import KernelSettings
from nodetopo.kernel.settings.values import Option

PREFIX = "NODETOPO_"
"""Of every environment variable that is a setting."""


def _composed() -> type[KernelSettings]:
    """Return one class with the settings of the kernel and of every component of the table."""
    bases: list[type] = []
    for name in COMPONENTS:
        bases += _declared(name)
    leaves = [base for base in bases if not any(base in other.__mro__[1:] for other in bases)]
    # Only this class gets the methods of a dataclass: making them takes 2 ms a class.
    return make_dataclass("Settings", [], bases=tuple(leaves), frozen=True, kw_only=True)


def _declared(name: str) -> list[type]:
    """Return the class of settings that the component *name* declares, if it has any."""
    module = part(name, "settings")
    return [
        declared
        for declared in vars(module).values()
        if isinstance(declared, type)
        and issubclass(declared, KernelSettings)
        and declared.__module__ == module.__name__
    ]


if TYPE_CHECKING:
    _Part: Any = KernelSettings

    class Settings(KernelSettings, _Part):  # type: ignore[misc] # may stand for any component's
        """All settings; those of a component have the types declared in its own class."""

        def __init__(self, **_values: Any) -> None: ...

else:
    Settings = _composed()


@cache
def options() -> Mapping[str, Option]:
    """Return every setting by field name, in the order of ``run --help``."""
    declared = {setting.name: setting.metadata["option"] for setting in fields(Settings)}
    own = [setting.name for setting in fields(KernelSettings)]
    names = sorted(own + [name for name in declared if name not in own], key=_group_of(declared))
    for name in [name for name in names if declared[name].before in declared]:
        names.remove(name)
        names.insert(names.index(declared[name].before), name)
    return {name: declared[name] for name in names}


def _group_of(declared: Mapping[str, Option]) -> Any:
    titles = [group.title for group in GROUPS]
    return lambda name: titles.index(declared[name].group)


def files(settings: Settings) -> tuple[Path, ...]:
    """Return the files that are part of the settings; they can be missing."""
    followed = (getattr(part(name, "settings"), "files", None) for name in COMPONENTS)
    return tuple(path for files_of in followed if files_of for path in files_of(settings))


def only_reading(settings: Settings) -> Settings:
    """Return *settings* with every write to the API server turned off."""
    return settings.but(**{name: False for name, option in options().items() if option.writes})


def option(name: str) -> Option:
    """Return the option of the field *name*."""
    return options()[name]


def default(name: str) -> object:
    """Return the default of the field *name*; ``None`` where it depends on the environment."""
    setting: Field[Any] = Settings.__dataclass_fields__[name]
    return None if setting.default is MISSING else setting.default


def key(name: str) -> str:
    """Return the YAML key of a field, which is also its flag without the dashes."""
    return name.removesuffix("_s").replace("_", "-")


def variable(name: str) -> str:
    """Return the environment variable of a field."""
    return PREFIX + name.removesuffix("_s").upper()
