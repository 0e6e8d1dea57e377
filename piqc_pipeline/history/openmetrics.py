"""How is load written so that a real Prometheus can be filled with it? OpenMetrics text for `promtool`.

`promtool tsdb create-blocks-from --max-block-duration=168h openmetrics FILE DATA` makes blocks of it.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TextIO


class GaugeSeries(NamedTuple):
    """One series: its labels, instants in seconds since 1970 in ascending order, and their values."""

    labels: Mapping[str, str]
    times: Iterable[float]
    values: Iterable[float]


def write_openmetrics(
    stream: TextIO, metrics: Mapping[str, Iterable[GaugeSeries]], *, counters: frozenset[str] = frozenset()
) -> int:
    """Write metrics as OpenMetrics text, ended by `# EOF`; returns the number of samples.

    Args:
        stream: Open text file.
        metrics: Metric name to its series.
        counters: Names (with `_total`) that are counters; the rest are gauges.
    """
    samples = 0
    for name, series in metrics.items():
        counter = name in counters
        stream.write(f"# TYPE {name.removesuffix('_total') if counter else name} {'counter' if counter else 'gauge'}\n")
        for entry in series:
            labels = ",".join(f'{key}="{_escaped(value)}"' for key, value in entry.labels.items())
            head = f"{name}{{{labels}}} "
            lines = [
                f"{head}{value:.6g} {moment:.3f}\n" for moment, value in zip(entry.times, entry.values, strict=True)
            ]
            stream.writelines(lines)
            samples += len(lines)
    stream.write("# EOF\n")
    return samples


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
