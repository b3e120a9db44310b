"""The configuration file: ours, NVIDIA's, or NVIDIA's with ours below ``nodetopo:``."""

from collections.abc import Mapping

from agent.config.document import Value, load
from agent.config.nvidia import file as nvidia
from agent.config.origin import ConfigFile, FileContents, Given, Place
from agent.config.settings import key, options
from agent.config.values import did_you_mean

_CURE = "`nodetopo run --help` lists all settings"


def read(file: ConfigFile) -> FileContents:
    """Return what *file* sets; the values under our names are not read yet.

    Raises:
        InputError: it is no such file.
    """
    root, warnings = load(file.name, file.text)
    if root is None:
        return FileContents(warnings=warnings)
    if not nvidia.is_nvidias(root):
        ours = _ours(root, file.place)
        return FileContents(ours=ours, warnings=(*warnings, *root.repeated()))
    theirs = nvidia.read(root, file.place)
    own_warnings = () if theirs.ours is None else tuple(theirs.ours.repeated())
    return FileContents(
        ours={} if theirs.ours is None else _ours(theirs.ours, file.place),
        nvidia=theirs.given,
        warnings=(*warnings, *theirs.warnings, *own_warnings),
        is_nvidias=True,
    )


def _ours(section: Value, place: Place) -> Mapping[str, Given]:
    by_key = {key(name): name for name in options()}
    found: dict[str, Given] = {}
    for word, value in section.entries().items():
        if word not in by_key:
            close = did_you_mean(word, tuple(by_key))
            value.refuse("unknown key", close.lstrip("; ") or _CURE)
        found[by_key[word]] = Given(
            value=value.plain(), origin=value.origin, place=place, is_ours=True
        )
    return found
