"""How are many workloads trained? In processes on one machine, or by shard in pods that share no disk.

A shard is a list of workload ids; between steps only ids and the paths of shard files pass.
"""

import base64
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from piqc_pipeline.errors import ArtifactAltered, ArtifactMissing
from piqc_pipeline.forecast.artifact import write_atomic
from piqc_pipeline.forecast.model import WIRE, CandidateModel, WorkloadForecast
from piqc_pipeline.forecast.parallel import in_order
from piqc_pipeline.forecast.policy import TrainPolicy
from piqc_pipeline.forecast.series import DemandSeries
from piqc_pipeline.forecast.train import Progress, train


@dataclass(frozen=True)
class _Shard:
    """A shard's file."""

    __pydantic_config__: ClassVar[ConfigDict] = WIRE

    workloads: dict[str, WorkloadForecast]
    failed: dict[str, str]
    versions: dict[str, str]
    prophet_models: dict[str, str]


LoadSeries = Callable[[Sequence[str]], Iterable[DemandSeries]]
"""Reads the series of some workloads, for instance from the store; called inside the shard's own process."""


@cache
def _wire() -> TypeAdapter[_Shard]:
    return TypeAdapter(_Shard)


def train_in_processes(
    series: Iterable[DemandSeries],
    now: datetime,
    policy: TrainPolicy,
    *,
    workers: int = 1,
    progress: Progress | None = None,
    previous: MutableMapping[str, WorkloadForecast] | None = None,
) -> CandidateModel:
    """Trains every series, one at a time per process; the same result as `train`, whatever the number of processes.

    Memory stays bounded: a process holds one series, finished forecasts are taken as they come, and each takes the
    place of the one before it.

    Args:
        series: Demand of the workloads; taken only as fast as it is worked through, so an iterator need not hold all.
        now: The instant taken as now.
        policy: How.
        workers: Processes.
        progress: Called with each workload's id when it is done.
        previous: Last artifact's forecasts, 400 KiB each: taken out as they are handed on, and gone in the end.
    """
    before = {} if previous is None else previous
    items = ((one, before.pop(one.workload, None)) for one in series)
    parts = []
    for part in in_order(partial(_train_item, now=now, policy=policy), items, workers):
        parts.append(part)
        if progress is not None:
            progress(next(iter((*part.workloads, *part.failed)), ""))
    return merged(parts, now, policy)


def _train_item(
    item: tuple[DemandSeries, WorkloadForecast | None], now: datetime, policy: TrainPolicy
) -> CandidateModel:
    series, previous = item
    return train([series], now, policy, previous={series.workload: previous} if previous else None)


def merged(parts: Iterable[CandidateModel], now: datetime, policy: TrainPolicy) -> CandidateModel:
    """One candidate out of several, sorted by workload."""
    workloads: dict[str, WorkloadForecast] = {}
    failed: dict[str, str] = {}
    pickles: dict[str, bytes] = {}
    found: dict[str, str] = {}
    for part in parts:
        workloads.update(part.workloads)
        failed.update(part.failed)
        pickles.update(part.prophet_models)
        found.update(part.versions)
    return CandidateModel(
        now,
        dict(sorted(workloads.items())),
        dict(sorted(failed.items())),
        found,
        policy.plain(),
        dict(sorted(pickles.items())),
    )


def shard_keys(workloads: Sequence[str], shards: int) -> list[tuple[str, ...]]:
    """Splits workloads into at most `shards` lists of nearly equal length; the same list for the same workloads."""
    ordered = sorted(set(workloads))
    count = max(1, min(shards, len(ordered)))
    return [tuple(ordered[i::count]) for i in range(count)] if ordered else []


def train_shard(
    keys: Sequence[str],
    load: LoadSeries,
    now: datetime,
    policy: TrainPolicy,
    folder: Path,
    previous: Mapping[str, WorkloadForecast] | None = None,
) -> Path:
    """Trains the workloads of one shard and writes the shard's file.

    Args:
        keys: Workload ids.
        load: Reads their series.
        now: The instant taken as now.
        policy: How.
        folder: Where shard files lie; a place that all pods reach.
        previous: Last artifact's forecasts.

    Returns:
        The file, named after its first key, so that a retried step overwrites its own.
    """
    series = list(load(keys))
    candidate = train(series, now, policy, previous=previous)
    missing = {key: "no history of it is stored" for key in keys if key not in {one.workload for one in series}}
    document = _Shard(
        dict(candidate.workloads),
        {**candidate.failed, **missing},
        dict(candidate.versions),
        {name: base64.b64encode(body).decode("ascii") for name, body in candidate.prophet_models.items()},
    )
    name = keys[0].replace("/", "_") if keys else "empty"
    return write_atomic(folder / f"shard-{name}.json", _wire().dump_json(document, by_alias=True))


def merge_shards(paths: Iterable[Path], now: datetime, policy: TrainPolicy) -> CandidateModel:
    """The candidate of all shards.

    Raises:
        ArtifactMissing: A shard's file is not there.
        ArtifactAltered: It is cut off or foreign.
    """
    parts = []
    for path in paths:
        try:
            document = _wire().validate_json(path.read_bytes())
        except FileNotFoundError as error:
            raise ArtifactMissing(f"no shard {path}: run its training step again") from error
        except ValidationError as error:
            raise ArtifactAltered(f"the shard {path} is cut off or foreign: {error.errors()[0]['msg']}") from error
        pickles = {name: base64.b64decode(body) for name, body in document.prophet_models.items()}
        parts.append(CandidateModel(now, document.workloads, document.failed, document.versions, {}, pickles))
    return merged(parts, now, policy)
