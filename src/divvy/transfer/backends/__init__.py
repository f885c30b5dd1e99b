"""How bytes of a chunk get from here to there: one file per back end, chosen by name in `registry`."""
