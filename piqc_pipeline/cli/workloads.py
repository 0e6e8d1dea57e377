"""Which workloads does the command line know, and what are they called for short?"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from piqc_pipeline.history.inventory import WorkloadInventory
    from piqc_pipeline.settings import Settings


def last_inventory(settings: "Settings") -> "tuple[WorkloadInventory, ...]":
    """Workloads of the last scan in the data folder, so that names in files become their ids; none before a scan."""
    from piqc_pipeline.facts.snapshot_file import read_snapshot
    from piqc_pipeline.history.inventory import inventory_from_snapshot

    snapshot = settings.data_dir / "facts" / "snapshot.json"
    return inventory_from_snapshot(read_snapshot(snapshot), settings.capacity_rates) if snapshot.is_file() else ()


def short_name(workload: str) -> str:
    """`namespace/name` of an id; a name that is no id as it is."""
    parts = workload.rsplit("/", 3)
    return f"{parts[1]}/{parts[3]}" if len(parts) == 4 else workload
