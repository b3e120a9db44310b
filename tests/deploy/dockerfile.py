"""A Dockerfile's instructions, so that tests follow the very steps that make the image."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

_INSTRUCTION = re.compile(r"([A-Z]+)\s+(.*)")
_STAGE = re.compile(r"(?P<base>\S+)(?: AS (?P<name>\S+))?")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


class Instruction(Struct, frozen=True):
    """One instruction, such as ``RUN``, its options and what follows them, lines joined.

    Attributes:
        options: by name, without the dashes: ``--from=build`` is ``from``: ``build``.
    """

    name: str
    options: dict[str, str]
    text: str

    def words(self) -> list[str]:
        """Return its arguments; those of the JSON form as they stand there."""
        is_json = self.text.startswith("[")
        found: list[str] = json.loads(self.text) if is_json else shlex.split(self.text)
        return found

    def assignments(self) -> dict[str, str]:
        """Return what an ``ARG``, ``ENV`` or ``LABEL`` sets; ``""`` where no value is given."""
        split = (word.partition("=") for word in self.words())
        return {name: value for name, _, value in split}

    def with_defaults(self, values: Mapping[str, str]) -> "Instruction":
        """Return it with the value of an ``ARG`` that one before the first ``FROM`` gives."""
        is_known = self.name == "ARG" and self.text in values
        return replace(self, text=f"{self.text}={values[self.text]}") if is_known else self


class Stage(Struct, frozen=True):
    """One stage.

    Attributes:
        base: the image or the earlier stage that it starts from, variables replaced.
        name: after ``AS``; ``None`` for a stage without one.
        instructions: in their order, without ``FROM``.
    """

    base: str
    name: str | None
    instructions: tuple[Instruction, ...]

    def all(self, name: str) -> tuple[Instruction, ...]:
        """Return the instructions called *name*."""
        return tuple(found for found in self.instructions if found.name == name)


def read(path: Path) -> tuple[Stage, ...]:
    """Return the stages of the Dockerfile at *path*; the last one is the image."""
    arguments: dict[str, str] = {}
    found: list[tuple[str, str | None, list[Instruction]]] = []
    for instruction in _instructions(path.read_text("utf-8")):
        if instruction.name == "FROM":
            matched = _STAGE.fullmatch(instruction.text)
            assert matched, instruction
            found.append((expand(matched["base"], arguments), matched["name"], []))
        elif found:
            found[-1][2].append(instruction.with_defaults(arguments))
        else:
            assert instruction.name == "ARG", f"{instruction} before the first FROM"
            arguments |= instruction.assignments()
    return tuple(Stage(base, name, tuple(steps)) for base, name, steps in found)


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace ``$NAME`` and ``${NAME}`` in *text*; a name without a value by nothing."""
    return _VARIABLE.sub(lambda found: values.get(found[1] or found[2], ""), text)


def is_sent(path: PurePosixPath, ignore: Path) -> bool:
    """Tell whether *path*, below the context, is sent to the builder: see ``.dockerignore``.

    Of Docker's rules it knows those that ours uses: the last pattern that matches decides, a
    pattern also matches what is below, and ``**/`` stands for any directories.
    """
    sent = True
    for line in ignore.read_text("utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        pattern = line.removeprefix("!")
        if any(_matches(str(part), pattern) for part in (path, *path.parents[:-1])):
            sent = line.startswith("!")
    return sent


def _matches(path: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatchcase(PurePosixPath(path).name, pattern.removeprefix("**/"))
    return fnmatchcase(path, pattern) and path.count("/") == pattern.count("/")


def _instructions(text: str) -> Iterator[Instruction]:
    kept = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for line in "\n".join(kept).replace("\\\n", " ").splitlines():
        matched = _INSTRUCTION.fullmatch(" ".join(line.split()))
        assert matched, f"no instruction: {line!r}"
        options, text = {}, matched[2]
        while text.startswith("--"):
            word, _, text = text.partition(" ")
            name, _, value = word.removeprefix("--").partition("=")
            options[name] = value
        yield Instruction(matched[1], options, text)
