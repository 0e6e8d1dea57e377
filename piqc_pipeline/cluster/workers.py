"""How are many things asked at once, and given up at once? A bounded number of threads that the user can stop.

The threads are daemons: one that hangs in a socket never keeps the program from ending (the standard pool's threads
do).
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence

from piqc_pipeline.cluster.kubernetes import Deadline, Stopped

GRACE_SECONDS = 0.7
"""How long running tasks may take to notice that they were stopped."""
_POLL_SECONDS = 0.1


def run_all(
    tasks: Sequence[Callable[[], None]],
    workers: int,
    deadline: Deadline,
    step: Callable[[int, int], None] | None = None,
) -> list[BaseException]:
    """Run all tasks, `workers` at a time, until done, stopped by Ctrl-C, or out of time.

    Ctrl-C sets `deadline.stop`; what the tasks have stored until then is the caller's to use.

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
    try:
        while finished < len(tasks) and deadline.remaining() > 0:
            if done.acquire(timeout=_POLL_SECONDS):
                finished += 1
                while finished < len(tasks) and done.acquire(blocking=False):
                    finished += 1
                if step is not None:
                    step(finished, len(tasks))
    except KeyboardInterrupt:
        deadline.stop.set()
    if finished < len(tasks):
        with contextlib.suppress(KeyboardInterrupt):
            ends = time.monotonic() + GRACE_SECONDS
            while finished < len(tasks) and (left := ends - time.monotonic()) > 0 and done.acquire(timeout=left):
                finished += 1
    return list(raised)
