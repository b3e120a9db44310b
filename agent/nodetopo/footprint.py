"""What keeps the memory of the daemon and of its NVML child small.

Some libraries import modules for features that the agent does not use. Such a module is put off: in
its place stands an empty one, which becomes the real one when something of it is asked for. So
nothing is lost, and a release of a library that begins to use it only costs memory.
"""

import ctypes
import gc
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from threading import Lock
from types import MappingProxyType, ModuleType
from typing import Any

DEFERRED: Mapping[str, str] = MappingProxyType(
    {
        "asyncio": "grpc and structlog import it for coroutines",
        "grpc.aio": "grpc's coroutines",
        "calendar": "email imports it for dates, with locale",
        "google.protobuf.internal.python_message": "messages without the C library",
        "gzip": "prometheus_client imports it to compress answers",
        "html": "http.server imports it for the pages that it makes of errors",
        "locale": "subprocess imports it for texts in other encodings",
        "msgspec._json_schema": "schemas of records",
        "msgspec.inspect": "types of records, for schemas",
        "msgspec.json": "the rest of msgspec decodes and encodes documents",
        "msgspec.msgpack": "same",
        "msgspec.toml": "same",
        "msgspec.yaml": "same",
        "mimetypes": "http.server imports it for files that it serves",
        "shutil": "tempfile imports it to remove directories",
        "structlog.stdlib": "the standard library's loggers as structlog's",
        "structlog.threadlocal": "deprecated by structlog, and imports uuid and platform",
    }
)
"""Module → who imports it, and what for."""

_LIBC = ctypes.CDLL(None)
_LOCK = Lock()

_M_ARENA_MAX = -8
"""Parameter of mallopt(3), malloc.h of glibc."""


def stay_small() -> None:
    """Put off :data:`DEFERRED` modules, and let all threads share one heap.

    Garbage is not collected before :func:`settle`: imports make little, and to look for it took a
    sixth of their time.

    glibc gives each thread a heap of its own, up to eight for each core, and what one thread has
    freed another cannot use: 9 to 11 MiB of a daemon with 29 threads. They would rarely allocate at
    the same time anyway: all but gRPC's own take turns for the interpreter's lock. Another libc has
    no such setting.
    """
    gc.disable()
    put_off(DEFERRED)
    if hasattr(_LIBC, "mallopt"):
        _LIBC.mallopt(_M_ARENA_MAX, 1)


def settle() -> None:
    """Collect garbage from now on, but never look at what is there now: it stays to the end."""
    gc.collect()
    gc.freeze()
    gc.enable()


def give_back() -> None:
    """Return memory that is not used to the system: 3 MiB after the start, in a millisecond.

    glibc keeps it otherwise, unless it lies at the end of the heap (malloc_trim(3)).
    """
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)


def put_off(modules: Iterable[str]) -> None:
    """Import each of *modules* when something of it is asked for, unless it is imported already."""
    for name in modules:
        if name not in sys.modules:
            sys.modules[name] = _Deferred(name)


class _Deferred(ModuleType):
    """Stands for a module until an attribute of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        """Import the real module, whose attributes are this one's from then on."""
        own = self.__name__
        with _LOCK:  # not around the import, which may wait for another thread that comes here
            if sys.modules.get(own) is self:
                del sys.modules[own]
        return getattr(import_module(own), name)
