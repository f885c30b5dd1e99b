"""Which slices to cut: PARIS, equal and random slices, exhaustive search, the house's own search."""
