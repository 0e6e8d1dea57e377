"""Which cluster do the end-to-end tests run on? Only the one that PIQC_E2E_KUBECONFIG names; without it, none."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from piqc_pipeline_tests.e2e.kube import Kube


@dataclass(frozen=True)
class Images:
    """Images that the cluster's nodes hold."""

    predictor: str = os.environ.get("PIQC_E2E_IMAGE_PREDICTOR", "localhost/predictor:dev")
    piqc: str = os.environ.get("PIQC_E2E_IMAGE_PIQC", "localhost/piqc:dev")
    prometheus: str = os.environ.get("PIQC_E2E_IMAGE_PROMETHEUS", "localhost/prometheus:v3")
    pause: str = os.environ.get("PIQC_E2E_IMAGE_PAUSE", "localhost/pause:1")


@pytest.fixture(scope="session")
def kube() -> Kube:
    named = os.environ.get("PIQC_E2E_KUBECONFIG")
    if not named:
        pytest.skip("no throwaway cluster: set PIQC_E2E_KUBECONFIG to its kubeconfig (docs/e2e.md shows one on kind)")
    path = Path(named)
    assert path.is_file(), f"PIQC_E2E_KUBECONFIG names {named}, which is no file"
    return Kube(path)


@pytest.fixture(scope="session")
def images() -> Images:
    return Images()


@pytest.fixture(scope="module")
def namespace(kube: Kube, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the module's own, under the restricted level."""
    name = "e2e-" + request.module.__name__.rsplit("_", 1)[-1]
    kube.new_namespace(name, **{"pod-security.kubernetes.io/enforce": "restricted"})
    yield name
    if not os.environ.get("PIQC_E2E_KEEP"):
        kube.drop_namespace(name)
