"""What kernels executed in the emulator, against what a gfx950 compute unit can do in a clock."""
