"""How is anyone's YAML read without harm? Bounded in size, depth and aliases; each fault is one sentence.

Whether the objects make sense is asked in `lint.py`.
"""

import itertools
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

LARGEST_FILE_BYTES = 10_000_000
DEEPEST = 60
MOST_EVENTS = 300_000
MOST_NODES = 500_000
"""After aliases are followed: nine lines of YAML can stand for a billion nodes."""
SUFFIXES = (".yaml", ".yml", ".json")
KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")

_FAST_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Unreadable(Exception):
    """A file or document cannot be read; the message is the user's sentence without the file's name."""

    def __init__(self, sentence: str, line: int = 1) -> None:
        """Keeps the sentence and the line it is about."""
        super().__init__(sentence)
        self.line = line


@dataclass(frozen=True)
class Document:
    """One object of a file.

    Attributes:
        file: Name of the file as given.
        body: The object.
        node: Its node, for line numbers.
    """

    file: str
    body: dict[str, Any]
    node: yaml.Node

    @property
    def kind(self) -> str:
        """Its kind; empty where that is no text."""
        kind = self.body.get("kind")
        return kind if isinstance(kind, str) else ""

    def line(self, path: str) -> int:
        """Line of a path such as `spec.triggers[0].metadata`, or of its nearest parent."""
        node = self.node
        for part in path.replace("[", ".[").split("."):
            found = _child(node, part)
            if found is None:
                break
            node = found
        return int(node.start_mark.line) + 1


def _child(node: yaml.Node, part: str) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if getattr(key, "value", None) == part), None)
    if isinstance(node, yaml.SequenceNode) and part.startswith("[") and part[1:-1].isdigit():
        index = int(part[1:-1])
        return node.value[index] if index < len(node.value) else None
    return None


class _Loader(yaml.SafeLoader):
    """YAML as the API server takes it: no dates, no duplicate keys, string keys only."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise Unreadable("a key is not a string", key.start_mark.line + 1)
            if key.value in seen and key.value != "<<":
                raise Unreadable(f"the key {_shown(key.value)} stands twice in one map", key.start_mark.line + 1)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def paths_of(names: Sequence[str]) -> Iterator[str]:
    """Files behind the names given; `-` stands for standard input.

    A folder stands for its YAML and JSON files, for itself where it has none.
    """
    for name in names:
        path = Path(name)
        if name != "-" and path.is_dir():
            found = [str(one) for one in sorted(path.rglob("*")) if one.suffix in SUFFIXES and one.is_file()]
            yield from found or [name]
        else:
            yield name


def applied_together(one: str, other: str) -> bool:
    """Whether one `kubectl apply -k` may apply both files.

    Not those of two kustomizations of which none lists the other, and that no one above them lists both of: overlays of
    two clusters, or the HPAs beside the ScaledObjects that they stand in for.
    """
    above = [_kustomizations(one), _kustomizations(other)]
    if not all(above):
        return True
    folders = {kustomizations[0].parent for kustomizations in above}
    return any(folders <= _reached(root) for root in itertools.chain(*above))


def _kustomizations(file: str) -> list[Path]:
    """Those in the file's folder and above it, the nearest first."""
    names = itertools.product(Path(file).resolve().parents, KUSTOMIZATIONS) if file != "-" else ()
    return [path for folder, name in names if (path := folder / name).is_file()]


def _reached(kustomization: Path) -> set[Path]:
    """Its folder, those that it lists, and those that they list."""
    reached, waiting = set[Path](), [kustomization]
    while waiting:
        path = waiting.pop()
        if path.parent not in reached:
            reached.add(path.parent)
            places = itertools.product(_listed(path), KUSTOMIZATIONS)
            waiting += [place for folder, name in places if (place := folder / name).is_file()]
    return reached


def _listed(kustomization: Path) -> set[Path]:
    try:
        bodies = [document.body for document in documents(read(str(kustomization)), str(kustomization))]
    except Unreadable:
        return set()
    lists = [body.get(key) for body in bodies for key in ("resources", "bases", "components")]
    names = [name for some in lists if isinstance(some, list) for name in some if isinstance(name, str)]
    # Not `Path.resolve`, which fails at a link that points to itself.
    return {Path(os.path.realpath(kustomization.parent / name)) for name in names if "\0" not in name}


def read(name: str) -> bytes:
    """A file's bytes.

    Raises:
        Unreadable: It is missing, no regular file, or too large.
    """
    path = Path(name)
    try:
        if not path.is_file():
            raise Unreadable("no such file" if not path.exists() else "it is no regular file")
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise Unreadable(f"it is larger than {LARGEST_FILE_BYTES // 1_000_000} MB")
        return path.read_bytes()
    except OSError as error:
        raise Unreadable(f"it cannot be opened: {error.strerror or error}") from error
    except ValueError as error:
        raise Unreadable("its name holds a NUL character") from error


