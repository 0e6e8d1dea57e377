"""What does an answer of Prometheus' HTTP API say, and can it be trusted? Bytes in, series or one clear sentence out.

API: prometheus.io/docs/prometheus/latest/querying/api.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx
import msgspec
import numpy as np
from numpy.typing import NDArray

from piqc_pipeline.errors import MAX_SHOWN, PrometheusError
from piqc_pipeline.prometheus.access import PrometheusAccess

MAX_RETRY_AFTER_SECONDS = 10.0
"""Longest pause that a server may ask for (RFC 9110, `Retry-After` in seconds); a date is not waited for."""
LONG_BYTES = 2**19
"""Results from here on are worth loading Polars for, which reads numbers in half the time and a fifth of the memory."""
SPLITTABLE = (
    "exceeded maximum resolution",
    "deadline exceeded",
    "timed out",
    "too many samples",
    "too large",
    "exceeds the limit",
)
"""Words of answers that a smaller range may not provoke."""


class Passing(PrometheusError):
    """May pass by itself: worth another try, after the seconds that the server asks for."""

    after_seconds = 0.0


class RangeTooLarge(PrometheusError):
    """May succeed for a smaller range."""


@dataclass(frozen=True)
class Matrix:
    """The series of an answer, points laid end to end.

    Attributes:
        labels: Label set of each series.
        lengths: Points of each series.
        times: Seconds since 1970 of every point.
        values: Value of every point; may hold NaN and infinities.
        warnings: What the server said beside the result.
    """

    labels: list[dict[str, str]]
    lengths: NDArray[np.int64]
    times: NDArray[np.float64]
    values: NDArray[np.float64]
    warnings: tuple[str, ...] = ()

    def series(self) -> Iterator[tuple[dict[str, str], list[float], list[float]]]:
        """Labels, times and values of one series after the other."""
        ends = np.cumsum(self.lengths)
        for labels, end, length in zip(self.labels, ends, self.lengths, strict=True):
            yield labels, self.times[end - length : end].tolist(), self.values[end - length : end].tolist()


class _Series(msgspec.Struct):
    metric: dict[str, str] = {}
    values: list[tuple[float, float]] = []
    value: tuple[float, float] | None = None


class _Data(msgspec.Struct):
    resultType: str = ""  # noqa: N815 - Prometheus' name
    result: list[_Series] = []


class _LongSeries(msgspec.Struct):
    metric: dict[str, str] = {}
    values: msgspec.Raw = msgspec.Raw(b"")


class _LongData(msgspec.Struct):
    resultType: str = ""  # noqa: N815
    result: list[_LongSeries] = []


class _Answer(msgspec.Struct):
    status: str
    data: msgspec.Raw = msgspec.Raw(b"null")
    errorType: str = ""  # noqa: N815
    error: str = ""
    warnings: list[str] | None = None
    infos: list[str] | None = None
    isPartial: bool | None = None  # noqa: N815 - VictoriaMetrics


_ANSWER = msgspec.json.Decoder(_Answer)
# Lax, because values stand in quotes; three times as fast as orjson with a cast after it.
_DATA = msgspec.json.Decoder(_Data, strict=False)
_LONG_DATA = msgspec.json.Decoder(_LongData)
_NAMES = msgspec.json.Decoder(list[str])


def result_of(response: httpx.Response, body: bytes, access: PrometheusAccess) -> tuple[memoryview, tuple[str, ...]]:
    """The result within an answer, still as JSON, and what the server warns of.

    Args:
        response: Status and headers.
        body: The whole answer, decompressed.
        access: Names the server, and says whether a partial answer will do.

    Raises:
        PrometheusError: Refused, a web page, an error, cut off, or anything but a result.
    """
    status = response.status_code
    if response.is_redirect:
        raise PrometheusError(
            f"{access.base} sends on to {_place(response)} ({status}) in place of an answer: set PIQC_PROMETHEUS_URL "
            "to where Prometheus' API itself answers; a login page is passed with a token or user and password"
        )
    if status in (401, 403):
        raise PrometheusError(
            f"{access.base} refuses the credentials ({status}): set PIQC_PROMETHEUS_TOKEN_FILE, or "
            "PIQC_PROMETHEUS_USERNAME and PIQC_PROMETHEUS_PASSWORD"
        )
    try:
        answer = _ANSWER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _no_answer(response, body, access) from error
    warnings = tuple(answer.warnings or ()) + tuple(answer.infos or ())
    if answer.status == "success" and status == 200:
        if answer.isPartial and not access.allow_partial:
            raise Passing(
                f"{access.base} answers with a part of its data only (isPartial): a storage node is down; "
                "try again when it is back, so that no load is missed"
            )
        partial = ("the server calls its answer partial (isPartial)",) if answer.isPartial else ()
        return memoryview(answer.data), (*warnings, *partial)
    text = answer.error[:MAX_SHOWN] or f"status {status}"
    if any(words in text for words in SPLITTABLE):
        raise RangeTooLarge(f"{access.base} cannot answer ({answer.errorType or status}): {text}")
    raise _refusal(response, f"{access.base} answers with an error ({answer.errorType or status}): {text}")


def matrix_of(result: memoryview, warnings: tuple[str, ...], access: PrometheusAccess) -> Matrix:
    """The series of a result; one of native histograms has no points.

    Raises:
        PrometheusError: It is no vector or matrix.
    """
    matrix = _swept(result, warnings) if len(result) >= LONG_BYTES else None
    if matrix is not None:
        return matrix
    try:
        decoded = _decoded(result)
        if decoded.resultType not in ("vector", "matrix"):
            raise ValueError(f"a {decoded.resultType or 'thing without a type'} where series belong")
    except (msgspec.MsgspecError, ValueError, AttributeError, KeyError, TypeError, IndexError) as error:
        raise PrometheusError(f"{access.base} answers with something that is no result: {error}") from error
    points = [series.values if series.value is None else [series.value] for series in decoded.result]
    flat = np.fromiter(itertools.chain.from_iterable(itertools.chain.from_iterable(points)), dtype=np.float64)
    return Matrix(
        labels=[series.metric for series in decoded.result],
        lengths=np.array([len(values) for values in points], dtype=np.int64),
        times=flat[0::2],
        values=flat[1::2],
        warnings=warnings,
    )


def names_of(result: memoryview, access: PrometheusAccess) -> list[str]:
    """The list of a result of label values.

    Raises:
        PrometheusError: It is no list of names.
    """
    try:
        return _NAMES.decode(result)
    except msgspec.DecodeError as error:
        raise PrometheusError(f"{access.base} answers with something that is no list of names: {error}") from error


def failed(error: Exception, access: PrometheusAccess) -> PrometheusError:
    """What a request that brought no answer is told as."""
    if isinstance(error, (httpx.TimeoutException, TimeoutError)):
        return RangeTooLarge(
            f"{access.base} did not answer within {access.timeout_seconds:g} s: "
            "raise PIQC_PROMETHEUS_TIMEOUT_SECONDS, or ask for a shorter range"
        )
    if isinstance(error, httpx.DecodingError):
        return Passing(f"{access.base} answers with what cannot be decompressed ({error}): is a proxy in between?")
    words = str(error) or type(error).__name__
    return Passing(f"cannot reach Prometheus at {access.base}: {words}; check PIQC_PROMETHEUS_URL and that it runs")


def too_long(access: PrometheusAccess) -> RangeTooLarge:
    """What an answer above the limit is told as."""
    return RangeTooLarge(f"{access.base} answers with more than {access.max_answer_bytes} bytes: ask for less at once")


def joined(*parts: Matrix) -> Matrix:
    """The series of all, one after the other; a series may then stand there twice."""
    if len(parts) == 1:
        return parts[0]
    nothing = np.empty(0)
    return Matrix(
        labels=[labels for part in parts for labels in part.labels],
        lengths=np.concatenate([np.empty(0, dtype=np.int64), *(part.lengths for part in parts)]),
        times=np.concatenate([nothing, *(part.times for part in parts)]),
        values=np.concatenate([nothing, *(part.values for part in parts)]),
        warnings=tuple(dict.fromkeys(text for part in parts for text in part.warnings)),
    )


def _swept(result: memoryview, warnings: tuple[str, ...]) -> Matrix | None:
    """A matrix as Prometheus writes it, read as one row of numbers; None for everything else."""
    import polars as pl  # which the predictor does without

    try:
        data = _LONG_DATA.decode(result)
        values = [bytes(series.values) for series in data.result]
        lengths = np.array([_plain_points(each) for each in values], dtype=np.int64)
        numbers = b",".join(each for each in values if each != b"[]").translate(None, b'"[]')
        schema = {"number": pl.Float64}
        flat = pl.read_csv(numbers, schema=schema, has_header=False, separator=";", eol_char=",").to_series().to_numpy()
    except (msgspec.MsgspecError, pl.exceptions.PolarsError, ValueError):
        return None
    plain = data.resultType == "matrix" and len(flat) == 2 * lengths.sum() and bool(np.isfinite(flat[0::2]).all())
    if not plain:
        return None
    return Matrix([series.metric for series in data.result], lengths, flat[0::2], flat[1::2], warnings)


def _plain_points(values: bytes) -> int:
    """How many points a series has; `ValueError` where one of them is not exactly a number and a number in quotes."""
    bare = values.translate(None, b"0123456789.+-eENaInf")
    count = len(bare) // len(b'[,""],')
    if bare != b"[" + b",".join([b'[,""]'] * count) + b"]":
        raise ValueError("a point is no pair of a time and a value in quotes")
    return count


def _decoded(result: memoryview) -> _Data:
    try:
        return _DATA.decode(result)
    except msgspec.ValidationError:
        # `+Inf` is no number to the fast decoder. What really is none is no sample, so NaN.
        plain = msgspec.json.decode(result)
        for series in plain["result"] if isinstance(plain, dict) else ():
            for point in (*series.get("values", ()), *([series["value"]] if "value" in series else [])):
                point[1] = _number(point[1])
        return msgspec.convert(plain, _Data, strict=False)


def _number(text: object) -> float:
    try:
        return float(str(text))
    except ValueError:
        return float("nan")


def _no_answer(response: httpx.Response, body: bytes, access: PrometheusAccess) -> PrometheusError:
    status = response.status_code
    if body[:200].lstrip().startswith(b"<"):
        text = (
            f"{access.base} answers with a web page (status {status}), not with Prometheus' API: "
            "is PIQC_PROMETHEUS_URL the address of a login page or of a proxy?"
        )
    else:
        text = f"{access.base} answers with no result of Prometheus' API (status {status}): check PIQC_PROMETHEUS_URL"
    return _refusal(response, text)


def _refusal(response: httpx.Response, text: str) -> PrometheusError:
    """What an answer without a result is told as; a server that has too much to do says when to come again."""
    if response.status_code != 429 and response.status_code < 500:
        return PrometheusError(text)
    error = Passing(f"{text}; try again later")
    asked = response.headers.get("retry-after", "")
    error.after_seconds = min(float(asked), MAX_RETRY_AFTER_SECONDS) if asked.isascii() and asked.isdigit() else 0.0
    return error


def _place(response: httpx.Response) -> str:
    """Where a redirect leads, without the query, which may hold secrets."""
    there = urlsplit(response.headers.get("location", ""))
    return f"{there.scheme}://{there.hostname}{there.path}" if there.hostname else there.path or "nowhere"
