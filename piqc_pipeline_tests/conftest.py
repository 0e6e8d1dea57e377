"""What does every test take for granted of the process it runs in?"""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _heeds_ctrl_c() -> Iterator[None]:
    """Ctrl-C is heard, even where a shell started the tests in the background, which makes it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
