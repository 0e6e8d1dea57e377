"""Processes that write history and may be killed; forked from a server with all imports done, so they start fast."""

import os
from collections.abc import Mapping
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection

from piqc_pipeline.history.store import open_store
from piqc_pipeline_tests.history.rows import DAY, NEXT_DAY, rows

forked = get_context("forkserver")
forked.set_forkserver_preload(["piqc_pipeline_tests.history.writers", "piqc_pipeline.history.lake"])

BUCKETS = 288


def write_for_ever(location: str, first: int, told: Connection) -> None:
    """Replace one day by rows of 0.0001, 0.0002, ... and tell each value once it is stored."""
    store = open_store(location)
    for value in range(first, 10_000):
        store.replace(DAY, NEXT_DAY, rows([value / 10_000] * BUCKETS))
        told.send(value)


def write_days(location: str, writer: int, days: int, environ: Mapping[str, str]) -> None:
    """Write a day of each writer's own, and one that all of them write alike."""
    os.environ.update(environ)
    store = open_store(location)
    own = DAY + timedelta(days=1 + writer)
    for _ in range(days):
        store.replace(own, own + timedelta(days=1), rows([writer / 10] * BUCKETS, start=own))
        store.replace(DAY, NEXT_DAY, rows([0.9] * BUCKETS))


def write_halves(location: str, writer: int) -> None:
    """Write the workload of this writer into a day that all writers share."""
    workload = f"prod/inference/Deployment/w{writer}"
    open_store(location).replace(DAY, NEXT_DAY, rows([writer / 10] * BUCKETS, workload=workload))


def write_part(location: str, writer: int, environ: Mapping[str, str]) -> None:
    """Write half a day of one of two workloads, several times over."""
    os.environ.update(environ)
    number, half = divmod(writer, 2)
    start = DAY + timedelta(hours=12 * half)
    part = rows([half / 10 + 0.5] * (BUCKETS // 2), workload=f"prod/inference/Deployment/w{number}", start=start)
    for _ in range(3):
        open_store(location).replace(start, start + timedelta(hours=12), part)
