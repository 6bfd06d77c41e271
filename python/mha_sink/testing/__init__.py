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
from mha_sink.testing.sparse_indices import uniform_indices, window_pool_indices
from mha_sink.testing.sparse_mla import (
    SparseCase,
    SparseInputs,
    check_sparse_bwd,
    check_sparse_fwd,
    expected_sparse_bwd,
    make_sparse_inputs,
    run_sparse_bwd,
)

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
    "SparseCase",
    "SparseInputs",
    "Status",
    "TensorResult",
    "case",
    "cases",
    "check",
    "check_mha_bwd",
    "check_sparse_bwd",
    "check_sparse_fwd",
    "check_tensor",
    "expected",
    "expected_sparse_bwd",
    "make_inputs",
    "make_sparse_inputs",
    "packed_case",
    "poisoned_workspace",
    "run_guarded",
    "run_sparse_bwd",
    "spread_sinks",
    "uniform_indices",
    "window_pool_indices",
]
