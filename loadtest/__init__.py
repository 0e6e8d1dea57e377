"""Which load do we drive against what, to see a working day in seconds? Not part of the installed package."""
