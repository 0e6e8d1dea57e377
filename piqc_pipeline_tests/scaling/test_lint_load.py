"""Hostile files: each is one clear sentence, soon, and never a traceback."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from piqc_pipeline.scaling.lint import lint_files
from piqc_pipeline.scaling.lint_load import Unreadable, documents

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join('*' + chr(97 + i) for _ in range(9))}]\n" for i in range(9)
)
OBJECT = "apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(BOMB, "aliases stand for more than", id="a billion laughs"),
        pytest.param("a: &a [*a]\n", "an alias stands for a part of itself", id="an endless loop"),
        pytest.param("[" * 5000, "nested deeper than 60 levels", id="deep flow"),
        pytest.param("".join("  " * i + "a:\n" for i in range(200)), "nested deeper", id="deep block"),
        pytest.param("just text", "a document is no object but text", id="a scalar"),
        pytest.param("- 1\n- 2\n", "a document is no object but a list", id="a list"),
        pytest.param("a: [1, 2\n", "it is no YAML", id="cut off"),
        pytest.param("a: b: c\n", "it is no YAML", id="two colons"),
        pytest.param("\tkind: x", "it is no YAML", id="a tab"),
        pytest.param("a: !!python/object/apply:os.system ['id']\n", "it is no YAML", id="a Python object"),
        pytest.param("a: !custom 1\n", "it is no YAML", id="a foreign tag"),
        pytest.param("kind: a\nkind: b\n", "stands twice in one map", id="a key twice"),
        pytest.param("1: a\n", "is no string; quote it", id="a number as key"),
        pytest.param("? [a, b]\n: c\n", "a key is not a string", id="a list as key"),
        pytest.param("a: .nan\n", "a number is not finite", id="not a number"),
        pytest.param("a: !!binary aGVsbG8=\n", "binary", id="binary"),
        pytest.param("a: !!set {x, y}\n", "a set", id="a set"),
        pytest.param("a: " + "9" * 5000, "a value cannot be read", id="five thousand digits"),
        pytest.param("a: \x00", "it is no YAML", id="NUL"),
        pytest.param("a: *missing\n", "it is no YAML", id="an alias to nothing"),
        pytest.param("kind: {{ .Values.kind }}\n", "render it first (helm template)", id="a template of Helm"),
        pytest.param("%YAML 9.9\n---\na: b\n", "it is no YAML", id="a foreign version"),
        pytest.param("a: 1\n" * 1 + "x: [" + "1," * 400_000 + "]", "holds more than", id="half a million values"),
    ],
)
def test_a_hostile_text_is_one_sentence(content, message):
    begin = time.process_time()
    (found,) = [entry for entry in lint_files(["-"], content.encode()) if entry.severity == "error"]
    assert message in found.message
    assert "\n" not in found.message
    assert time.process_time() - begin < 5


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\xfa", b"\xc3\x28", b"\x80abc", b"\x1b[2J: x", b"a: \xed\xa0\x80"], ids=repr
)
def test_bytes_that_are_no_text_are_one_sentence(content):
    assert [entry.rule for entry in lint_files(["-"], content)] == ["unreadable"]


@pytest.mark.parametrize("content", ["", "---\n", "# only a comment\n", "null\n", "kind: Deployment\n"])
def test_a_file_without_autoscalers_is_a_note(content):
    assert [(entry.rule, entry.severity) for entry in lint_files(["-"], content.encode())] == [
        ("nothing-to-check", "info")
    ]


@pytest.mark.parametrize(
    "content",
    [
        OBJECT,
        OBJECT + "metadata: []\nspec: 3\n",
        OBJECT + "metadata: {name: [1], annotations: x}\nspec: {triggers: {a: b}, fallback: 3, advanced: [1]}\n",
        OBJECT + "metadata: {name: a}\nspec: {scaleTargetRef: x, triggers: [3, null, [], {type: 3, metadata: []}]}\n",
        OBJECT + "metadata: {name: a}\nspec: {minReplicaCount: true, maxReplicaCount: 1e400, triggers: []}\n",
        OBJECT + "metadata: {name: a}\nspec: {minReplicaCount: -5, idleReplicaCount: x, triggers: null}\n",
        OBJECT + "spec: {triggers: [{type: prometheus, metadata: {query: [1], serverAddress: 'http://[x'}}]}\n",
        OBJECT + "spec: {triggers: [{type: metrics-api, metadata: {url: 'http://a:b:c/', targetValue: .5.}}]}\n",
        OBJECT + "spec: {triggers: [{type: cron, metadata: {timezone: ../../etc/passwd, start: a, end: b}}]}\n",
        "kind: HorizontalPodAutoscaler\napiVersion: autoscaling/v2\nspec: {metrics: [3, {type: Pods, pods: 1}]}\n",
        "kind: HorizontalPodAutoscaler\napiVersion: autoscaling/v1\nspec: {maxReplicas: x}\n",
        "kind: HorizontalPodAutoscaler\napiVersion: 3\n",
        "kind: [ScaledObject]\n",
        "kind: List\nitems: {a: b}\n",
        "kind: List\nitems: [1]\n",
    ],
)
def test_objects_of_any_shape_are_judged(content):
    for entry in lint_files(["-"], content.encode()):
        assert entry.message
        assert "\n" not in entry.message


def test_files_that_are_not_there_or_are_no_files_are_named(tmp_path):
    missing, folder = str(tmp_path / "none.yaml"), tmp_path / "empty"
    folder.mkdir()
    assert [(entry.file, entry.message) for entry in lint_files([missing])] == [(missing, "no such file")]
    (told,) = lint_files([str(folder)])
    assert (told.rule, told.file, told.message) == (
        "nothing-to-check", str(folder), "it holds no YAML file and no JSON file"
    )  # fmt: skip
    assert lint_files(["/dev/null"])[0].message == "it is no regular file"
    assert lint_files(["a\x00b"])[0].rule == "unreadable"


def test_a_folder_stands_for_its_files(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.yaml").write_text(OBJECT)
    (tmp_path / "notes.txt").write_text("[")
    assert {entry.file for entry in lint_files([str(tmp_path)])} == {str(tmp_path / "b" / "x.yaml")}


def test_dates_stay_text_as_the_api_server_reads_them():
    assert documents(b"metadata: {labels: {day: 2025-01-01}}", "x")[0].body["metadata"]["labels"]["day"] == "2025-01-01"


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(st.binary(max_size=60), st.text(alphabet="ab:-[]{}&*!|>'\"#%@`,?\n\t 01.~<", max_size=60).map(str.encode))
)
def test_any_bytes_are_read_or_refused_in_words(content):
    try:
        documents(content, "x")
    except Unreadable as error:
        assert str(error)
