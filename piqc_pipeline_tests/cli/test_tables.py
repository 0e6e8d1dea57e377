"""Rows on a terminal: figures whole, names folded, text as text."""

import pytest
from rich.text import Text

from piqc_pipeline.cli.tables import Side, print_sentence, print_table

COLUMNS: dict[str, Side] = {"workload": "left", "at\nUTC": "right", "median": "right"}


def test_names_fold_and_figures_do_not(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_table("load", COLUMNS, [["demo/inference/Deployment/llama-70b", "11-30 21:35", Text("12.50", "bold")]])
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 40
    assert "11-30 21:35" in shown and "12.50" in shown and "demo/inference/\n" in shown.replace(" ", "\n")


def test_in_a_pipe_a_row_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    name, title = "arn:aws:eks:eu-1:7:cluster/" + "inference-" * 12, "what is predicted " * 9
    print_table(title, COLUMNS, [[name, "11-30 21:35", "12.50"]])
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.strip() == title.strip() and last.split() == [name, "11-30", "21:35", "12.50"]


def test_no_line_ends_with_blanks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_table("load", {**COLUMNS, "accepted": "left"}, [["chat", "11-30 21:35", "12.50", "no"]])
    assert all(line == line.rstrip() for line in capsys.readouterr().out.splitlines())


def test_markup_in_a_name_is_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_table("[red]load", COLUMNS, [["a[/b]", "1", "2"]])
    shown = capsys.readouterr().out
    assert "[red]load" in shown and "a[/b]" in shown


def test_headings_break_so_that_nothing_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    columns: dict[str, Side] = {
        "Workload": "left",
        "Prophet alone": "right",
        "same time yesterday": "right",
        "accepted": "left",
    }
    print_table("MAE of 30-minute forecasts, points", columns, [["codellama-34b", "3.75", "0.06", "no"]])
    shown = capsys.readouterr().out
    assert "…" not in shown and all(word in shown for word in ("Workload", "yesterday", "accepted", "codellama-34b"))
    assert shown.startswith("MAE of 30-minute forecasts, points\n")


def test_a_sentence_in_a_pipe_stays_one_line_and_nothing_of_it_is_interpreted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    sentence = "c/ns/Deployment/chat: [bold]no[/b] forecast :key: " + "because nothing was measured " * 6
    print_sentence(sentence)
    assert capsys.readouterr().out == f"{sentence}\n"
