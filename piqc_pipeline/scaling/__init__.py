"""How many replicas, and is that safe? Plans, manifests, lint and closed-loop replay.

Nothing here talks to a cluster or a database; the core needs numpy only.
"""
