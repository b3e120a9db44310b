"""``nodetopo``, which is also ``python -m nodetopo``: handlers of signals first, then the command.

The first process of a container gets no SIGTERM that it has no handler for (signal(7),
pid_namespaces(7)), and to import the daemon takes half a second of CPU. So nothing else is
imported before the handlers are there: ``_signal`` is the built-in half of ``signal``, whose
enumerations take 9 ms.

A signal that comes earlier, while the interpreter starts, is kept if the launcher has it blocked,
as the image's ``env --block-signal=TERM`` does.
"""

import _signal  # type: ignore[import-not-found]  # typeshed knows the other half
import os
import sys
from types import FrameType


def main() -> int:
    """Run the command that the arguments name; return its exit status."""
    words = sys.argv[1:]
    if words[:1] == ["run"] and "--print-config" not in words:
        _signal.signal(_signal.SIGTERM, _end)
        _signal.signal(_signal.SIGHUP, _ignore)
        from nodetopo.footprint import stay_small  # noqa: PLC0415 - before what it puts off

        stay_small()
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (_signal.SIGTERM,))
    from nodetopo.cli.main import main as run_command  # noqa: PLC0415 - see above

    return run_command()


def _end(_number: int, _frame: FrameType | None) -> None:
    """End a daemon that only starts; nothing of it has to be undone.

    An exception could be caught, or lost in a callback of the garbage collector.
    """
    os._exit(0)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing at SIGHUP, which asks for settings to be read, as a start does anyway.

    Unlike an ignored signal, that is not inherited by the NVML process.
    """


if __name__ == "__main__":
    raise SystemExit(main())
