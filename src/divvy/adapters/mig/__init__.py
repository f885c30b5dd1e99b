"""Cuts GPUs for real: nvidia-smi or NVML behind one port, and an emulator that obeys the same rules."""
