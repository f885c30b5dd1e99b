"""Budgets: admission, ordering, placement, reclaim; and the baselines they are compared with."""
