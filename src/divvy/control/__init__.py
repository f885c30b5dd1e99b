"""The control plane: ports, the state's one mutator, the loop, the journal, explanations."""
