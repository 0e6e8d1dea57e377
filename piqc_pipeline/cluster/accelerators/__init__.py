"""Which accelerators does a node offer, and how many does a pod hold? One plugin a vendor, found by entry point.

A plugin is any object with the methods of `plugin.AcceleratorPlugin`, registered under the entry point group
`piqc.accelerators`. Prices and peak FLOPS belong to `piqc_pipeline.waste`.
"""
