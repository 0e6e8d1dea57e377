"""Where does history lie? One DuckDB file or a Parquet lake, by the form of the location."""

from pathlib import Path

from piqc_pipeline.errors import HistoryError
from piqc_pipeline.history.duckdb_engine import explained
from piqc_pipeline.history.duckdb_store import LOCK_WAIT_SECONDS, DuckDbStore
from piqc_pipeline.history.lake import ParquetLake
from piqc_pipeline.history.table import HistoryStore

READ_IN_MEMORY = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet", ".gz", ".zst")
"""DuckDB opens files of these names as tables of a database in memory: what is written is lost, without an error."""


def open_store(location: str | Path, *, wait_seconds: float = LOCK_WAIT_SECONDS) -> HistoryStore:
    """The store at a location: a `.duckdb` file, or a folder or `s3://`, `gs://`, `az://` address of a Parquet lake.

    Args:
        location: Nothing needs to exist there yet.
        wait_seconds: How long to wait for another process that holds the file.

    Raises:
        HistoryError: The name is that of a file of other data, in which no row would stay.
    """
    text = str(location)
    try:
        folder = "://" in text or Path(text).is_dir() or not Path(text).suffix
    except OSError as error:
        raise explained(error, text) from error
    if folder:
        return ParquetLake(text)
    if Path(text).suffix.lower() in READ_IN_MEMORY:
        raise HistoryError(f"{text} cannot be a history store: name a .duckdb file or a folder with PIQC_HISTORY_STORE")
    return DuckDbStore(text, wait_seconds=wait_seconds)
