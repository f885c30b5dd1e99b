"""Routes, thin: who may ask, what of the mirror or the store is needed, which shape it is answered in."""
