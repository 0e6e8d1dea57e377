"""Which faults of a PromQL query can be seen without asking Prometheus?"""

import re

from piqc_pipeline.scaling.lint_values import Report

_PAIRS = {")": "(", "]": "[", "}": "{"}
LONGEST_QUERY = 20_000
"""Characters; nobody reads a longer one, and patterns would take long."""
_AGGREGATION = re.compile(
    r"\b(?:sum|avg|min|max|count|group|stddev|stdvar|quantile|count_values)\s*(?:(by|without)\s*\(([^)]*)\)\s*)?\("
)
_GROUPS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*$")
_GROUPING = re.compile(r"\s*(by|without)\s*\(([^)]*)\)")
_ONE_ELEMENT = re.compile(r"\b(?:scalar|vector|absent|absent_over_time)\s*\(|\b(?:topk|bottomk)\s*\(\s*1\s*,")
_RATE_OF_GAUGE = re.compile(
    r"\b(?:i?rate|increase)\s*\((?:\s*(?:avg|sum|max|min)\s*(?:by\s*\([^()]*\)\s*)?\()*\s*("
    r"DCGM_FI_(?:DEV_(?:GPU|MEM_COPY|ENC|DEC)_UTIL|PROF_\w+_ACTIVE|PROF_SM_OCCUPANCY|PROF_PCIE_[TR]X_BYTES"
    r"|DEV_(?:FB_\w+|POWER_USAGE|GPU_TEMP|MEMORY_TEMP|SM_CLOCK|MEM_CLOCK))"
    r"|vllm:(?:num_requests_\w+|[gk][pv]u?_cache_usage_perc)|predicted_(?:gpu_)?util)\b"
)
"""Gauges of exporters and engines under a function for counters (default-counters.csv; vLLM's metrics page)."""
_OF_PODS = re.compile(r"\b(vllm:\w+|sglang:\w+|tgi_\w+|nv_\w+|lmdeploy:\w+|DCGM_FI_\w+|trtllm_\w+)")
"""Metrics that pods of the workload, or devices that they hold, export themselves: without a pod there is none."""


def of_own_pods(query: str) -> bool:
    """Whether every metric of the query vanishes with the workload's last pod."""
    bare = _without_strings(query[:LONGEST_QUERY])
    return bool(_OF_PODS.search(bare)) and not re.search(r"\b(vector|absent)\s*\(", bare)


def check_trigger_query(query: str, path: str, report: Report) -> None:
    """Notes what is wrong with a query as a trigger: several series, none at zero traffic, everybody's load."""
    bare = _without_strings(query[:LONGEST_QUERY])
    if _many_elements(bare):
        report.add("promql-many-series", path, "the query groups by labels: more than one element is an error")
    found = _OF_PODS.search(bare)
    if found and not re.search(r"\{[^}]*[a-z]", bare):
        report.add("promql-no-selector", path, f"{found[1]} is read of all workloads: no label is selected")
    divided = re.search(r"/\s*(?:\(\s*)*(?:\w+\s*(?:by\s*\([^)]*\)\s*)?\(\s*)*(?:rate|irate|increase)\s*\(", bare)
    if divided and not re.search(r"clamp_min|>\s*0|\bor\b", bare[divided.start() :]):
        report.add("promql-nan-at-zero", path, "the query divides by a rate, which is 0 without traffic: NaN")


def _without_strings(query: str) -> str:
    return re.sub(r"\"[^\"]*\"|'[^']*'", '""', re.sub(r"#[^\n]*", "", query))


def _many_elements(bare: str) -> bool:
    """Whether the query groups by labels that it does not select, and nothing aggregates all of it."""
    if _ONE_ELEMENT.search(bare):
        return False
    pinned = set(re.findall(r"\b(\w+)\s*=\s*\"", bare))
    several = False
    for call in _AGGREGATION.finditer(bare):
        grouping = (call[1], call[2])
        if call[1] is None:
            after = _GROUPING.match(bare, _closing(bare, call.end() - 1) + 1)
            if after is None:
                return False
            grouping = (after[1], after[2])
        labels = {label.strip() for label in (grouping[1] or "").split(",") if label.strip()}
        if "histogram_quantile" in bare:
            labels.discard("le")  # the quantile uses it up
        if grouping[0] == "by" and labels <= pinned:
            return False
        several = True
    return several


def _closing(text: str, opening: int) -> int:
    """Place of the bracket that closes the one at `opening`; the text's end where there is none."""
    depth = 0
    for place in range(opening, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place
    return len(text)


def check_query(query: str, path: str, report: Report) -> None:
    """Notes brackets that do not match, rates of gauges, exporters' labels and duty cycles."""
    if len(query) > LONGEST_QUERY:
        report.add("promql-too-long", path, f"the query has {len(query)} characters")
        return
    if not _balanced(query):
        report.add("promql-brackets", path, f"the query does not parse: {query[:120]}")
    bare = re.sub(r"#[^\n]*", "", query)
    gauge = _RATE_OF_GAUGE.search(bare)
    if gauge:
        report.add("promql-rate-of-gauge", path, f"{gauge[1]} is a gauge")
    if "predict_linear" in bare and "clamp" not in bare:
        report.add("promql-predict-linear", path, "predict_linear without clamp")
    exporter = re.search(r"(DCGM_FI_\w+)\{[^}]*\b(?<!exported_)(namespace|pod)\s*[=!]", bare)
    if exporter and "exported_" not in bare:
        report.add("promql-exporter-labels", path, f"{exporter[1]} is selected by {exporter[2]}")
    if "DCGM_FI_DEV_GPU_UTIL" in bare and re.search(r"\bGPU_I_(PROFILE|ID)\b", bare):
        report.add("mig-gpu-util", path, "DCGM_FI_DEV_GPU_UTIL of a MIG instance")
    elif "DCGM_FI_DEV_GPU_UTIL" in bare:
        report.add("gpu-util-signal", path, "DCGM_FI_DEV_GPU_UTIL is a duty cycle")


def _balanced(query: str) -> bool:
    """Brackets in pairs, strings closed, no comma before a closing bracket (but of a list of labels)."""
    stack: list[tuple[str, bool]] = []  # the bracket, and whether it opens a list of labels
    quote = last = ""
    index = 0
    while index < len(query):
        char = query[index]
        if quote:
            if char == "\\" and quote != "`":
                index += 1
            elif char == quote:
                quote = ""
        elif char in "\"'`":
            quote = last = char
        elif char == "#":
            end = query.find("\n", index)
            index = len(query) if end < 0 else end
        elif char in "([{":
            stack.append((char, _GROUPS.search(query[max(0, index - 20) : index]) is not None))
            last = char
        elif char in _PAIRS:
            opening, labels = stack.pop() if stack else ("", False)
            if opening != _PAIRS[char] or (last == "," and char == ")" and not labels):
                return False
            last = char
        elif not char.isspace():
            last = char
        index += 1
    return not stack and not quote and last != ","
