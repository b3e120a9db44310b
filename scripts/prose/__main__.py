"""Check the English of pages, help and log messages: ``python -m scripts.prose [PAGE …]``.

The rules are in ``styles/Nodetopo``: the habits that make a page read as a translation, and the
length of sentences. Prints ``PLACE: RULE: what to write`` for each finding. Exits with 1 if there
is one, and with 3 if Vale cannot be built.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from scripts.prose.texts import ROOT, Text, of_the_code, pages
from tests.lab.go_program import GoPrograms

FOLDER = Path(__file__).parent


def vale() -> Path:
    """Return the linter, compiled from the Go module proxy on first use.

    Raises:
        RuntimeError: as :meth:`GoPrograms.folder` does.
    """
    programs = GoPrograms(
        shelf="prose",
        title="vale",
        module=FOLDER / "program",
        packages={"vale": "github.com/errata-ai/vale/v2/cmd/vale"},
    )
    return programs.folder() / "vale"


def findings(paths: Sequence[Path], texts: Sequence[Text] = ()) -> Iterator[str]:
    """Yield a line for each finding in the Markdown files *paths*, then in *texts*."""
    for path, line, found in _alerts([path.resolve() for path in paths]):
        place = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        yield f"{place}:{line}: {found}"
    with tempfile.TemporaryDirectory(prefix="prose-") as scratch:
        joined = Path(scratch) / "code.txt"
        joined.write_text("\n\n".join(_sentence(one.words) for one in texts), "utf-8")
        for _, line, found in _alerts([joined] if texts else []):
            yield f"{texts[(line - 1) // 2].place}: {found}"


def _sentence(words: str) -> str:
    """Return *words* on one line, ended: Vale joins paragraphs that no full stop ends."""
    line = " ".join(words.split())
    return line if line.endswith((".", "?", "!", ":")) else f"{line}."


def _alerts(paths: Sequence[Path]) -> Iterator[tuple[Path, int, str]]:
    if not paths:
        return
    options: list[str | Path] = ["--config", FOLDER / ".vale.ini", "--output", "JSON"]
    done = subprocess.run([vale(), *options, *paths], capture_output=True, text=True, check=False)
    try:
        found = json.loads(done.stdout)
    except ValueError as error:
        raise RuntimeError(f"vale printed no JSON: {done.stdout}{done.stderr}") from error
    for name, alerts in sorted(found.items()):
        for alert in alerts:
            rule = alert["Check"].rpartition(".")[2]
            yield Path(name), alert["Line"], f"{rule}: {alert['Message']}"


def main(arguments: Sequence[str]) -> int:
    """Check the pages *arguments*, or with none everything; return the exit status."""
    given = [Path(name) for name in arguments]
    try:
        lines = list(findings(given)) if given else list(findings(pages(), list(of_the_code())))
    except RuntimeError as error:
        print(f"error: the prose was not checked: {error}", file=sys.stderr)
        return 3
    print("\n".join(lines) or "PASS prose: pages, help, log messages")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
