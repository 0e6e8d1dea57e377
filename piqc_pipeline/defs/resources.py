"""What does every asset need: the effective settings, the clock, and where its input and output lie?

Data go through files and the history store, not through IO managers: a snapshot, a table of days, an artifact and
manifests each have a storage rule of their own.
"""

import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import dagster as dg

from piqc_pipeline.errors import ClusterUnreachable, PiqcError, PrometheusError
from piqc_pipeline.settings import Settings, load_settings

OWNERS = ["team:gpu-platform"]
NETWORK_RETRIES = dg.RetryPolicy(max_retries=3, delay=5, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
"""Only for assets that talk to Kubernetes or Prometheus; training and rendering give the same answer again."""
HISTORY_POOL = "history"
"""On every step that opens the DuckDB file, which takes one process at a time."""
_WORTH_ANOTHER_TRY = (ClusterUnreachable, PrometheusError)
"""A locked DuckDB file is not among them: the store itself has waited for it."""

if TYPE_CHECKING:
    Materialized = dg.MaterializeResult[None]
else:
    # Beside checks of its own, Dagster takes only the bare class for "returns no value to be pickled".
    Materialized = dg.MaterializeResult

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Pipeline:
    """The effective settings and the places that follow from them.

    Attributes:
        settings: What the user configured.
        progress: Told the name of each asset as it begins, or None.
    """

    settings: Settings
    progress: Callable[[str], None] | None = None

    @property
    def now(self) -> datetime:
        """The instant taken as now, aware UTC."""
        return self.settings.clock()

    @property
    def snapshot_path(self) -> Path:
        """The newest snapshot, whole, so that it can be loaded again."""
        return self.settings.data_dir / "facts" / "snapshot.json"

    @property
    def bundle_path(self) -> Path:
        """The facts bundle, `piqc-scan.v0.1`."""
        return self.settings.data_dir / "facts" / "piqc-facts.json"

    @property
    def report_dir(self) -> Path:
        """Where `report.json`, `coverage.json` and `index.html` lie."""
        return self.settings.data_dir / "report"

    @property
    def profile_dir(self) -> Path:
        """Tables and plots of the load's usual day and week."""
        return self.settings.data_dir / "profile"

    @property
    def model_dir(self) -> Path:
        """Holds `candidate/`, `current/` and `archive/`."""
        return self.settings.data_dir / "model"

    @property
    def artifact_dir(self) -> Path:
        """The forecast in use, promoted by an atomic rename."""
        return self.model_dir / "current"

    @property
    def manifests_dir(self) -> Path:
        """The kustomize overlay that scales the workloads."""
        return self.settings.data_dir / "manifests"

    @property
    def replay_dir(self) -> Path:
        """Scores of scaling policies on the recorded load."""
        return self.settings.data_dir / "replay"


class PipelineResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Reads `PIQC_*` when a step begins, so that definitions load where nothing is configured.

    Attributes:
        overrides: Settings of this run that stand above `PIQC_*`, for instance `{"data_dir": "elsewhere"}`.
    """

    overrides: dict[str, Any] = {}

    def create_resource(self, context: dg.InitResourceContext) -> Pipeline:
        """The settings and places of this process.

        Raises:
            UsageError: A setting cannot be read; the message names it.
        """
        return Pipeline(load_settings(**self.overrides))


def checks_of(asset: str, says: Mapping[str, str], *, blocking: Collection[str] = ()) -> list[dg.AssetCheckSpec]:
    """Checks that the asset makes itself, because it has the figures.

    Args:
        asset: Name of the asset.
        says: What each check holds, by name.
        blocking: Names of those that hold up what follows in the run.
    """
    return [
        dg.AssetCheckSpec(name, asset=asset, description=text, blocking=name in blocking) for name, text in says.items()
    ]


def one_sentence(step: Callable[P, R]) -> Callable[P, R]:
    """Let a step fail as the user should read it: the sentence first, a retry only where one can help.

    Also announces the step to `Pipeline.progress`.
    """

    @functools.wraps(step)
    def told(*args: P.args, **kwargs: P.kwargs) -> R:
        pipeline = kwargs.get("pipeline")
        if isinstance(pipeline, Pipeline) and pipeline.progress:
            pipeline.progress(getattr(step, "__name__", ""))
        try:
            return step(*args, **kwargs)
        except PiqcError as error:
            again = isinstance(error, _WORTH_ANOTHER_TRY) and not _last_try()
            raise dg.Failure(str(error), allow_retries=again) from error

    return told


def _last_try() -> bool:
    """True on the last try: what Dagster says after it ("exceeded max_retries") would hide the sentence."""
    return dg.OpExecutionContext.get().retry_number >= NETWORK_RETRIES.max_retries
