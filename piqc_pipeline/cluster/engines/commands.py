"""What does a container really run? Command and arguments after Kubernetes' and the shell's expansion, as flags.

Nothing is executed. A variable whose value is not in the pod's spec stays unexpanded, and is no value.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from piqc_pipeline.cluster.objects import Container

_KUBERNETES_VARIABLE = re.compile(r"\$\$|\$\(([A-Za-z_.-][\w.-]*)\)")
_SHELL_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::?[-=]([^}]*))?\}|\$([A-Za-z_]\w*)")
_SHELLS = frozenset({"sh", "bash", "ash", "dash", "zsh", "ksh", "busybox"})
_WRAPPERS = frozenset(
    {
        "exec",
        "env",
        "nohup",
        "time",
        "tini",
        "dumb-init",
        "numactl",
        "nice",
        "sudo",
        "command",
        "--",
        "catatonit",
        "stdbuf",
    }
)
_SEPARATORS = frozenset({"&&", "||", ";", "|", "&", "\n", "(", ")", "{", "}", "then", "do", "else"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")
_NEGATIVE = re.compile(r"-[0-9][0-9.]*")
MAX_SCRIPT = 65_536


@dataclass(frozen=True)
class Invocation:
    """One simple command.

    Attributes:
        words: Every word, wrappers and assignments left away.
        flags: Values by flag name without dashes, `_` written as `-`; an empty string where a flag has no value.
        positionals: Words that are neither flags nor values of flags, the program first.
        environment: Assignments before the command.
    """

    words: tuple[str, ...]
    flags: dict[str, str] = field(default_factory=dict)
    positionals: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def program(self) -> str:
        """File name of the program; of the module behind `python -m`."""
        return program_of(self.words)

    def flag(self, *names: str) -> str | None:
        """The value of the first of these flags that has one that is fully known."""
        return next((value for name in names if known(value := self.flags.get(name))), None)

    def has(self, *names: str) -> bool:
        """Whether one of these flags is there, with or without a value."""
        return any(name in self.flags for name in names)


def known(value: str | None) -> bool:
    """Whether a value is there and holds no variable that could not be expanded."""
    return bool(value) and "$" not in str(value)


def environment_of(container: Container, config: Mapping[tuple[str, str], str] | None = None) -> dict[str, str]:
    """Variables whose value is in the spec, or in a ConfigMap that was read; those from Secrets are never known.

    Args:
        container: The container.
        config: Values of ConfigMaps by name and key.
    """
    found: dict[str, str] = {}
    for variable in container.env or []:
        if variable.value is not None:
            found[variable.name] = _KUBERNETES_VARIABLE.sub(
                lambda m: "$" if m[0] == "$$" else found.get(m[1], m[0]), variable.value
            )
        elif variable.value_from and (key := variable.value_from.config_map_key_ref) and config:
            value = config.get((key.name, key.key))
            if value is not None:
                found[variable.name] = value
    return found


def invocations(container: Container, environment: Mapping[str, str]) -> list[Invocation]:
    """Every simple command that the container's command and arguments run, shell scripts taken apart."""
    words = [
        _KUBERNETES_VARIABLE.sub(lambda m: "$" if m[0] == "$$" else environment.get(m[1], m[0]), word)
        for word in (*(container.command or []), *(container.args or []))
    ]
    return [invocation for simple in _simple_commands(words, dict(environment)) if (invocation := _read(simple))]


def _simple_commands(words: Sequence[str], environment: dict[str, str], depth: int = 0) -> list[list[str]]:
    words = list(words)
    if not words or depth > 3:
        return [words] if words else []
    script_at = _script_position(words)
    if script_at is not None:
        environment = {**environment, **{str(i): word for i, word in enumerate(words[script_at + 1 :])}}
        return _script(words[script_at], environment, depth)
    if len(words) == 1 and any(c.isspace() for c in words[0].strip()):
        return _script(words[0], environment, depth)
    flat: list[str] = []
    for word in words:
        if "\n" in word.strip() or (word.startswith("-") and re.match(r"--[\w-]+\s+\S", word)):
            flat += _split(word)
        else:
            flat.append(word)
    return [flat]


