"""Hosts with unequal rails on one machine: network namespaces joined by rate-limited links."""
