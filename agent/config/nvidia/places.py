"""NVIDIA's settings from its three places: command line over environment over file."""

from collections.abc import Iterator, Mapping

from agent.config.nvidia import text
from agent.config.nvidia.names import NAMES, Kind, Name
from agent.config.origin import Given, Place
from agent.errors import InputError


def joined(
    flags: Mapping[str, str], environment: Mapping[str, str], file: Mapping[str, Given]
) -> dict[str, Given]:
    """Return the strongest value of each setting that was given, by NVIDIA's name.

    *flags* holds texts by NVIDIA's name.

    Raises:
        InputError: a value that NVIDIA's device plugin would not take.
    """
    found = dict(file)
    found.update(_environment(environment))
    for name in NAMES:
        if name.name in flags:
            found[name.name] = _read(name, flags[name.name], f"flag --{name.name}", Place.FLAG)
    return found


def _environment(environment: Mapping[str, str]) -> Iterator[tuple[str, Given]]:
    """Yield what the environment sets.

    Empty means false for a switch, as in urfave/cli, and an empty socket means none at all;
    otherwise an empty variable is unset.
    """
    for name in NAMES:
        variable = next((word for word in name.variables if word in environment), None)
        if variable is None:
            continue
        given = environment[variable]
        if name.kind is Kind.SWITCH:
            given = given or "false"
        if given or name.name == "kubelet-socket":
            yield name.name, _read(name, given, f"environment {variable}", Place.ENVIRONMENT)


def _read(name: Name, given: str, origin: str, place: Place) -> Given:
    try:
        return Given(value=text.read(name, given), origin=origin, place=place)
    except ValueError as error:
        cure = f"docs/configuration.md has what {name.name} may be"
        raise InputError(f"{origin}: {given!r} is {error}", cure) from None
