"""How many replicas does KEDA hear, and what may anyone ask about the next hours? The capacity predictor service.

A shell over `forecast` and `scaling`: it opens no database, loads no pickle, and imports neither Prophet, pandas,
polars, DuckDB nor Dagster.
"""
