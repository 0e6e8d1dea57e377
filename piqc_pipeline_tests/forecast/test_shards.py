import os

import numpy as np
import pytest

from piqc_pipeline.errors import ArtifactAltered, ArtifactMissing
from piqc_pipeline.forecast.parallel import in_order
from piqc_pipeline.forecast.policy import TrainPolicy
from piqc_pipeline.forecast.shards import merge_shards, shard_keys, train_in_processes, train_shard
from piqc_pipeline.forecast.train import train
from piqc_pipeline_tests.forecast.examples import daily_wave, series_of

POLICY = TrainPolicy(with_prophet=False, replay_nights=1, table_hours=6)
SERIES = {
    f"c/ns/Deployment/{name}": series_of(daily_wave(days=3, seed=seed), f"c/ns/Deployment/{name}")
    for seed, name in enumerate(("a", "b", "c"))
}
NOW = next(iter(SERIES.values())).end


def load(keys):
    return [SERIES[key] for key in keys if key in SERIES]


def test_every_workload_is_in_exactly_one_shard():
    names = [f"w{i:02d}" for i in range(23)]
    shards = shard_keys(names, 4)
    assert sorted(key for shard in shards for key in shard) == names
    assert {len(shard) for shard in shards} == {5, 6}
    assert shard_keys(reversed(names), 4) == shards
    assert shard_keys([], 4) == [] and len(shard_keys(["a"], 4)) == 1


def test_forecasts_of_before_are_given_up_as_new_ones_take_their_place():
    before = dict(train(list(SERIES.values()), NOW, POLICY).workloads)
    kept = dict(before)
    ours = train_in_processes(SERIES.values(), NOW, POLICY, previous=before)
    assert before == {}
    assert ours.workloads == dict(train(list(SERIES.values()), NOW, POLICY, previous=kept).workloads)


def test_merged_shards_are_what_one_training_makes(tmp_path):
    whole = train(list(SERIES.values()), NOW, POLICY)
    paths = [train_shard(keys, load, NOW, POLICY, tmp_path) for keys in shard_keys(list(SERIES), 2)]
    merged = merge_shards(paths, NOW, POLICY)
    assert merged.workloads == dict(whole.workloads)
    assert merged.versions == dict(whole.versions)


def test_bad_workload_fails_alone_and_is_named(tmp_path):
    key = "c/ns/Deployment/a"
    bad = series_of(np.full(500, np.nan), key)
    keys = [key, "c/ns/Deployment/b", "c/ns/Deployment/gone"]
    path = train_shard(keys, lambda _: [bad, SERIES["c/ns/Deployment/b"]], NOW, POLICY, tmp_path)
    merged = merge_shards([path], NOW, POLICY)
    assert set(merged.workloads) == {"c/ns/Deployment/b"}
    assert "no demand" in merged.failed[key] and "no history" in merged.failed["c/ns/Deployment/gone"]


def test_missing_or_cut_off_shard_is_an_error(tmp_path):
    with pytest.raises(ArtifactMissing, match="again"):
        merge_shards([tmp_path / "shard-x.json"], NOW, POLICY)
    path = tmp_path / "shard-y.json"
    path.write_bytes(b'{"workloads": {')
    with pytest.raises(ArtifactAltered, match="cut off"):
        merge_shards([path], NOW, POLICY)


def square(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


def test_processes_answer_in_order():
    answers = list(in_order(square, range(5), workers=2))
    assert [value for value, _ in answers] == [0, 1, 4, 9, 16]
    assert os.getpid() not in {pid for _, pid in answers}


def test_one_process_trains_the_same_with_progress():
    seen = []
    candidate = train_in_processes(list(SERIES.values()), NOW, POLICY, progress=seen.append)
    assert candidate.workloads == dict(train(list(SERIES.values()), NOW, POLICY).workloads)
    assert sorted(seen) == sorted(SERIES)
