"""A replay of the whole fleet: training, inference and caches at once, as one plan or by tools apart."""
