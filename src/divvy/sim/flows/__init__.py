"""Transfers as fluids: max-min fair rates over shared links, with start-up and descriptors."""
