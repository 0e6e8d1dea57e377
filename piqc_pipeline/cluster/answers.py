"""What do pods answer when they are asked? The one interface of live clusters and of recordings."""

from dataclasses import dataclass
from typing import Protocol

from piqc_pipeline.cluster.engines.runtime import Source


@dataclass(frozen=True)
class Reply:
    """An answer, or why there is none.

    Attributes:
        text: What was answered; None where nothing was.
        source: How it was asked for.
        why: Why nothing was answered, in one clause.
        failed: Whether that is a failed or refused read (else: nobody could have told).
        down: Whether the pod itself refuses: the engine is not there.
    """

    text: str | None
    source: Source = "none"
    why: str = ""
    failed: bool = False
    down: bool = False


@dataclass(frozen=True)
class Target:
    """A pod's container, and where its engine listens."""

    namespace: str
    pod: str
    container: str
    ip: str | None = None
    scheme: str = "http"


class Answers(Protocol):
    """Asks pods."""

    runs_tools: bool
    """Whether `run` can answer at all."""

    def run(self, target: Target, tool: str, command: tuple[str, ...]) -> Reply:
        """What a vendor's tool printed inside the container. `tool` is its name in recordings."""
        ...

    def fetch(self, target: Target, port: int, path: str) -> Reply:
        """A page that the container serves."""
        ...

    def fetch_service(self, namespace: str, service: str, port: int, path: str) -> Reply:
        """A page that one of the pods behind a Service serves."""
        ...

    def window_seconds(self) -> float:
        """Least time between two reads of a counter; 0 where recordings hold both."""
        ...

    def config_map(self, namespace: str, name: str) -> dict[str, str] | None:
        """The texts of a ConfigMap; None where it cannot be read."""
        ...
