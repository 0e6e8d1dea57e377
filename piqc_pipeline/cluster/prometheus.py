"""What does Prometheus say of accelerators and engines at this moment? Instant queries, read as pages of samples.

Ranges, the history, belong to `piqc_pipeline.history`. API: prometheus.io/docs/prometheus/latest/querying/api.
"""

import contextlib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode

import msgspec
import urllib3

from piqc_pipeline.cluster.device_metrics import METRICS, DeviceUse, PodKey, read_devices
from piqc_pipeline.cluster.engines.runtime import NAMES, Scrape
from piqc_pipeline.cluster.exposition import Page, Sample
from piqc_pipeline.cluster.kubernetes import Deadline, ReadFailed
from piqc_pipeline.cluster.redact import printable

RATE_SECONDS = 120.0
"""Between the two moments of a rate: several scrapes of any usual interval."""
MAX_ANSWER_BYTES = 256 * 1024 * 1024


class _Row(msgspec.Struct):
    metric: dict[str, str] = {}
    value: tuple[float, str] | None = None


class _Data(msgspec.Struct, rename="camel"):
    result_type: str = ""
    result: list[_Row] = []


class _Reply(msgspec.Struct, rename="camel"):
    status: str = ""
    data: _Data | None = None
    error: str | None = None
    is_partial: bool | None = None


class Prometheus:
    """One Prometheus, asked with a deadline."""

    def __init__(self, url: str, token_file: Path | None, timeout_seconds: float, deadline: Deadline) -> None:
        """Prepare; nothing is asked yet."""
        self.url = url.rstrip("/")
        self.token_file = token_file
        self.timeout_seconds = timeout_seconds
        self.deadline = deadline
        self._pool = urllib3.PoolManager(retries=False, maxsize=4)

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
        names = "|".join(sorted({name for row in NAMES.values() for name in _series(row)}))
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
        reply = self._ask({"query": query, **({"time": f"{at:.3f}"} if at is not None else {})})
        if reply.is_partial:
            raise ReadFailed(200, "Prometheus answered with a part of the data only")
        found = []
        for row in reply.data.result if reply.data else []:
            name = row.metric.get("__name__", "")
            with contextlib.suppress(ValueError):
                if row.value is not None and name:
                    found.append(Sample(name, row.metric, float(row.value[1])))
        return found

    def _ask(self, fields: dict[str, str]) -> _Reply:
        self.deadline.check()
        seconds = min(self.timeout_seconds, max(0.05, self.deadline.remaining()))
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        try:
            if self.token_file is not None:
                headers["Authorization"] = f"Bearer {self.token_file.read_text(encoding='utf-8').strip()}"
            answer = self._pool.request(
                "POST",
                f"{self.url}/api/v1/query",
                body=urlencode(fields),
                headers=headers,
                timeout=urllib3.Timeout(connect=min(5.0, seconds), read=seconds),
                redirect=False,
            )
        except (urllib3.exceptions.HTTPError, OSError, UnicodeDecodeError) as error:
            raise ReadFailed(0, f"Prometheus cannot be asked ({type(error).__name__})") from error
        if len(answer.data) > MAX_ANSWER_BYTES:
            raise ReadFailed(answer.status, "Prometheus answered with more than can be read")
        try:
            reply = msgspec.json.decode(answer.data, type=_Reply, strict=False)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ReadFailed(answer.status, f"Prometheus answered {answer.status} with something else") from error
        if answer.status != 200 or reply.status != "success":
            words = f" ({printable(reply.error, 100)})" if reply.error else ""
            raise ReadFailed(answer.status, f"Prometheus answered {answer.status}{words}")
        if reply.data is None or reply.data.result_type != "vector":
            raise ReadFailed(answer.status, "Prometheus answered with no vector")
        return reply


def _series(names: object) -> list[str]:
    """Every series that one engine's figures are made of."""
    found: list[str] = []
    for attribute, values in vars(names).items():
        for value in values:
            if isinstance(value, tuple):
                found += value
            elif attribute in ("first_token", "per_token", "end_to_end", "prompt_tokens", "generation_tokens"):
                found.append(f"{value}_bucket")
            else:
                found.append(value)
    return found
