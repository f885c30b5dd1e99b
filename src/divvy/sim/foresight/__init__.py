"""When will a waiting job start? The present state, run on many times with the same planner."""
