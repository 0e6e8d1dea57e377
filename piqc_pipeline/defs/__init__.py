"""The Dagster shell: each asset is a thin step over a pure package; no formula and no format belongs here."""

import warnings

# Dagster says at each definition that a backfill policy is beta; that is for those who write pipelines.
warnings.filterwarnings("ignore", message="Parameter `backfill_policy` of function")
