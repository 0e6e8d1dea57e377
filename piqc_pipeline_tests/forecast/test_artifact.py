import hashlib
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from piqc_pipeline.errors import ArtifactAltered, ArtifactMissing, NoWorkloadAccepted
from piqc_pipeline.forecast import artifact
from piqc_pipeline.forecast.model import CandidateModel
from piqc_pipeline.forecast.policy import TrainPolicy
from piqc_pipeline.forecast.train import train
from piqc_pipeline.predictor import lean
from piqc_pipeline_tests.forecast.examples import daily_wave, series_of

WEB = "c/ns/Deployment/web"


@pytest.fixture(scope="module")
def candidate() -> CandidateModel:
    series = series_of(daily_wave(days=6))
    return train([series], series.end, TrainPolicy(with_prophet=False, replay_nights=3))


def later(candidate: CandidateModel, hours: int, accepted: bool = True) -> CandidateModel:
    moment = candidate.trained_at + timedelta(hours=hours)
    entries = {
        name: replace(entry, accepted=accepted, issued_at=moment, reasons=() if accepted else ("worse",))
        for name, entry in candidate.workloads.items()
    }
    return replace(candidate, trained_at=moment, workloads=entries)


def promote(candidate: CandidateModel, model_dir, **options):
    artifact.write_candidate(candidate, model_dir / "candidate")
    return artifact.promote(model_dir / "candidate", model_dir, **options)


def test_promoted_artifact_says_what_was_trained(candidate, tmp_path):
    current = promote(candidate, tmp_path)
    loaded = artifact.load(current)
    assert loaded.schema_version == "piqc-predictor.v1"
    assert loaded.workloads == dict(candidate.workloads)
    names = {"predictor.json", "predictor.json.sha256", "model_card.md", "forecast.csv", "prophet_model.pkl"}
    assert {path.name for path in current.iterdir()} == names


def test_missing_artifact_is_an_error_that_says_what_to_do(tmp_path):
    with pytest.raises(ArtifactMissing, match="piqc train"):
        artifact.load(tmp_path / "current")


def test_one_changed_byte_is_noticed(candidate, tmp_path):
    current = promote(candidate, tmp_path)
    path = current / "predictor.json"
    path.write_bytes(path.read_bytes().replace(b'"accepted":true', b'"accepted":false', 1))
    with pytest.raises(ArtifactAltered, match="SHA-256"):
        artifact.load(current)


def test_cut_off_file_with_a_fitting_hash_breaks_the_schema(candidate, tmp_path):
    current = promote(candidate, tmp_path)
    text = (current / "predictor.json").read_bytes()[:-5]
    (current / "predictor.json").write_bytes(text)
    (current / "predictor.json.sha256").write_text(hashlib.sha256(text).hexdigest() + "  predictor.json\n")
    with pytest.raises(ArtifactAltered, match="schema"):
        artifact.load(current)


def test_rejected_candidate_never_replaces_an_accepted_forecast(candidate, tmp_path):
    promote(candidate, tmp_path)
    other = replace(next(iter(candidate.workloads.values())), workload="c/ns/Deployment/other")
    rejected = later(candidate, 24, accepted=False)
    mixed = replace(rejected, workloads={**rejected.workloads, other.workload: other})
    current = promote(mixed, tmp_path)
    loaded = artifact.load(current)
    assert loaded.workloads[WEB].accepted and loaded.workloads[WEB].issued_at == candidate.trained_at
    assert loaded.workloads[other.workload].accepted


def test_accepted_forecast_that_ended_gives_way_to_the_reason_of_its_rejection(candidate, tmp_path):
    promote(candidate, tmp_path)
    other = replace(next(iter(candidate.workloads.values())), workload="c/ns/Deployment/other")
    ended = later(candidate, TrainPolicy().valid_hours, accepted=False)
    current = promote(replace(ended, workloads={**ended.workloads, other.workload: other}), tmp_path)
    entry = artifact.load(current).workloads[WEB]
    assert not entry.accepted and entry.reasons == ("worse",)


def test_nothing_is_promoted_when_no_workload_was_accepted(candidate, tmp_path):
    current = promote(candidate, tmp_path)
    before = artifact.load(current).sha256
    with pytest.raises(NoWorkloadAccepted, match="stays"):
        promote(later(candidate, 24, accepted=False), tmp_path)
    assert artifact.load(current).sha256 == before


