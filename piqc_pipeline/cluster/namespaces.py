"""Do the namespaces that were asked for exist? Only a list that was read can miss a name; unread, it stays unknown.

A namespace in which an object was seen exists, whatever the list says.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from piqc_pipeline.cluster.kubernetes import ApiServer, ReadFailed
from piqc_pipeline.cluster.listings import METADATA_ONLY
from piqc_pipeline.cluster.surroundings import BareObject
from piqc_pipeline.errors import NamespacesMissing
from piqc_pipeline.facts.snapshot import Unknown

SHOWN = 10
"""Names of a cluster's namespaces that a message lists where none is near the one that was asked for."""


@dataclass(frozen=True)
class Names:
    """The namespaces of a cluster.

    Attributes:
        known: All of them; None where they could not be listed.
        why: Why they could not.
    """

    known: frozenset[str] | None
    why: str = "they were not listed"


def read_names(server: ApiServer) -> Names:
    """The names of all namespaces, or why they cannot be listed."""
    try:
        found = server.every("/api/v1/namespaces", BareObject, METADATA_ONLY)
    except ReadFailed as failure:
        advice = "; grant `list namespaces`" if failure.status == 403 else ""
        return Names(None, f"cannot list namespaces: {failure.why}{advice}")
    return Names(frozenset(item.metadata.name for item in found))


def check(wanted: Iterable[str], names: Names, seen: frozenset[str], where: str) -> list[Unknown]:
    """What is said of the namespaces that were asked for: of one that is missing beside others, of one that may be.

    Args:
        wanted: Those asked for; none means all, and nothing is said.
        names: Those that exist.
        seen: Those of the objects that were read.
        where: Begins the sentence: "the cluster c has".

    Raises:
        NamespacesMissing: None of them exists.
    """
    asked = list(dict.fromkeys(wanted))
    unseen = [name for name in asked if name not in seen]
    if not names.known:
        why = names.why if names.known is None else "the list is empty"
        return [_unknown(f"whether there is a namespace {name}", why) for name in unseen]
    known = names.known | seen
    absent = [name for name in unseen if name not in known]
    if absent and len(absent) == len(asked):
        raise NamespacesMissing(f"{where} no namespace {' and no '.join(absent)}; {_instead(absent, known)}")
    return [
        _unknown(f"workloads of namespace {name}", f"{where} no such namespace; {_instead([name], known)}")
        for name in absent
    ]


def _unknown(what: str, why: str) -> Unknown:
    return Unknown(what, why, read_failed=True, about="other objects")


def _instead(absent: list[str], known: frozenset[str]) -> str:
    near = dict.fromkeys(name for one in absent for name in get_close_matches(one, sorted(known)))
    if near:
        return f"did you mean {' or '.join(near)}?"
    more = f", and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
    return f"there are {', '.join(sorted(known)[:SHOWN])}{more}"
