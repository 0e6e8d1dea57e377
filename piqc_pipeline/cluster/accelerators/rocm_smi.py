"""What did rocm-smi print? Its JSON, of any ROCm release. Never an exception, never a guess.

All values are strings; the entry `system` is no card; ids such as `N/A` are no keys. `GFX Activity` and `Memory
Activity` are counters since the driver was loaded (2469071528 on a card that is 10 % busy), and no percentages.
"""

import re

import msgspec

from piqc_pipeline.cluster.accelerators.nvidia_smi import amount, first, number, percent
from piqc_pipeline.cluster.accelerators.plugin import Listing
from piqc_pipeline.cluster.redact import printable
from piqc_pipeline.facts.snapshot import AcceleratorReading

_ARGUMENTS = (
    "--showproductname",
    "--showuniqueid",
    "--showuse",
    "--showmemuse",
    "--showmeminfo",
    "vram",
    "--showpower",
    "--showmaxpower",
    "--showtemp",
    "--json",
)
COMMANDS = (("rocm-smi", *_ARGUMENTS), ("/opt/rocm/bin/rocm-smi", *_ARGUMENTS))

_CARD = re.compile(r"card([0-9]{1,3})")
_RAW_ID = re.compile(r"0x[0-9a-fA-F]+")
_MIB = 1024 * 1024
_NO_WATTS = 65535
_MEMORY_BUSY = ("gpu memory read/write activity (%)", "gpu memory use (%)")
_POWERS = ("average graphics package power (w)", "current socket graphics package power (w)")
_TEMPERATURES = ("temperature (sensor edge) (c)", "temperature (sensor junction) (c)")
_BYTES = re.compile(r"[0-9]{1,16}")


def read_json(output: str) -> Listing:
    """The cards in the output of `rocm-smi … --json`; lines of warnings around the JSON are skipped."""
    start, end = output.find("{"), output.rfind("}")
    if start < 0 or end < start:
        return Listing((), (f"its output is no JSON: {printable(output, 80)!r}",) if output.strip() else ())
    try:
        document = msgspec.json.decode(output[start : end + 1].encode("utf-8", "replace"))
    except msgspec.DecodeError as error:
        return Listing((), (f"its output is no JSON: {printable(str(error), 80)}",))
    if not isinstance(document, dict):
        return Listing((), ("its output is no list of cards",))
    readings = tuple(
        _reading(match.group(1), {str(key).strip().lower(): str(value).strip() for key, value in card.items()})
        for name, card in sorted(document.items(), key=lambda item: (len(item[0]), item[0]))
        if (match := _CARD.fullmatch(name)) and isinstance(card, dict)
    )
    return Listing(readings, () if readings else ("it names no card",))


def _reading(index: str, card: dict[str, str]) -> AcceleratorReading:
    unique = card.get("unique id", "")
    return AcceleratorReading(
        source="exec",
        uuid=unique if _RAW_ID.fullmatch(unique) else None,
        index=index,
        product=_name(card),
        utilization_pct=percent(card.get("gpu use (%)", "")),
        memory_bandwidth_pct=first(percent(card.get(key, "")) for key in _MEMORY_BUSY),
        memory_used_mib=_mib(card.get("vram total used memory (b)", "")),
        memory_total_mib=_mib(card.get("vram total memory (b)", "")),
        power_watts=first(watts(card.get(key, "")) for key in _POWERS),
        power_limit_watts=watts(card.get("max graphics package power (w)", "")),
        temperature_celsius=first(number(card.get(key, "")) for key in _TEMPERATURES),
        signal="GPU use (%)",
        confidence="medium",
    )


def _name(card: dict[str, str]) -> str | None:
    for key in ("card series", "card model", "device name"):
        value = card.get(key, "")
        if value and value != "N/A" and not _RAW_ID.fullmatch(value):
            return printable(value, 80)
    return None


def _mib(text: str) -> float | None:
    return int(text) / _MIB if _BYTES.fullmatch(text) else None


def watts(cell: str) -> float | None:
    """A cell's watts; 65535 is what the firmware writes where it has none."""
    value = amount(cell)
    return value if value is not None and value < _NO_WATTS else None
