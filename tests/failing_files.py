"""A folder in which the file system refuses, as a policy, a broken disk or another owner does."""

import builtins
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

READS = ("stat", "lstat", "scandir", "listdir", "readlink", "access")
WRITES = ("mkdir", "rename", "replace", "unlink", "link", "symlink", "chmod", "utime", "truncate")
SYNCS = ("fsync", "fchmod")
"""Of a descriptor, which names no folder: no other file may be written meanwhile."""


@contextmanager
def failing(folder: Path, code: int, *, reads: bool, writes: bool) -> Iterator[None]:
    """Have the calls of the kernel that read or write in *folder* fail with the error *code*."""

    def is_below(path: object) -> bool:
        is_path = isinstance(path, str | bytes | os.PathLike)
        return is_path and f"{os.fsdecode(path)}/".startswith(f"{folder}/")  # type: ignore[arg-type]

    def refusing(call: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(*arguments: Any, **options: Any) -> Any:
            if any(map(is_below, arguments)):
                raise OSError(code, os.strerror(code), str(arguments[0]))
            return call(*arguments, **options)

        return refuse

    def open_(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        is_write = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if is_below(path) and (writes if is_write else reads):
            raise OSError(code, os.strerror(code), str(path))
        return real_open(path, flags, *arguments, **options)

    def open_file(path: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if is_below(path) and (writes if set(mode) & set("wax+") else reads):
            raise OSError(code, os.strerror(code), str(path))
        return real_file(path, mode, *arguments, **options)

    def fail(*_arguments: Any) -> None:
        raise OSError(code, os.strerror(code))

    real_open, real_file = os.open, io.open
    with pytest.MonkeyPatch.context() as patch:
        for name in (*READS * reads, *WRITES * writes):
            patch.setattr(os, name, refusing(getattr(os, name)))
        for name in SYNCS * writes:
            patch.setattr(os, name, fail)
        patch.setattr(os, "open", open_)
        patch.setattr(io, "open", open_file)
        patch.setattr(builtins, "open", open_file)
        yield
