"""How busy were we? The table `gpu_utilization`, its sources and its two stores; no forecast and no scaling here."""