def test_rollback_puts_the_artifact_before_back_into_use(candidate, tmp_path):
    promote(candidate, tmp_path)
    promote(later(candidate, 24), tmp_path)
    versions = artifact.versions_in(tmp_path)
    assert [entry.is_current for entry in versions] == [True, False]
    assert artifact.rollback(tmp_path) == versions[1].version
    assert artifact.load(tmp_path / "current").trained_at == candidate.trained_at
    with pytest.raises(ArtifactMissing, match="older"):
        artifact.rollback(tmp_path)


def test_only_the_newest_artifacts_are_kept(candidate, tmp_path):
    for day in range(4):
        promote(later(candidate, 24 * day), tmp_path, keep=2)
    kept = [entry.trained_at for entry in artifact.versions_in(tmp_path)]
    assert kept == [candidate.trained_at + timedelta(hours=72), candidate.trained_at + timedelta(hours=48)]


def rewritten(folder, change):
    """The artifact as another program would have written it, with a fitting hash."""
    path = folder / "predictor.json"
    document = json.loads(path.read_bytes())
    change(document)
    text = json.dumps(document).encode()
    path.write_bytes(text)
    (folder / "predictor.json.sha256").write_text(hashlib.sha256(text).hexdigest() + "  predictor.json\n")
    return folder


LOADERS = pytest.mark.parametrize("load", [artifact.load, lean.load], ids=["pipeline", "predictor"])


@LOADERS
def test_field_that_a_newer_program_added_is_passed_over(load, candidate, tmp_path):
    def newer(document):
        document["mood"] = "good"
        document["workloads"][WEB]["color"] = {"of": "money"}
        document["workloads"][WEB]["table"]["peakQ99"] = [1.0]
        document["workloads"][WEB]["state"]["journal"]["version"] = 2

    entry = load(rewritten(promote(candidate, tmp_path), newer)).workloads[WEB]
    assert entry.table.q50 == pytest.approx(candidate.workloads[WEB].table.q50, rel=1e-6)


@LOADERS
def test_field_that_an_older_program_did_not_write_has_its_default(load, candidate, tmp_path):
    def older(document):
        entry = document["workloads"][WEB]
        del entry["drift"], entry["table"]["peakQ95"], entry["data"]["demandQ95"], entry["state"]["journal"]

    entry = load(rewritten(promote(candidate, tmp_path), older)).workloads[WEB]
    assert entry.drift is None and entry.table.peak_q95 == () and entry.data.demand_q95 is None


@LOADERS
def test_another_schema_is_refused_with_what_to_do(load, candidate, tmp_path):
    folder = rewritten(
        promote(candidate, tmp_path), lambda document: document.update(schemaVersion="piqc-predictor.v2")
    )
    with pytest.raises(ArtifactAltered, match=r"has schema piqc-predictor.v2.*reads piqc-predictor.v1"):
        load(folder)


@LOADERS
def test_field_that_is_missing_and_needed_is_named(load, candidate, tmp_path):
    folder = rewritten(promote(candidate, tmp_path), lambda document: document["workloads"][WEB].pop("dataUntil"))
    with pytest.raises(ArtifactAltered, match="dataUntil"):
        load(folder)


def test_next_run_goes_on_from_the_last_one_even_where_that_was_rejected(candidate, tmp_path):
    assert artifact.trained_before(tmp_path) == {}
    other = replace(candidate.workloads[WEB], workload="c/ns/Deployment/other")
    promote(candidate, tmp_path)
    assert artifact.trained_before(tmp_path) == dict(candidate.workloads)
    rejected = later(candidate, 24, accepted=False)
    entry = rejected.workloads[WEB]
    newer = replace(entry, data_until=entry.data_until + timedelta(days=1), state={"version": "of the last run"})
    promote(replace(rejected, workloads={WEB: newer, other.workload: other}), tmp_path)
    found = artifact.trained_before(tmp_path)
    assert found[WEB].state == newer.state and found[WEB].table == candidate.workloads[WEB].table
    assert found[other.workload] == other
    artifact.rollback(tmp_path)
    assert artifact.trained_before(tmp_path)[WEB].state == newer.state
