"""A process with limits on time and memory, in which a batch of documents is read.

`python -m tests.fuzz.batch drawn READER,… CASES [SEED]` draws documents, `kept READER,…` reads
those of the corpus, and `hostile`, `accepted` and `largest` those that are built. It ends with
status 0, or says on standard error what a reader did, and with what.
"""

import resource
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisWarning

from tests.fuzz.hostile import ACCEPTED, HOSTILE, LARGEST
from tests.fuzz.mutations import kernel_document, mutated
from tests.fuzz.readers import READERS, OracleError, kernel_files
from tests.fuzz.seeds import seeds

MAX_MEMORY_BYTES = 768 << 20
"""Of address space, the interpreter, the libraries and Hypothesis included, which take 250 MiB."""

DOCUMENT_S = 5.0
"""CPU seconds of one document, of which five commands read it: sound ones take 0.3 s."""

BATCH_S = 60
"""CPU seconds of a batch by day. A batch beyond it is killed."""


LARGEST_S = 150
"""CPU seconds of the largest documents that are read, and of their batch."""

CORPUS = Path(__file__).with_name("corpus")


def limit(seconds: int) -> None:
    """Limit this process to :data:`MAX_MEMORY_BYTES`, and to *seconds* of CPU time."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    signal.signal(signal.SIGVTALRM, _is_late)


def _is_late(_number: int, _frame: object) -> None:
    raise OracleError("too long: more CPU time than a document may take")


@contextmanager
def timed(seconds: float = DOCUMENT_S) -> Iterator[None]:
    """Raise OracleError where the block takes more than *seconds* of CPU time."""
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def drawn(reader: str, cases: int, start: int | None) -> None:
    """Read *cases* drawn documents; the same ones each time where *start* is None."""
    paths = kernel_files() if reader == "kernel" else ()
    texts = seeds(reader)

    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        derandomize=start is None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    # One number for each document: Hypothesis draws a long series of choices alike.
    @given(st.integers(0, 1 << 64))
    def read(number: int) -> None:
        random = Random(number)
        text = kernel_document(paths, random) if paths else mutated(texts, random)
        try:
            with timed():
                READERS[reader](text)
        except BaseException:
            last[:] = [text]
            raise

    last: list[str] = []
    try:
        (read if start is None else seed(start)(read))()
    except BaseException:
        file = Path(f"/tmp/nt-fuzz-{reader}.txt")
        file.write_bytes(last[0].encode("utf-8", "surrogatepass") if last else b"")
        print(f"the document is in {file}: {last[0][:3000] if last else None!r}", file=sys.stderr)
        raise


def kept(reader: str, files: Sequence[Path]) -> None:
    """Read the *files*."""
    for name in files:
        text = name.read_bytes().decode("utf-8", "surrogatepass")
        print(f"reading {name}", file=sys.stderr, flush=True)
        with timed():
            READERS[reader](text)


def built(
    reader: str,
    documents: Mapping[str, Callable[[], str]],
    *,
    is_read: bool,
    seconds: float = DOCUMENT_S,
) -> None:
    """Read the *documents*, and hold that all or none of them are read."""
    for name, build in documents.items():
        print(f"reading {name!r}", file=sys.stderr, flush=True)
        text = build()
        with timed(seconds):
            if READERS[reader](text) is not is_read:
                raise OracleError(f"{name}: {'refused' if is_read else 'read'}")


def main(mode: str, readers: str, *rest: str) -> None:
    """Read a batch for each of the *readers*, by comma."""
    warnings.simplefilter("ignore", HypothesisWarning)
    many = len(readers.split(","))
    limit(LARGEST_S if mode == "largest" else max(BATCH_S, many * int(rest[0]) if rest else 0))
    if mode == "broken":  # what a reader must not do, for a test of this module
        with timed(0.2):
            exec(readers)
        return
    for reader in readers.split(","):
        match mode:
            case "drawn":
                drawn(reader, int(rest[0]), int(rest[1]) if rest[1:] else None)
            case "kept":
                kept(reader, sorted((CORPUS / reader).iterdir()))
            case "hostile":
                built(reader, HOSTILE[reader], is_read=False)
            case "accepted":
                built(reader, ACCEPTED[reader], is_read=True)
            case "largest":
                built(reader, LARGEST[reader], is_read=True, seconds=LARGEST_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