def _script_position(words: Sequence[str]) -> int | None:
    """Where the script of `sh -c SCRIPT` stands."""
    for at, word in enumerate(words[:6]):
        if file_name(word) in _SHELLS:
            for later in range(at + 1, min(at + 5, len(words))):
                if re.fullmatch(r"-[a-z]*c", words[later]) and later + 1 < len(words):
                    return later + 1
            return None
        if file_name(word) not in _WRAPPERS and not word.startswith("-"):
            return None
    return None


def _script(text: str, environment: dict[str, str], depth: int) -> list[list[str]]:
    commands: list[list[str]] = []
    current: list[str] = []
    for word in [*_split(text[:MAX_SCRIPT]), ";"]:
        if word in _SEPARATORS:
            if current:
                commands.append(current)
            current = []
        else:
            current.append(word)
    found: list[list[str]] = []
    for command in commands:
        expanded = [_expand(word, environment) for word in command]
        while expanded and _ASSIGNMENT.match(expanded[0]):
            name, _, value = expanded[0].partition("=")
            if len(expanded) == 1 or command[0] == "export":
                environment[name] = value
            expanded = expanded[1:]
        if expanded and expanded[0] in ("export", "declare", "set") and len(expanded) > 1:
            for pair in expanded[1:]:
                if _ASSIGNMENT.match(pair):
                    environment[pair.partition("=")[0]] = pair.partition("=")[2]
            continue
        if expanded:
            found += _simple_commands(expanded, environment, depth + 1) if _script_position(expanded) else [expanded]
    return found


def _split(text: str) -> list[str]:
    """Words of a shell text; line ends are separators, continued lines are not."""
    text = re.sub(r"\\\r?\n", " ", text)
    lexer = shlex.shlex(re.sub(r"\r?\n", " ; ", text), posix=True, punctuation_chars=";|&")
    lexer.whitespace_split = True
    lexer.commenters = "" if "://" in text else "#"
    try:
        return list(lexer)
    except ValueError:
        return text.replace('"', " ").replace("'", " ").split()


def _expand(word: str, environment: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        found = environment.get(name)
        if found:
            return found
        return match[2] if match[2] is not None else match[0]

    return _SHELL_VARIABLE.sub(value, word)


def _read(words: Sequence[str]) -> Invocation | None:
    words = list(words)
    environment: dict[str, str] = {}
    while words and (_ASSIGNMENT.match(words[0]) or file_name(words[0]) in _WRAPPERS or words[0] == "-g"):
        if _ASSIGNMENT.match(words[0]):
            name, _, value = words[0].partition("=")
            environment[name] = value
        words = words[1:]
    if not words:
        return None
    flags: dict[str, str] = {}
    positionals: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        name, equals, value = word.partition("=")
        if _FLAG.fullmatch(name) is None:
            positionals.append(word)
        elif equals:
            flags[_flag_name(name)] = value
        elif at + 1 < len(words) and (not words[at + 1].startswith("-") or _NEGATIVE.fullmatch(words[at + 1])):
            flags[_flag_name(name)] = words[at + 1]
            at += 1
        else:
            flags[_flag_name(name)] = ""
        at += 1
    return Invocation(tuple(words), flags, tuple(positionals), environment)


def _flag_name(text: str) -> str:
    return text.lstrip("-").replace("_", "-").lower()


def file_name(path: str) -> str:
    """The last part of a path."""
    return path.rstrip("/").rpartition("/")[2]


def program_of(words: Sequence[str]) -> str:
    """File name of the program that these words run; `python -m MODULE` and `python FILE` give the module or file."""
    if not words:
        return ""
    name = file_name(words[0])
    if re.fullmatch(r"python[0-9.]*", name) or name in ("torchrun", "accelerate", "uv", "poetry", "conda"):
        rest = list(words[1:])
        while rest:
            if rest[0] == "-m" and len(rest) > 1:
                return rest[1]
            if not rest[0].startswith("-") and rest[0] not in ("run", "launch"):
                return file_name(rest[0])
            rest = rest[1:]
    return name
