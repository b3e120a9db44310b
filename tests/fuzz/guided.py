"""A reader fuzzed by coverage: ``python -m tests.fuzz.guided READER [--seconds N] [--work DIR]``.

Atheris mutates documents and keeps those that reach new code. It starts from the sound documents
and the kept ones. It is no dependency of this repository: install it beside the others, in an
environment of your own (``pip install atheris``). What it keeps lies in *DIR*, and the next run
starts from there. A document that a reader fails on is written to *DIR* as ``crash-…``: repair the
reader, and put the document into ``tests/fuzz/corpus/READER/`` under a name that says what is wrong
with it.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

MISSING = "atheris is not installed — run `pip install atheris` in this environment"

LONGEST = 1 << 16
"""Bytes of a document; larger ones are built by ``tests.fuzz.hostile``."""


def imported() -> ModuleType:
    """Return atheris.

    Raises:
        SystemExit: it is not installed.
    """
    try:
        return import_module("atheris")
    except ImportError:
        raise SystemExit(f"error: {MISSING}") from None


BINARY = frozenset({"http", "kernel-log", "loader-cache", "pod-resources"})
"""Readers of bytes, which take each as the character of that number (Latin-1)."""


def document(reader: str, data: bytes) -> str:
    """Return the document in *data*; what is no UTF-8 becomes halves of characters, as in files."""
    if reader in BINARY:
        return data.decode("latin-1")
    return data.decode("utf-8", "surrogateescape")


def content(reader: str, text: str) -> bytes:
    """Return the bytes of a document."""
    if reader in BINARY:
        return text.encode("latin-1", "replace")
    return text.encode("utf-8", "surrogatepass")


def target(name: str, reader: Callable[[str], bool]) -> Callable[[bytes], None]:
    """Return what is called with each document; it raises where *reader* does what it must not."""

    def read(data: bytes) -> None:
        reader(document(name, data))

    return read


def prepare(work: Path, reader: str, sound: Sequence[str], kept: Path) -> None:
    """Write the documents to start from into *work*."""
    work.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(sound):
        (work / f"sound-{number}").write_bytes(content(reader, text))
    for path in sorted((kept / reader).glob("*")):
        (work / f"kept-{path.name}").write_bytes(path.read_bytes())


def main(argv: Sequence[str] | None = None) -> None:
    """Fuzz one reader until the time is over, or it fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reader")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--work", type=Path)
    arguments = parser.parse_args(argv)
    atheris = imported()
    with atheris.instrument_imports(include=["nodetopo"]):
        from tests.fuzz.batch import CORPUS  # noqa: PLC0415 - after atheris
        from tests.fuzz.readers import READERS  # noqa: PLC0415
        from tests.fuzz.seeds import seeds  # noqa: PLC0415
    if arguments.reader not in READERS:
        parser.error(f"no such reader; choose one of {', '.join(READERS)}")
    work = arguments.work or Path(tempfile.mkdtemp(prefix=f"nt-guided-{arguments.reader}-"))
    prepare(work, arguments.reader, seeds(arguments.reader), CORPUS)
    print(f"documents are kept in {work}", file=sys.stderr)
    options = [f"-max_total_time={arguments.seconds}", f"-max_len={LONGEST}", "-timeout=30"]
    command = [sys.argv[0], str(work), *options, f"-artifact_prefix={work}/"]
    atheris.Setup(command, target(arguments.reader, READERS[arguments.reader]))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
