from piqc_pipeline.history.inventory import WorkloadInventory
from piqc_pipeline.history.rows import day_rows
from piqc_pipeline_tests.history.points import day, of_devices, of_pods

CHAT = WorkloadInventory("prod/llm/Deployment/chat", "llm", "Deployment", "chat", gpus_per_replica=2.0)
A, B, C = (f"{CHAT.id}-{name}" for name in "abc")


def test_unready_pods_are_not_expected_and_ready_ones_without_samples_are() -> None:
    samples = day(
        # Pod b has no samples after the first bucket.
        of_devices(*((pod, bucket, 0.5) for pod, bucket in [(A, 0), (A, 1), (A, 2), (B, 0), (C, 0), (C, 1), (C, 2)]),
                   devices=("0", "1")),
        missing=of_pods((B, 1, 1.0), (B, 2, 0.2)),
        unready=of_pods((A, 1, 0.3), (B, 2, 0.2)),
    )  # fmt: skip
    told = day_rows(samples, (CHAT,)).select("devices_seen", "devices_expected", "ready_replicas").rows()
    assert told == [(6, 6, 3.0), (2, 4, 2.0), (4, 4, 2.0)]


def test_a_replicas_gpus_are_the_same_in_buckets_without_a_device() -> None:
    samples = day(of_devices((A, 0, 0.5), devices=("0", "1", "2")), waiting=of_pods((A, 0, 1.0), (A, 4, 1.0)))
    rows = day_rows(samples, (CHAT,))
    assert rows["devices_seen"].to_list() == [3, None]
    assert rows["gpus_per_replica"].to_list() == [3.0, 3.0]


def test_of_the_replicas_wanted_by_two_owners_the_larger_number_counts_and_alone_it_is_no_row() -> None:
    samples = day(of_devices((A, 0, 0.5)), wanted=of_pods((A, 0, 2.0), (B, 0, 3.0), (A, 7, 4.0)))
    assert day_rows(samples, (CHAT,))["wanted_replicas"].to_list() == [3.0]


def test_no_sample_is_no_row() -> None:
    assert day_rows(day(of_devices(), missing=of_pods((A, 1, 1.0))), (CHAT,)).is_empty()
