"""A lab of real servers of unequal speed on this machine: what balancers and routers are tried on."""
