"""A control plane that works under faults: who submits, what is done to it, what must be true then."""
