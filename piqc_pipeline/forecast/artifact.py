"""Where does a trained forecast lie, and is it what its hash says? Writing, promoting, loading and rolling back.

A folder holds `predictor.json` (the wire format), `predictor.json.sha256`, `model_card.md`, `forecast.csv` and
`prophet_model.pkl` (written because the specification asks for the file; nothing here loads it). Example of
`predictor.json`, shortened:

```json
{"schemaVersion": "piqc-predictor.v1", "trainedAt": "2025-01-20T00:00:00Z",
 "versions": {"piqc_pipeline": "0.1.0", "numpy": "2.2.0", "prophet": "1.5.0"},
 "policy": {"train_days": 28, "lead_seconds": 600}, "failed": {},
 "workloads": {"demo/inference/Deployment/chat-8b": {
   "accepted": true, "reasons": [], "confidence": "high", "stepSeconds": 600,
   "issuedAt": "2025-01-20T00:00:00Z", "dataUntil": "2025-01-20T00:00:00Z", "validUntil": "2025-01-21T12:00:00Z",
   "leadSeconds": 600, "gpusPerReplica": 1.0, "unit": "replicas", "coverageQ90": 0.91,
   "table": {"start": "2025-01-20T00:00:00Z", "stepSeconds": 600, "q50": [3.1], "q90": [3.6], "lower": [2.7],
             "peakQ50": [3.2], "peakQ90": [3.7]},
   "scores": {"ensemble": {"30m": {"maePp": 4.1, "rmsePp": 5.6, "maeDemand": 0.2, "rmseDemand": 0.3, "points": 423}}},
   "checks": [{"name": "mae_below_10_pp", "passed": true, "value": 4.1, "limit": 10.0, "unit": "pp",
               "detail": "4.1 of at most 10 points", "decides": true}],
   "data": {"start": "2025-01-06T00:00:00Z", "end": "2025-01-20T00:00:00Z", "rows": 2016, "gaps": 0,
            "censoredShare": 0.0, "notes": []},
   "state": {"...": "what `refresh` needs"}}}}
```
"""
