"""Which errors a user can meet, and the exit code of each. No logging belongs here.

Each message is the user's sentence: what failed, on what, what to do.

```
PiqcError                        exit 1
├── UsageError                   exit 2  options, names or settings that cannot be meant
│   ├── NotConfigured                    no cluster or no history was named
│   └── NamespacesMissing                none of the namespaces named exists
├── ClusterError
│   ├── ClusterUnreachable               nobody answers, or a proxy does
│   ├── CredentialsRefused               401
│   └── DumpUnreadable                   a recorded cluster that is missing, cut off or foreign
├── PricesUnreadable
├── PrometheusError                      refused, timed out, HTML, an error answer
├── HistoryError
│   ├── HistoryFileUnreadable            a CSV or Parquet file that holds no history
│   ├── StoreLocked                      another process holds the DuckDB file
│   ├── StoreTooNew                      written by a newer program
│   └── PartitionInFuture
├── ForecastError
│   ├── NoWorkloadAccepted
│   ├── ArtifactMissing
│   └── ArtifactAltered                  its hash or schema is not what its card says
├── ScalingError
│   ├── ScaleUnknown                     a workload whose count of replicas nobody knows
│   ├── ManifestInvalid
│   └── TraceUnreadable
└── OutputUnwritable                     full disk, read-only folder
```
"""

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNKNOWN_PARTS = 3
"""A read failed or was refused; what could be read is reported."""
EXIT_WASTE_ABOVE_LIMIT = 4

MAX_SHOWN = 300
"""Characters of others' words that a message repeats."""


class PiqcError(Exception):
    """Something failed that the user can act on; the message says how."""

    exit_code = EXIT_FAILED


class UsageError(PiqcError):
    """Options, names or settings that cannot be meant."""

    exit_code = EXIT_USAGE


class NotConfigured(UsageError):
    """No cluster, or no history, was named; demo data are never taken by accident."""


class NamespacesMissing(UsageError):
    """None of the namespaces that were named exists in the cluster."""


class ClusterError(PiqcError):
    """The cluster, or its recording, cannot be read at all."""


class ClusterUnreachable(ClusterError):
    """Nobody answers at the API server's address, or something else does."""


class CredentialsRefused(ClusterError):
    """The API server answered 401."""


class DumpUnreadable(ClusterError):
    """A recorded cluster is missing, empty, cut off or something else."""


class PricesUnreadable(PiqcError):
    """A price file has a row that cannot be read."""


class PrometheusError(PiqcError):
    """Prometheus refused, timed out, or answered with something that is no result."""


class HistoryError(PiqcError):
    """The history cannot be read or written."""


class HistoryFileUnreadable(HistoryError):
    """A CSV or Parquet file holds no history that can be used."""


class StoreLocked(HistoryError):
    """Another process holds the DuckDB file; the message names its PID."""


class StoreTooNew(HistoryError):
    """The store was written by a newer program."""


class PartitionInFuture(HistoryError):
    """A day was asked for that has not begun."""


class ForecastError(PiqcError):
    """No forecast can be made or read."""


class NoWorkloadAccepted(ForecastError):
    """Every candidate model was rejected; what was promoted before stays."""


class ArtifactMissing(ForecastError):
    """There is no predictor artifact at the place named."""


class ArtifactAltered(ForecastError):
    """The predictor artifact is not what its hash or schema says."""


class ScalingError(PiqcError):
    """A plan, manifest or replay cannot be made."""


class ScaleUnknown(ScalingError):
    """How many replicas a workload is to have is unknown: its owner was not read, or is gone."""


class ManifestInvalid(ScalingError):
    """A manifest breaks its schema or a limit of Kubernetes."""


class TraceUnreadable(ScalingError):
    """A trace for backtest or replay cannot be read."""


class OutputUnwritable(PiqcError):
    """A result cannot be written; what was stored before is untouched."""


def one_line(error: Exception | str) -> str:
    """A library's words as they fit into a sentence: on one line, cut at `MAX_SHOWN`."""
    return " ".join(str(error).split())[:MAX_SHOWN]


def first_line(error: Exception) -> str:
    """The first of a library's lines, cut at `MAX_SHOWN`: Polars adds hints for programmers in further ones."""
    return str(error).strip().partition("\n")[0][:MAX_SHOWN]


def no_folder(location: str) -> OutputUnwritable:
    """What is said of a place below something that is a file."""
    return OutputUnwritable(f"cannot write {location}: a part of its path is a file, not a folder")
