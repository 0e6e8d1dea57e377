"""How are many things asked at once, and given up at once? A bounded number of threads that the user can stop.

The threads are daemons: one that hangs in a socket never keeps the program from ending (the standard pool's threads
do).
"""

import contextlib
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from piqc_pipeline.cluster.kubernetes import Deadline, Stopped

T = TypeVar("T")

GRACE_SECONDS = 0.3
"""How long running tasks may take to notice that they were stopped."""
_POLL_SECONDS = 0.1


def run_all(
    tasks: Sequence[Callable[[], None]],
    workers: int,
    deadline: Deadline,
    step: Callable[[int, int], None] | None = None,
) -> list[BaseException]:
    """Run all tasks, `workers` at a time, until done, stopped, or out of time.

    What the tasks have stored until then is the caller's to use.

    Args:
        tasks: Each stores its own result.
        workers: Tasks that run at the same time.
        deadline: When to give up.
        step: Told how many of how many tasks are done.

    Returns:
        What tasks raised, in no order; `Stopped` is left out.
    """
    todo: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    for task in tasks:
        todo.put(task)
    raised: list[BaseException] = []
    done = threading.Semaphore(0)

    def work() -> None:
        while True:
            try:
                task = todo.get_nowait()
            except queue.Empty:
                return
            try:
                if not deadline.stop.is_set() and deadline.remaining() > 0:
                    task()
            except Stopped:
                pass
            except BaseException as error:  # noqa: BLE001 - handed to the caller; a dead thread would hang it
                raised.append(error)
            finally:
                done.release()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(workers, len(tasks)))]
    for thread in threads:
        thread.start()
    finished = 0
    while finished < len(tasks) and deadline.why_over() is None:
        if done.acquire(timeout=_POLL_SECONDS):
            finished += 1
            while finished < len(tasks) and done.acquire(blocking=False):
                finished += 1
            if step is not None:
                step(finished, len(tasks))
    ends = time.monotonic() + GRACE_SECONDS
    while finished < len(tasks) and (left := ends - time.monotonic()) > 0 and done.acquire(timeout=left):
        finished += 1
    return list(raised)


def aside(task: Callable[[], T], deadline: Deadline) -> T:
    """What the task returns. It runs in a thread of its own, so that Ctrl-C need not wait for a server's answer.

    Raises:
        Stopped: The scan's time is over.
        Exception: Whatever the task raised.
    """
    found: list[T] = []
    raised = run_all([lambda: found.append(task())], 1, deadline)
    if raised:
        raise raised[0]
    if not found:
        raise Stopped
    return found[0]


@contextlib.contextmanager
def interruptible(deadline: Deadline) -> Iterator[None]:
    """Ctrl-C stops the scan, and loses nothing of what was read, wherever it comes; the second one ends the program.

    An exception that Python raises in the midst of anything would lose it: between the start of two threads, say.
    Nothing changes in other threads than the main one, or where the program has a handler of its own (Dagster's).
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def stop(*_: object) -> None:
        if deadline.stop.is_set():
            raise KeyboardInterrupt
        deadline.stop.set()

    previous = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
