"""A scan that hangs, runs out of time or is interrupted ends soon, and keeps what was read."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from piqc_pipeline.errors import ClusterUnreachable
from piqc_pipeline_tests.cluster.api_server import ApiServerDouble, Fault, Script
from piqc_pipeline_tests.cluster.clusters import container, pod, pods, smi
from piqc_pipeline_tests.cluster.scanning import CONFIG, VOLUME, failures, held, live


def test_an_answer_that_comes_drop_by_drop_costs_its_time_limit_only(api: ApiServerDouble, tmp_path: Path) -> None:
    api.faults = [Fault(r"^/api/v1/nodes", drip=True)]
    began = time.monotonic()
    snapshot = live(api, tmp_path, timeout_seconds=0.5, allow_exec=False, collect_runtime=False)
    assert time.monotonic() - began < 8
    assert snapshot.nodes is None and "no answer within 0.5 s" in failures(snapshot)[0].why


def test_a_pod_whose_exec_hangs_costs_one_time_limit_and_not_the_others(api: ApiServerDouble, tmp_path: Path) -> None:
    api.scripts["inference/llm-abc-0"] = Script(hang=True)
    api.scripts["inference/llm-abc-1"] = Script({"nvidia-smi": (smi(*[("H100", 9)] * 4), "", 0)})
    began = time.monotonic()
    snapshot = live(api, tmp_path, timeout_seconds=1, collect_runtime=False)
    assert time.monotonic() - began < 4
    found = pods(snapshot)
    assert found["llm-abc-0"].readings == () and len(found["llm-abc-1"].readings) == 4
    assert "did not end within 1 s" in failures(snapshot)[0].why


def test_the_deadline_keeps_what_was_read(api: ApiServerDouble, tmp_path: Path) -> None:
    api.scripts = {f"inference/llm-abc-{n}": Script(hang=True) for n in range(2)}
    began = time.monotonic()
    snapshot = live(api, tmp_path, timeout_seconds=30, deadline_seconds=2, collect_runtime=False)
    assert time.monotonic() - began < 5
    assert held(snapshot) == 8 and len(snapshot.nodes or ()) == 2
    assert any("the deadline of 2 s has passed" in entry.why for entry in failures(snapshot))


def test_a_hanging_list_costs_its_time_limit_only(api: ApiServerDouble, tmp_path: Path) -> None:
    api.faults = [Fault(r"^/api/v1/nodes", delay=20)]
    began = time.monotonic()
    snapshot = live(api, tmp_path, timeout_seconds=0.5, allow_exec=False, collect_runtime=False)
    assert time.monotonic() - began < 5
    assert snapshot.nodes is None and "no answer within 0.5 s" in failures(snapshot)[0].why


def test_ctrl_c_keeps_what_was_read_within_two_seconds(api: ApiServerDouble, tmp_path: Path) -> None:
    api.scripts = {f"inference/llm-abc-{n}": Script(hang=True) for n in range(2)}
    pressed: list[float] = []

    def press() -> None:
        while not api.commands:
            time.sleep(0.02)
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press, daemon=True)
    thread.start()
    snapshot = live(api, tmp_path, timeout_seconds=30, collect_runtime=False)
    thread.join(5)
    assert time.monotonic() - pressed[0] < 2
    assert held(snapshot) == 8
    assert snapshot.interrupted and "the scan was interrupted" in {entry.why for entry in failures(snapshot)}


@pytest.mark.parametrize("where", ["/version", "/apis$", r"^/api/v1/nodes", "/configmaps/"])
def test_ctrl_c_waits_for_no_answer(api: ApiServerDouble, tmp_path: Path, where: str) -> None:
    api.items.append(pod("named", [container(args=["--config", "/etc/vllm/c.yaml"], **CONFIG)], spec=VOLUME))
    api.faults = [Fault(where, delay=20)]
    needed = (where, r"^/api/v1/pods") if "nodes" in where else (where,)

    def press() -> None:
        while not all(api.count(pattern) for pattern in needed):
            time.sleep(0.02)
        time.sleep(0.2)  # for the answers that are not delayed
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    began = time.monotonic()
    if where in ("/version", "/apis$"):
        with pytest.raises(KeyboardInterrupt):
            live(api, tmp_path, timeout_seconds=30, allow_exec=False)
    else:
        snapshot = live(api, tmp_path, timeout_seconds=30, allow_exec=False, collect_runtime=False)
        assert snapshot.interrupted and "the scan was interrupted" in {entry.why for entry in failures(snapshot)}
    assert time.monotonic() - began < 10
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_deadline_that_passes_before_the_first_answer_is_told(api: ApiServerDouble, tmp_path: Path) -> None:
    with pytest.raises(ClusterUnreachable, match=r"the deadline of 0\.001 s has passed before it answered"):
        live(api, tmp_path, deadline_seconds=0.001)


def test_autoscalers_that_were_not_read_in_time_are_unknown_and_not_none(api: ApiServerDouble, tmp_path: Path) -> None:
    api.faults = [Fault("/horizontalpodautoscalers", delay=20)]
    snapshot = live(api, tmp_path, deadline_seconds=1, timeout_seconds=30, allow_exec=False, collect_runtime=False)
    assert [entry.why for entry in failures(snapshot) if entry.about == "autoscalers"] == [
        "the deadline of 1 s has passed"
    ]
