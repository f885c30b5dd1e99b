"""What the machine is: one graph of devices and links, read from many kinds of files, with its faults."""
