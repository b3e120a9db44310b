"""A function that is given so much time and no more, so that its caller can always answer."""

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

T = TypeVar("T")

MOST_WORKERS = 16
"""As many as gRPC has threads to call from; each call that hangs keeps one."""


class Timely:
    """Call functions in threads of its own, which are kept for the next call.

    Python cannot end a thread. A call that came too late goes on to its end unheard, and the
    threads are daemons, so that one that never ends does not keep the process.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._lock = Lock()  # guards the three below
        self._idle: list[_Worker] = []
        self._count = 0
        self._is_closed = False

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return what *function* returns, or raise what it raises.

        Raises:
            TimeoutError: it took longer than the limit, or too many earlier calls still do.
            RuntimeError: no thread is to be had.
        """
        answers: SimpleQueue[tuple[T | None, Exception | None]] = SimpleQueue()
        self._worker().jobs.put((function, arguments, answers))
        try:
            answer, problem = answers.get(timeout=self._limit_s)
        except Empty:
            raise TimeoutError(f"no answer within {self._limit_s} s") from None
        if problem is not None:
            raise problem
        return answer  # type: ignore[return-value]  # one of the two is what the function gave

    def close(self) -> None:
        """End the threads that wait for a call; each other one ends with its call."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            self._end(worker)

    def _worker(self) -> "_Worker":
        with self._lock:
            if self._idle:
                return self._idle.pop()
            if self._count >= MOST_WORKERS:
                raise TimeoutError(f"{MOST_WORKERS} earlier calls have not ended")
            self._count += 1
        try:
            return _Worker(self._take_back)
        except RuntimeError:
            with self._lock:
                self._count -= 1
            raise

    def _take_back(self, worker: "_Worker") -> None:
        with self._lock:
            if not self._is_closed:
                self._idle.append(worker)
                return
        self._end(worker)

    def _end(self, worker: "_Worker") -> None:
        with self._lock:
            self._count -= 1
        worker.jobs.put(None)


class _Worker:
    """One thread, and the calls that it is given: one at a time, ``None`` for the end."""

    def __init__(self, take_back: Callable[["_Worker"], None]) -> None:
        self.jobs: SimpleQueue[Any] = SimpleQueue()
        self._take_back = take_back
        Thread(target=self._run, name="timely call", daemon=True).start()

    def _run(self) -> None:
        while (job := self.jobs.get()) is not None:
            function, arguments, answers = job
            answer, problem = None, None
            try:
                answer = function(*arguments)
            except Exception as error:  # noqa: BLE001 - raised again where the call was made
                problem = error
            self._take_back(self)  # before the answer: who has it may call at once
            answers.put((answer, problem))
