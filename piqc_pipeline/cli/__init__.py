"""The command line: parse, call, show. Nothing is computed here."""
