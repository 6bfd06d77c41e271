"""The timing MODEL as text."""

from __future__ import annotations

from collections.abc import Sequence

from mha_sink.cli.table import print_table
from mha_sink.profiling.hardware import CLOCK_GHZ
from mha_sink.profiling.model import LABEL, ModelledKernel, call_as_json

UNITS = {
    "mfma": "MFMA", "valu": "VALU", "trans": "transcendental", "lds": "LDS", "vmem": "vector memory"
}  # fmt: skip


def print_model(call: Sequence[ModelledKernel], beside: ModelledKernel | None = None) -> None:
    """One column a kernel, and the sum of the call's."""
    shown = [*call, *([] if beside is None else [beside])]
    timings = [kernel.timing for kernel in shown]
    rows = {
        "workgroups": [f"{t.workgroups:,}" for t in timings],
        "resident on a compute unit": [str(t.resident) for t in timings],
        "modelled clocks, mean workgroup": [f"{t.clocks:,.0f}" for t in timings],
        **{
            f"of these {title} busy": [f"{t.busy[unit]:.0%}" for t in timings]
            for unit, title in UNITS.items()
        },
        "modelled clocks, last workgroup ends": [f"{t.compute_clocks:,.0f}" for t in timings],
        "of these places in use": [f"{t.balance:.0%}" for t in timings],
        "compulsory MB": [f"{t.hbm_bytes / 1e6:,.2f}" for t in timings],
        "HBM clocks for them": [f"{t.hbm_clocks:,.0f}" for t in timings],
        "modelled clocks, launch": [f"{t.device_clocks:,.0f}" for t in timings],
        f"MODEL us at {CLOCK_GHZ} GHz": [f"{k.seconds * 1e6:,.2f}" for k in shown],
        "MODEL useful TFLOP/s": ["-" if k.tflops is None else f"{k.tflops:.0f}" for k in shown],
    }
    print_table(
        LABEL, ["", *(k.kernel for k in shown)], [[name, *cells] for name, cells in rows.items()]
    )
    if len(call) > 1:
        total = call_as_json(call)
        rate = total["modelled_tflops"] or 0.0
        print(
            f"whole call, MODEL at the nominal {CLOCK_GHZ} GHz: "
            f"{total['modelled_seconds'] * 1e6:,.2f} us, {rate:.0f} useful TFLOP/s"
        )
