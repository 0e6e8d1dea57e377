"""How is an object written so that the same plan gives the same bytes, and each limit carries its reason?"""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

MARKER = "# Written by piqc"
"""First words of every YAML file of ours; a folder with files that lack it is not ours to replace."""


class _Dumper(yaml.SafeDumper):
    """Block style with indented lists, as `kubectl` users write it."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def document(
    body: Mapping[str, Any], header: Sequence[str] = (), comments: Mapping[str, Sequence[str]] | None = None
) -> str:
    """One object as YAML text with comments.

    Args:
        body: The object; keys keep their order.
        header: Comment lines on top.
        comments: Comment lines by the key that they stand above (its first occurrence); list items are named by
            their own `name`.

    Returns:
        Text that ends with a newline; the first line is the marker.
    """
    lines = [f"{MARKER}: change the settings and write again, not this file."]
    lines += [f"# {_one_line(line)}" for line in header]
    waiting = dict(comments or {})
    text = yaml.dump(body, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=10_000, allow_unicode=False)
    for line in text.splitlines():
        bare = line.lstrip(" ")
        indent = line[: len(line) - len(bare)]
        for key in list(waiting):
            if bare.startswith((f"{key}:", f"- name: {key}")):
                lines += [f"{indent}# {_one_line(entry)}" for entry in waiting.pop(key)]
        lines.append(line)
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    """No text from a cluster may end its comment and become YAML."""
    return "".join(char if char.isprintable() else " " for char in text)[:400]
