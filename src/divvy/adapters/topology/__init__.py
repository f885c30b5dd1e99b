"""What the machine says about its own interconnect: nvidia-smi, sysfs, hwloc where it is installed."""
