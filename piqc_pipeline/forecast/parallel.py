"""How are many series worked through on one machine? Processes, with bounded memory, in the order they were given.

Nothing about forecasting belongs here.
"""

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 2
"""Items handed out per process: enough that none waits, few enough that results do not pile up."""

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(function: Callable[[Item], Result], items: Iterable[Item], workers: int = 1) -> Iterator[Result]:
    """The function's result for each item, in order, as soon as it and all before it are there.

    Args:
        function: A module's function (or a `functools.partial` of one), so that another process can find it.
        items: What to work on; taken only as fast as it is worked through.
        workers: Processes; 1 works in this one.
    """
    if workers <= 1:
        yield from map(function, items)
        return
    # Forking a process that has threads (Prophet's, polars') deadlocks now and then.
    context = multiprocessing.get_context("spawn")
    with _one_thread_each(), ProcessPoolExecutor(workers, mp_context=context) as pool:
        waiting: deque[Future[Result]] = deque()
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= workers * AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Children do their linear algebra in one thread: the matrices are small, and the cores are taken."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
