"""How fast, how large, how accurate: measurements that print one JSON object."""
