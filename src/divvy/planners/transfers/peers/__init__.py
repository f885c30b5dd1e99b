"""The rules of other systems, each in its own file with its source; the planner does not call them."""
