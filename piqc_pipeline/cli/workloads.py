"""Which workloads and namespaces does the command line mean, and what are they called for short?"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from piqc_pipeline.history.inventory import WorkloadInventory
    from piqc_pipeline.history.table import HistoryStore
    from piqc_pipeline.settings import Settings


def last_inventory(settings: "Settings") -> "tuple[WorkloadInventory, ...]":
    """Workloads of the last scan in the data folder, so that names in files become their ids; none before a scan."""
    from piqc_pipeline.facts.snapshot_file import read_snapshot
    from piqc_pipeline.history.inventory import inventory_from_snapshot

    snapshot = settings.data_dir / "facts" / "snapshot.json"
    return inventory_from_snapshot(read_snapshot(snapshot), settings.capacity_rates) if snapshot.is_file() else ()


def newest_row(store: "HistoryStore") -> str:
    """Words for a message that found no rows: where the newest one is, which may be old; nothing of an empty store."""
    newest = store.newest()
    return "" if newest is None else f" (its newest row ends {newest:%Y-%m-%d %H:%M} UTC)"


def named_namespaces(given: Iterable[str]) -> tuple[str, ...]:
    """Namespaces of a repeated `-n`, each of which may name several between commas."""
    return tuple(part.strip() for entry in given for part in entry.split(",") if part.strip())


def short_name(workload: str) -> str:
    """`namespace/name` of an id; a name that is no id as it is."""
    parts = workload.rsplit("/", 3)
    return f"{parts[1]}/{parts[3]}" if len(parts) == 4 else workload
