"""What kernels executed in the emulator, against what a gfx950 compute unit can do in a clock."""

from mha_sink.profiling.bounds import Bound, bounds
from mha_sink.profiling.launch_spec import LaunchSpec, read_launch_spec
from mha_sink.profiling.report import Report, profile_mha_bwd, profile_object

__all__ = [
    "Bound",
    "LaunchSpec",
    "Report",
    "bounds",
    "profile_mha_bwd",
    "profile_object",
    "read_launch_spec",
]
