"""What this package is tested with, for tests of code that uses it: cases, inputs, the gate."""

from mha_sink.testing.cases import (
    CASES,
    GROUPS,
    PACKED_CASES,
    SINK_OFFSETS,
    Case,
    case,
    cases,
    packed_case,
)
from mha_sink.testing.check import (
    Expected,
    check_mha_bwd,
    expected,
    poisoned_workspace,
    run_guarded,
)
from mha_sink.testing.gate import GateResult, Status, TensorResult, check, check_tensor
from mha_sink.testing.inputs import LAYOUTS, GuardedTensor, Inputs, make_inputs, spread_sinks

__all__ = [
    "CASES",
    "GROUPS",
    "LAYOUTS",
    "PACKED_CASES",
    "SINK_OFFSETS",
    "Case",
    "Expected",
    "GateResult",
    "GuardedTensor",
    "Inputs",
    "Status",
    "TensorResult",
    "case",
    "cases",
    "check",
    "check_mha_bwd",
    "check_tensor",
    "expected",
    "make_inputs",
    "packed_case",
    "poisoned_workspace",
    "run_guarded",
    "spread_sinks",
]
