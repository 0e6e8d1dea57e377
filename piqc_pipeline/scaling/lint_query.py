"""Which faults of a PromQL query can be seen without asking Prometheus?"""

import re

from piqc_pipeline.scaling.lint_values import Report

_PAIRS = {")": "(", "]": "[", "}": "{"}


def check_query(query: str, path: str, report: Report) -> None:
    """Notes brackets that do not match, rates of gauges, exporters' labels and duty cycles."""
    if not _balanced(query):
        report.add("promql-brackets", path, f"the query does not parse: {query[:120]}")
    bare = re.sub(r"#[^\n]*", "", query)
    gauge = re.search(
        r"\b(?:i?rate|increase)\s*\(\s*(DCGM_FI_(?:DEV_GPU_UTIL|DEV_MEM_COPY_UTIL|PROF_\w+_ACTIVE))", bare
    )
    if gauge:
        report.add("promql-rate-of-gauge", path, f"{gauge[1]} is a gauge")
    if "predict_linear" in bare and "clamp" not in bare:
        report.add("promql-predict-linear", path, "predict_linear without clamp")
    exporter = re.search(r"(DCGM_FI_\w+)\{[^}]*\b(?<!exported_)(namespace|pod)\s*[=!]", bare)
    if exporter and "exported_" not in bare:
        report.add("promql-exporter-labels", path, f"{exporter[1]} is selected by {exporter[2]}")
    if "DCGM_FI_DEV_GPU_UTIL" in bare:
        report.add("gpu-util-signal", path, "DCGM_FI_DEV_GPU_UTIL is a duty cycle")


def _balanced(query: str) -> bool:
    """Brackets in pairs, strings closed, no comma before a closing bracket."""
    stack: list[str] = []
    quote = ""
    last = ""
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
            stack.append(char)
            last = char
        elif char in _PAIRS:
            if not stack or stack.pop() != _PAIRS[char] or (last == "," and char == ")"):
                return False
            last = char
        elif not char.isspace():
            last = char
        index += 1
    return not stack and not quote and last != ","
