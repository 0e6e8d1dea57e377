"""What of a cluster's text may be shown? No secret, no control character, no endless message."""

import re
from collections.abc import Mapping
from functools import lru_cache

SECRET_NAME = re.compile(
    r"(?i)(api[-_]?key|token(?!iz|s\b|s_|-mode)|secret|passw|pwd|credential|private[-_]?key|access[-_]?key|auth(?!or(?!i[sz]))|"
    r"bearer|cookie|session[-_]?id|signature|conn(ection)?[-_]?str|dsn$|webhook)"
)
_SECRET_VALUE = re.compile(
    r"""
    \b(?:hf_|sk-|sk_live_|sk_test_|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abprs]-|nvapi-|r8_|gsk_|AKIA|ASIA|AIza|ya29\.)
        [\w.\-]{4,}
    | \beyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?
    | -----BEGIN[ A-Z]*PRIVATE[ ]KEY-----.*
    | (?<=://)[^\s/@:]+:[^\s/@]+(?=@)
    | (?i:\bbearer[ ]+)[\w.~+/=-]{6,}
    | [?&](?:X-Amz-Signature|sig|token|api_key|access_token|key)=[^&\s"']+
    """,
    re.DOTALL | re.VERBOSE,
)
"""Tokens by their issuers' prefixes, JSON web tokens, private keys, credentials in URLs and headers."""
_FLAG = re.compile(r"(?<![\w.-])(--?[A-Za-z][\w.-]*)(=|\s+)")
_FLAG_VALUE = re.compile(r""""[^"]*"|'[^']*'|[^\s"']+""")
_ASSIGNMENT = re.compile(r"""\b([A-Za-z_]\w*)=("[^"]*"|'[^']*'|[^\s"']+)""")
_JSON_PAIR = re.compile(
    r"""(\\*["'])([\w.-]+)\1\s*:\s*(?:(\\*["'])(?:(?!\3)(?:\\.|.))*\3|[^\s,}\]"'\\{\[][^\s,}\]"']*)""", re.DOTALL
)
"""A key and its text or number, also where a shell's string holds the document with its quotes escaped."""
_LINE = re.compile(r"""(?<![\w\\-])([A-Za-z_][\w-]*)[ \t]*:[ \t]*("[^"\n]*"|'[^'\n]*'|(?![/"'{\[|>])[^\n"',}]+)""")
"""A header, or a line of YAML."""
_CLIENT = re.compile(r"""\b((?:redis-cli|sshpass|mysql\w*|mongo\w*|ldap\w+)\b[^;&|\n]*?\s-[apw]\s?)([^\s;&|"']+)""")
_LOGIN = re.compile(r"""(?<!\S)(-u|--user|--proxy-user)(=|\s+)(["']?)[^\s"':]+:[^\s"']+\3""")
"""Passwords that well-known programs take by short flags."""
HIDDEN = "[redacted]"

TOKEN_FLAGS = frozenset(
    {"tokenizer", "tokenizer-mode", "tokenizer-path", "max-num-batched-tokens", "max-total-tokens", "max-batch-tokens"}
)


def is_secret_name(name: str) -> bool:
    """Whether a flag, variable or key of this name may hold a secret."""
    plain = name.lstrip("-").replace("_", "-").lower()
    if plain in TOKEN_FLAGS or "tokeniz" in plain or plain.endswith("-tokens") or "tokens-" in plain:
        return False
    return SECRET_NAME.search(plain) is not None


@lru_cache(maxsize=8192)
def hide_secrets(text: str) -> str:
    """The text without values that stand behind the name of a secret, or look like one.

    Names come first: `hf_token` itself looks like a token of Hugging Face, and hidden it would not give its value away.
    """
    text = _JSON_PAIR.sub(
        lambda pair: f"{pair[1]}{pair[2]}{pair[1]}: {pair[1]}{HIDDEN}{pair[1]}" if is_secret_name(pair[2]) else pair[0],
        text,
    )
    text = _LINE.sub(lambda m: f"{m[1]}: {HIDDEN}" if is_secret_name(m[1]) else m[0], text)
    text = _ASSIGNMENT.sub(lambda m: f"{m[1]}={HIDDEN}" if is_secret_name(m[1]) else m[0], _without_flags(text))
    text = _LOGIN.sub(rf"\1\2{HIDDEN}", _CLIENT.sub(rf"\1{HIDDEN}", text))
    return _SECRET_VALUE.sub(HIDDEN, text)


def _without_flags(text: str) -> str:
    """The text without what stands behind flags of secret names. A switch takes no value: the next flag counts too."""
    parts = []
    done = 0
    for flag in _FLAG.finditer(text):
        value = _FLAG_VALUE.match(text, flag.end())
        switch = flag[2] != "=" and text.startswith("--", flag.end())
        if flag.start() >= done and value is not None and not switch and is_secret_name(flag[1]):
            parts += [text[done : flag.end()], HIDDEN]
            done = value.end()
    return "".join([*parts, text[done:]])


def safe_labels(labels: Mapping[str, str] | None) -> dict[str, str]:
    """Labels fit to be shown: values of secret names, and values that look like secrets, are hidden."""
    return {
        key: HIDDEN if is_secret_name(key.rpartition("/")[2]) else hide_secrets(value)
        for key, value in (labels or {}).items()
    }


def safe_arguments(arguments: list[str] | None) -> list[str]:
    """Arguments fit to be shown: values behind secret names, and values that look like secrets, are hidden."""
    shown = []
    hide_next = False
    for argument in arguments or []:
        if hide_next and not argument.startswith("--"):
            shown.append(HIDDEN)
            hide_next = False
            continue
        name, equals, _ = argument.partition("=")
        if argument.startswith("-") and is_secret_name(name) and not any(c.isspace() for c in name):
            shown.append(f"{name}={HIDDEN}" if equals else argument)
            hide_next = not equals
            continue
        hide_next = False
        shown.append(hide_secrets(argument))
    return shown


def printable(text: str, limit: int = 200) -> str:
    """One line without control characters (terminal escapes among them) and secrets, cut at `limit` characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * limit]).split())
    line = hide_secrets(line)
    return line if len(line) <= limit else line[: limit - 1] + "…"
