"""How are lint's findings shown? Plain lines, JSON, or SARIF 2.1.0 for code scanning."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from piqc_pipeline.scaling.lint import Finding
from piqc_pipeline.scaling.lint_rules import RULES

SARIF_LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def counts(findings: Sequence[Finding]) -> dict[str, int]:
    """Findings by severity."""
    return {level: sum(entry.severity == level for entry in findings) for level in ("error", "warning", "info")}


def as_json(findings: Sequence[Finding]) -> str:
    """`piqc-lint.v1`: each finding with its rule's explanation and fix."""
    body = {
        "schemaVersion": "piqc-lint.v1",
        "summary": counts(findings),
        "findings": [
            {
                **asdict(entry),
                "explanation": RULES[entry.rule].why,
                "fix": RULES[entry.rule].fix,
                "source": RULES[entry.rule].source or None,
            }
            for entry in findings
        ],
    }
    return json.dumps(body, indent=2, ensure_ascii=True)


def as_sarif(findings: Sequence[Finding], version: str) -> str:
    """One SARIF run; rules that were hit are described in the driver."""
    used = sorted({entry.rule for entry in findings})
    rules = [
        {
            "id": name,
            "shortDescription": {"text": RULES[name].why},
            "help": {"text": RULES[name].fix},
            "defaultConfiguration": {"level": SARIF_LEVELS[RULES[name].severity]},
        }
        for name in used
    ]
    results = [
        {
            "ruleId": entry.rule,
            "ruleIndex": used.index(entry.rule),
            "level": SARIF_LEVELS[entry.severity],
            "message": {"text": f"{entry.object}: {entry.message}. {RULES[entry.rule].fix}".lstrip(": ")},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": entry.file.replace("\\", "/")},
                        "region": {"startLine": max(1, entry.line)},
                    }
                }
            ],
        }
        for entry in findings
    ]
    driver = {"name": "piqc lint", "version": version, "rules": rules}
    body = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(body, indent=2, ensure_ascii=True)


def as_text(findings: Sequence[Finding]) -> str:
    """One block a finding; nothing of the files is interpreted."""
    lines = []
    for entry in findings:
        rule = RULES[entry.rule]
        name = "".join(char if char.isprintable() else "?" for char in entry.file)
        subject = f" {entry.object}" if entry.object else ""
        lines.append(f"{name}:{entry.line}: {entry.severity} {entry.rule}{subject}: {entry.message}")
        lines.append(f"    why: {rule.why}" + (f" ({rule.source})" if rule.source else ""))
        lines.append(f"    fix: {rule.fix}")
    total = counts(findings)
    lines.append(f"errors: {total['error']}, warnings: {total['warning']}, notes: {total['info']}")
    return "\n".join(lines)
