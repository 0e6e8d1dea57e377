"""Which pods does `--selector` mean? Label selectors in kubectl's syntax."""

import re

from piqc_pipeline.cluster.objects import LabelExpression, LabelSelector
from piqc_pipeline.errors import UsageError

_KEY = r"[A-Za-z0-9]([\w./-]*[A-Za-z0-9])?"
_EQUALITY = re.compile(rf"(?P<key>{_KEY})\s*(?P<sign>==|=|!=)\s*(?P<value>[\w.-]*)")
_SET = re.compile(rf"(?P<key>{_KEY})\s+(?P<word>in|notin)\s*\((?P<values>[^()]*)\)")
_EXISTS = re.compile(rf"(?P<not>!\s*)?(?P<key>{_KEY})")
_TERMS = re.compile(r",(?![^()]*\))")


def parse_selector(text: str | None) -> LabelSelector | None:
    """The selector that `text` writes; None for none.

    Raises:
        UsageError: It is no selector.
    """
    if not text or not text.strip():
        return None
    rows = []
    for part in _TERMS.split(text):
        term = part.strip()
        if match := _EQUALITY.fullmatch(term):
            operator = "NotIn" if match["sign"] == "!=" else "In"
            rows.append(LabelExpression(match["key"], operator, [match["value"]]))
        elif match := _SET.fullmatch(term):
            values = [value.strip() for value in match["values"].split(",")]
            rows.append(LabelExpression(match["key"], "In" if match["word"] == "in" else "NotIn", values))
        elif match := _EXISTS.fullmatch(term):
            rows.append(LabelExpression(match["key"], "DoesNotExist" if match["not"] else "Exists"))
        else:
            raise UsageError(
                f"cannot read the selector {text!r} at {term!r}; write it as kubectl does: app=a,tier in (b,c)"
            )
    return LabelSelector(match_expressions=rows)