def documents(content: bytes, file: str) -> list[Document]:
    """The objects of a file; `kind: List` stands for its items.

    Raises:
        Unreadable: It is no YAML, too deep, too large, or holds something that is no object.
    """
    try:
        return _documents(content, file)
    except Unreadable as error:
        if b"{{" not in content:
            raise
        raise Unreadable(f"{error}; it holds a template: render it first (helm template)", error.line) from error


def _documents(content: bytes, file: str) -> list[Document]:
    if len(content) > LARGEST_FILE_BYTES:
        raise Unreadable(f"it is larger than {LARGEST_FILE_BYTES // 1_000_000} MB")
    try:
        _measure(content)
        found: list[Document] = []
        loader = _Loader(content)
        try:
            while loader.check_node():
                node = loader.get_node()
                if node is None:
                    continue
                _expanded(node)
                found += _objects(loader.construct_document(node), node, file)
        finally:
            loader.dispose()
        return found
    except yaml.YAMLError as error:
        raise Unreadable(*_yaml_sentence(error)) from error
    except RecursionError as error:
        raise Unreadable(f"it is nested deeper than {DEEPEST} levels") from error
    except (ValueError, OverflowError, TypeError) as error:
        raise Unreadable(f"a value cannot be read: {_shown(str(error))}") from error


def _measure(content: bytes) -> None:
    """Depth and number of events, before anything is built."""
    depth = 0
    for count, event in enumerate(yaml.parse(content, Loader=_FAST_LOADER)):
        if count > MOST_EVENTS:
            raise Unreadable(f"it holds more than {MOST_EVENTS} values", _line(event))
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                raise Unreadable(f"it is nested deeper than {DEEPEST} levels", _line(event))
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _line(event: yaml.Event) -> int:
    return int(event.start_mark.line) + 1 if event.start_mark is not None else 1


def _expanded(node: yaml.Node) -> None:
    """Refuses documents whose aliases stand for too many nodes, or for themselves."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def size(current: yaml.Node) -> int:
        key = id(current)
        if key in sizes:
            return sizes[key]
        if key in open_nodes:
            raise Unreadable("an alias stands for a part of itself", current.start_mark.line + 1)
        open_nodes.add(key)
        total = 1
        if isinstance(current, yaml.SequenceNode):
            total += sum(size(child) for child in current.value)
        elif isinstance(current, yaml.MappingNode):
            total += sum(size(name) + size(value) for name, value in current.value)
        open_nodes.discard(key)
        if total > MOST_NODES:
            raise Unreadable(f"its aliases stand for more than {MOST_NODES} values", current.start_mark.line + 1)
        sizes[key] = total
        return total

    size(node)


def _objects(body: Any, node: yaml.Node, file: str) -> list[Document]:
    line = node.start_mark.line + 1
    if body is None:
        return []
    if not isinstance(body, dict):
        raise Unreadable(f"a document is no object but {_kind(body)}", line)
    _plain(body, line)
    items = body.get("items")
    if isinstance(body.get("kind"), str) and body["kind"].endswith("List") and isinstance(items, list):
        nodes = _child(node, "items")
        inner = nodes.value if isinstance(nodes, yaml.SequenceNode) else [node] * len(items)
        return [entry for item, at in zip(items, inner, strict=False) for entry in _objects(item, at, file)]
    return [Document(file, body, node)]


def _plain(value: Any, line: int) -> None:
    """Only what JSON can say."""
    if isinstance(value, dict):
        for key, child in value.items():
            if not isinstance(key, str):
                raise Unreadable(f"the key {_shown(key)} is no string; quote it", line)
            _plain(child, line)
    elif isinstance(value, list):
        for child in value:
            _plain(child, line)
    elif isinstance(value, float) and not math.isfinite(value):
        raise Unreadable("a number is not finite", line)
    elif not isinstance(value, str | int | float | bool | None):
        raise Unreadable(f"a value is {_kind(value)}, which JSON has no word for", line)


def _kind(value: object) -> str:
    names = {str: "text", int: "a number", float: "a number", bool: "a boolean", list: "a list", bytes: "binary"}
    return names.get(type(value), f"a {type(value).__name__}")


def _yaml_sentence(error: yaml.YAMLError) -> tuple[str, int]:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None)
    if problem and "nesting" in problem:
        return f"it is nested deeper than {DEEPEST} levels", mark.line + 1 if mark else 1
    problem = problem or getattr(error, "reason", None) or "it cannot be decoded"
    return f"it is no YAML: {_shown(str(problem), 120)}", (mark.line + 1 if mark else 1)


def _shown(value: object, length: int = 60) -> str:
    text = "".join(char if char.isprintable() else "?" for char in str(value)[: length * 4])
    return text if len(text) <= length else text[: length - 3] + "..."
