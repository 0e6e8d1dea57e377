"""Many tasks at once, given up at once."""

import os
import signal
import threading

import pytest

from piqc_pipeline.cluster.kubernetes import Deadline, Stopped
from piqc_pipeline.cluster.workers import aside, interruptible, run_all


def test_what_tasks_raise_is_handed_back_and_the_others_are_done() -> None:
    done: list[int] = []

    def fail() -> None:
        raise ValueError("one of them")

    raised = run_all([lambda: done.append(1), fail, lambda: done.append(2)], 2, Deadline(10))
    assert sorted(done) == [1, 2] and [str(error) for error in raised] == ["one of them"]


def test_a_task_aside_returns_what_it_found_or_raises_as_it_did() -> None:
    assert aside(lambda: 7, Deadline(10)) == 7
    with pytest.raises(ZeroDivisionError):
        aside(lambda: 1 // 0, Deadline(10))
    with pytest.raises(Stopped):
        aside(lambda: 7, Deadline(0))


def test_ctrl_c_raises_nothing_the_first_time_and_ends_the_program_the_second() -> None:
    deadline = Deadline(10)
    with interruptible(deadline):
        os.kill(os.getpid(), signal.SIGINT)
        assert deadline.stop.wait(5)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(5)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_program_itself_is_left_alone() -> None:
    heard: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        with interruptible(Deadline(10)):
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(0.05)
    finally:
        signal.signal(signal.SIGINT, previous)
    assert heard == [signal.SIGINT]
