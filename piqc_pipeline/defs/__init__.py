"""The Dagster shell: each asset is a thin step over a pure package; no formula and no format belongs here."""
