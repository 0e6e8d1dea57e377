"""Where does a generated load go? A CSV of samples, OpenMetrics for `promtool`, or a live exporter."""

from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import polars as pl

from piqc_pipeline.atomic import replacing
from piqc_pipeline.errors import OutputUnwritable
from piqc_pipeline.history.exporter import LiveExporter
from piqc_pipeline.history.openmetrics import write_openmetrics
from piqc_pipeline.history.typical_week import TypicalWeek, dcgm_series, typical_week

METRIC = "DCGM_FI_DEV_GPU_UTIL"


def write_generated(shape: TypicalWeek, form: str, pods: int, namespace: str, name: str, target: Path | TextIO) -> None:
    """Write the load as `samples` (`ts,series_id,value,unit`) or `openmetrics`; a file is replaced atomically."""
    load = typical_week(shape)
    if not isinstance(target, Path):
        _write(load, form, pods, namespace, name, target)
        return
    try:
        with replacing(target) as partial, partial.open("w", encoding="utf-8") as stream:
            _write(load, form, pods, namespace, name, stream)
    except OSError as error:
        raise OutputUnwritable(
            f"cannot write {target}: {error.strerror}; free space or choose another place"
        ) from error


def _write(load: pl.DataFrame, form: str, pods: int, namespace: str, name: str, stream: TextIO) -> None:
    if form == "openmetrics":
        write_openmetrics(stream, {METRIC: dcgm_series(load, pods, namespace, name)})
        return
    samples = load.select(
        "ts",
        pl.lit(f"{namespace}/{name}").alias("series_id"),
        (pl.col("utilization") * 100).round(2).alias("value"),
        pl.lit("percent").alias("unit"),
    )
    stream.write(samples.write_csv(datetime_format="%Y-%m-%dT%H:%M:%SZ"))


def play(
    shape: TypicalWeek, pods: int, namespace: str, name: str, speed: float, port: int, tell: Callable[[str], None]
) -> None:
    """Serve the load live until the process is interrupted."""
    exporter = LiveExporter(METRIC, dcgm_series(typical_week(shape), pods, namespace, name), speed, port=port)
    tell(f"{METRIC} of {pods} pods at {exporter.address}, {speed:g} times the clock; end with Ctrl-C")
    try:
        exporter.serve()
    except KeyboardInterrupt:
        tell("ended")
    finally:
        exporter.close()
