import pytest
from hypothesis import given
from hypothesis import strategies as st

from piqc_pipeline.cluster.redact import hide_secrets, is_secret_name, printable, safe_arguments, safe_labels


@pytest.mark.parametrize(
    "arguments",
    [
        ["--api-key", "CANARY"],
        ["--api-key=CANARY"],
        ["--api_key", "CANARY", "--model", "m"],
        ["--hf-token", "CANARY"],
        ["--password=CANARY"],
        ["sh", "-c", "vllm serve m --api-key CANARY"],
        ["sh", "-c", "HF_TOKEN=CANARY vllm serve m"],
        ["sh", "-c", "export AWS_SECRET_ACCESS_KEY='CANARY'; run"],
        ["--config", '{"api_key": "CANARY", "kv_role": "kv_both"}'],
        ["curl", "-H", "Authorization: Bearer CANARYCANARY"],
        ["curl -H 'X-Api-Key: CANARY' http://x"],
        ["--download", "https://user:CANARY@example.com/m"],
        ["https://s3/x?X-Amz-Signature=CANARY&y=1"],
        ["sk-live-CANARY"],
        ["prefix hf_CANARYCANARY suffix"],
        ["AKIACANARYCANARY1234"],
        ["eyJhbGciOiJIUzI1NiJ9.CANARYCANARY.sig"],
        ["sh", "-c", "vllm serve m/Llama-3.1-8B --api-key CANARY"],
        ["sh", "-c", "vllm serve m --enforce-eager --api-key CANARY"],
        ["sh", "-c", 'vllm serve m --config \'{"hf_token": "CANARY"}\''],
        ["sh", "-c", 'vllm serve m --x "{\\"hf_token\\": \\"CANARY\\"}"'],
        ["sh", "-c", 'run --x \'{"password": 12, "pin_secret": 77CANARY}\''],
        ["sh", "-c", "cat > c.yaml <<EOF\nmodel: m\napi_key: CANARY\npassword: 'CANARY'\nEOF"],
        ["sh", "-c", "curl -u admin:CANARY http://x && mysql -pCANARY && redis-cli -h r -a CANARY ping"],
        ["-H", "Authorization: Basic CANARY"],
        ["-----BEGIN RSA PRIVATE KEY-----\nCANARY\n-----END RSA PRIVATE KEY-----"],
    ],
)
def test_no_secret_among_arguments_is_shown(arguments: list[str]) -> None:
    assert "CANARY" not in " ".join(safe_arguments(arguments))


def test_arguments_that_are_no_secrets_stay_readable() -> None:
    plain = [
        "--model",
        "m",
        "--tokenizer",
        "t",
        "--max-num-batched-tokens",
        "8192",
        "--max-model-len=32k",
        "--port",
        "80",
    ]
    assert safe_arguments(plain) == plain
    assert safe_arguments(["vllm serve m --tokenizer t --tensor-parallel-size 8"]) == [
        "vllm serve m --tokenizer t --tensor-parallel-size 8"
    ]


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "--api-key", "AWS_SECRET_ACCESS_KEY", "password", "DB_PASSWD", "client_secret"]
)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["MODEL_NAME", "tokenizer", "max-num-batched-tokens", "max_tokens", "author"])
def test_other_names_are_none(name: str) -> None:
    assert not is_secret_name(name)


def test_control_characters_never_reach_a_terminal() -> None:
    shown = printable("red\x1b[31m\nline\x07\u202eevil")
    assert shown.isprintable() and "\x1b" not in shown and "\u202e" not in shown


def test_long_text_is_cut() -> None:
    assert len(printable("x" * 5000, 100)) == 100


@given(st.text(max_size=400))
def test_no_text_makes_it_fail(text: str) -> None:
    assert printable(text).isprintable()
    assert isinstance(hide_secrets(text), str)
    assert len(safe_arguments([text, text])) == 2


def test_labels_of_secret_names_and_values_like_secrets_are_hidden() -> None:
    labels = {"app": "llm", "team.example/api-key": "CANARY", "note": "hf_CANARYCANARY"}
    assert safe_labels(labels) == {"app": "llm", "team.example/api-key": "[redacted]", "note": "[redacted]"}
