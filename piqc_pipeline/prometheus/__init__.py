"""How is a Prometheus asked? Access, transport and answers, the same for history, scan and predictor; no queries."""
