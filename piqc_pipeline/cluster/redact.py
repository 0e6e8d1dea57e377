"""What of a cluster's text may be shown? No secret, no control character, no endless message."""

import re
from functools import lru_cache

SECRET_NAME = re.compile(
    r"(?i)(api[-_]?key|token(?!iz|s\b|s_|-mode)|secret|passw|pwd|credential|private[-_]?key|access[-_]?key|auth(?!or)|"
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
_FLAG_WITH_VALUE = re.compile(r"""(--?[\w.-]+)(=|\s+)("[^"]*"|'[^']*'|[^\s"']+)""")
_ASSIGNMENT = re.compile(r"""\b([A-Za-z_]\w*)=("[^"]*"|'[^']*'|[^\s"']+)""")
_JSON_PAIR = re.compile(r"""(["'])([\w.-]+)\1\s*:\s*(["'])(?:\\.|(?!\3).)*\3""")
_HEADER = re.compile(
    r"""(?i)\b([\w-]*(?:authorization|api-key|token)[\w-]*)\s*:\s*(?!["'{\[])[^\s"',}]+(?:\s+[^\s"',}]+)?"""
)
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
    """The text without values that look like secrets, or stand behind a name that does."""
    text = _SECRET_VALUE.sub(HIDDEN, text)
    text = _JSON_PAIR.sub(
        lambda pair: f'{pair[1]}{pair[2]}{pair[1]}: "{HIDDEN}"' if is_secret_name(pair[2]) else pair[0], text
    )
    text = _FLAG_WITH_VALUE.sub(lambda m: f"{m[1]}{m[2]}{HIDDEN}" if is_secret_name(m[1]) else m[0], text)
    text = _HEADER.sub(lambda m: f"{m[1]}: {HIDDEN}", text)
    return _ASSIGNMENT.sub(lambda m: f"{m[1]}={HIDDEN}" if is_secret_name(m[1]) else m[0], text)


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
