"""What did nvidia-smi print? Its CSV, whatever cells it could not fill. Never an exception, never a guess.

Cells such as `[N/A]`, `ERR!` or `[GPU is lost]` are unknown, not 0; under MIG utilization does not exist.
"""

import re
from collections.abc import Iterable

from piqc_pipeline.cluster.accelerators.plugin import Listing
from piqc_pipeline.cluster.redact import printable
from piqc_pipeline.facts.snapshot import AcceleratorReading

FIELDS = (
    "index",
    "uuid",
    "name",
    "mig.mode.current",
    "memory.total",
    "memory.used",
    "utilization.gpu",
    "utilization.memory",
    "temperature.gpu",
    "power.draw",
    "power.limit",
)
"""`name` is the one cell that may hold a comma; what stands before and after it is counted from both ends."""

_QUERY = (f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits")
PATHS = ("nvidia-smi", "/usr/local/nvidia/bin/nvidia-smi", "/usr/bin/nvidia-smi")
"""Where it is: in the path; on GKE, whose nodes mount it there; elsewhere."""
COMMANDS = tuple((path, *_QUERY) for path in PATHS)
REFUSAL = "is not a valid field to query"
OLDER_COMMANDS = tuple(tuple(word.replace("mig.mode.current", "pstate") for word in command) for command in COMMANDS)
"""Drivers before 450 know no MIG, and refuse the query; `pstate` (`P0`) takes its place, and is never `Enabled`."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,9}(?:\.[0-9]{1,9})?(?:\s*(?:%|MiB|W|C|MB))?")
_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-fA-F/-]{4,64}")
_TROUBLE = re.compile(r"(?i)unable to determine|gpu is lost|failed|error|no devices|fallen off|couldn't communicate")
MAX_GPUS = 64


def read_csv(output: str) -> Listing:
    """The GPUs in the output of `nvidia-smi --query-gpu=… --format=csv,noheader,nounits` with FIELDS."""
    readings = []
    problems = []
    for line in output.splitlines()[: 4 * MAX_GPUS]:
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) >= len(FIELDS) and (reading := _reading(cells)) is not None:
            readings.append(reading)
        elif _TROUBLE.search(line) or cells[0].isdigit():
            problems.append(printable(line))
    if len(readings) > MAX_GPUS:
        return Listing((), (f"it lists {len(readings)} GPUs, more than any machine holds",))
    if not readings and not problems and output.strip():
        problems.append(f"its output cannot be read: {printable(output, 80)!r}")
    return Listing(tuple(readings), tuple(problems))


def _reading(cells: list[str]) -> AcceleratorReading | None:
    behind_name = len(FIELDS) - FIELDS.index("name") - 1
    index, uuid = cells[0], cells[1]
    name = ", ".join(cells[2:-behind_name])
    mig, total, used, busy, memory_busy, temperature, power, limit = cells[-behind_name:]
    if number(mig) is not None:
        return None  # decimal commas: which cell is which is not to be told
    if not index.isdigit() or not name or name.startswith("[") or name in ("N/A", "ERR!"):
        return None
    in_mig = mig == "Enabled"
    return AcceleratorReading(
        source="exec",
        uuid=uuid if _UUID.fullmatch(uuid) else None,
        index=index,
        product=printable(name, 80),
        utilization_pct=None if in_mig else percent(busy),
        memory_used_mib=amount(used),
        memory_total_mib=amount(total),
        power_watts=amount(power),
        power_limit_watts=amount(limit),
        temperature_celsius=number(temperature),
        memory_bandwidth_pct=None if in_mig else percent(memory_busy),
        signal="utilization.gpu",
        confidence="medium",
    )


def number(cell: str) -> float | None:
    """A cell's number, its unit left away; None for `[N/A]`, `ERR!` and all else."""
    if _NUMBER.fullmatch(cell) is None:
        return None
    return float(re.sub(r"[^0-9.+-]", "", cell))


def amount(cell: str) -> float | None:
    """A cell's number where it is not negative."""
    value = number(cell)
    return value if value is not None and value >= 0 else None


def first(values: Iterable[float | None]) -> float | None:
    """The first that is known: releases of a tool name one figure differently."""
    return next((value for value in values if value is not None), None)


def percent(cell: str) -> float | None:
    """A cell's number where it lies in 0..100; 137 and -1 are no utilization."""
    value = number(cell)
    return value if value is not None and 0 <= value <= 100 else None
