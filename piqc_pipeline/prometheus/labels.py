"""Which labels tell series apart that mean the same? Names that exporters give them."""

SAME_REQUESTS = ("tp_rank", "pp_rank", "moe_ep_rank", "pid")
"""Labels of SGLang's schedulers that work on the same requests: each exports them where the server runs with
`--enable-metrics-for-all-schedulers` (sgl-project/sglang#7597, #7720), or under context parallelism (#31896). Those of
another `dp_rank` work on requests of their own."""
