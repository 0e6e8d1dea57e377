"""What does Prometheus say of accelerators and engines at this moment? Instant queries, read as pages of samples.

Ranges, the history, belong to `piqc_pipeline.history`. API: prometheus.io/docs/prometheus/latest/querying/api.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime

from piqc_pipeline.cluster.device_metrics import METRICS, DeviceUse, PodKey, read_devices
from piqc_pipeline.cluster.engines.names import NAMES
from piqc_pipeline.cluster.engines.runtime import Scrape
from piqc_pipeline.cluster.exposition import Page, Sample
from piqc_pipeline.cluster.kubernetes import Deadline, ReadFailed
from piqc_pipeline.cluster.redact import printable
from piqc_pipeline.errors import PrometheusError
from piqc_pipeline.prometheus.access import PrometheusAccess

RATE_SECONDS = 120.0
"""Between the two moments of a rate: several scrapes of any usual interval."""
MAX_WHY = 300


class Prometheus:
    """One Prometheus, asked with a deadline."""

    def __init__(self, access: PrometheusAccess, deadline: Deadline) -> None:
        """Prepare; nothing is asked yet."""
        self._access = access
        self._deadline = deadline

    def devices(self) -> tuple[DeviceUse, ...]:
        """Every accelerator that an exporter tells Prometheus of, and whose it is.

        Raises:
            ReadFailed: Prometheus refused, did not answer, or answered with something else.
        """
        page = Page()
        for sample in self._query(f'{{__name__=~"{"|".join(METRICS)}"}}'):
            page.samples.setdefault(sample.name, []).append(sample)
        return read_devices([page], "prometheus")

    def engines(self, wanted: Sequence[PodKey], now: float) -> dict[PodKey, Scrape]:
        """The metrics of these pods' engines, now and some minutes before.

        Args:
            wanted: Namespace and name of the pods.
            now: Unix time of the later read, seconds.

        Raises:
            ReadFailed: Prometheus refused, did not answer, or answered with something else.
        """
        names = "|".join(sorted({name for row in NAMES.values() for name in row.series()}))
        later = self._pages(names, set(wanted), now)
        earlier = self._pages(names, set(later), now - RATE_SECONDS) if later else {}
        return {key: Scrape(page, earlier.get(key), RATE_SECONDS) for key, page in later.items()}

    def _pages(self, names: str, wanted: set[PodKey], at: float) -> dict[PodKey, Page]:
        found: dict[PodKey, Page] = defaultdict(Page)
        namespaces = "|".join(sorted({namespace for namespace, _ in wanted}))
        for sample in self._query(f'{{__name__=~"{names}",namespace=~"{namespaces}"}}', at):
            key = (sample.labels.get("namespace", ""), sample.labels.get("pod", ""))
            if key in wanted:
                found[key].samples.setdefault(sample.name, []).append(sample)
        return dict(found)

    def _query(self, query: str, at: float | None = None) -> list[Sample]:
        from piqc_pipeline.prometheus.client import PrometheusClient  # 0.2 s that only a scan with Prometheus pays

        moment = None if at is None else datetime.fromtimestamp(at, UTC)
        try:
            with PrometheusClient(self._access, patience=self._deadline) as client:
                answer = client.query(query, moment)
        except PrometheusError as error:
            raise ReadFailed(0, printable(str(error), MAX_WHY)) from error
        return [
            Sample(labels["__name__"], labels, values[-1])
            for labels, _, values in answer.series()
            if values and labels.get("__name__")
        ]
