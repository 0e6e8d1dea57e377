"""How busy will we be? Demand forecasts with calibrated quantiles, their backtest, and the artifact that carries them.

Reading the cluster, storing history and choosing replicas do not belong here.
"""
