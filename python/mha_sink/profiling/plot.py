"""Pictures of the timing MODEL: kernels below the device's limits, and the waves of a workgroup."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mha_sink.profiling import hardware
from mha_sink.profiling.model import LABEL, ModelledKernel

TIMELINE_CLOCKS = 12_000  # some iterations of a main loop

# Of the timeline; "wait" covers barriers too. What is white, a wave waits for a unit or a register.
COLORS = {
    "mfma": "#4c72b0", "valu": "#55a868", "accvgpr": "#55a868", "trans": "#c44e52",
    "lds": "#dd8452", "vmem": "#8172b3", "atomic": "#da8bc3", "wait": "#937860",
    "barrier": "#937860",
}  # fmt: skip
OTHER = "#cccccc"  # scalar instructions, branches, nops
SHOWN = ("mfma", "valu", "trans", "lds", "vmem", "atomic", "wait")


def check(path: Path) -> None:
    """Raises what would make `save` fail: ModuleNotFoundError, or ValueError for another format."""
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"--plot is {path}; need a file that ends in .png, .svg or .pdf")
    _figures()


def save(path: Path, kernels: Sequence[ModelledKernel]) -> None:
    """Draws the kernels, and the timeline of the one whose launch is the longest.

    Raises:
        ModuleNotFoundError: there is no matplotlib.
        OSError: the file cannot be written.
    """
    figure = _figures().Figure(figsize=(11, 10), layout="constrained")
    figure.suptitle(LABEL)
    upper, lower = figure.subplots(2)
    _roofline(upper, [kernel for kernel in kernels if kernel.timing.device_clocks > 0])
    _timeline(lower, max(kernels, key=lambda kernel: kernel.timing.device_clocks))
    figure.savefig(path, dpi=120)


def _figures() -> Any:
    try:
        import matplotlib.figure
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            f"a picture needs matplotlib, and there is no {missing.name}: "
            "pip install 'mha_sink[plot]'"
        ) from None
    return matplotlib.figure


def peak_tflops(clock_ghz: float = hardware.CLOCK_GHZ) -> float:
    """16-bit MFMA of full rate on all SIMDs."""
    flops = hardware.mfma_flops("v_mfma_f32_32x32x16_bf16")
    clocks = hardware.mfma_clocks("v_mfma_f32_32x32x16_bf16") or 1
    return flops / clocks * hardware.SIMDS * hardware.COMPUTE_UNITS * clock_ghz / 1e3


def _roofline(axes: Any, kernels: Sequence[ModelledKernel]) -> None:
    peak = peak_tflops()
    ridge = peak / hardware.HBM_TB
    axes.set(
        xscale="log", yscale="log", xlabel="issued MFMA FLOP a compulsory byte",
        ylabel="issued MFMA TFLOP/s, MODEL", title=f"at the nominal {hardware.CLOCK_GHZ} GHz",
    )  # fmt: skip
    axes.plot([ridge / 100, ridge, ridge * 100], [peak / 100, peak, peak], color="black")
    axes.annotate(
        f"{peak:.0f} TFLOP/s of 16-bit MFMA, {hardware.HBM_TB:.0f} TB/s", (ridge, peak),
        textcoords="offset points", xytext=(5, 5),
    )  # fmt: skip
    for number, kernel in enumerate(kernels):
        timing = kernel.timing
        moved = timing.hbm_bytes / kernel.seconds / 1e12
        if timing.mfma_flops:
            rate = timing.mfma_flops / kernel.seconds / 1e12
            label = f"{kernel.kernel}: {rate:.0f} TFLOP/s"
            intensity = timing.mfma_flops / max(timing.hbm_bytes, 1.0)
            axes.plot(intensity, rate, "o", color=f"C{number}", label=label)
        else:
            axes.plot([], [], " ", label=f"{kernel.kernel}: no MFMA, {moved:.2f} TB/s")
    axes.legend(loc="lower right")


def _timeline(axes: Any, kernel: ModelledKernel) -> None:
    """A row a wave, the matrix unit in its upper half."""
    spans = kernel.timing.timeline
    waves = 1 + max((wave for wave, *_ in spans), default=0)
    for kind in {kind for _, kind, _, _ in spans}:
        for wave in range(waves):
            bars = [(a, b - a) for w, k, a, b in spans if (w, k) == (wave, kind)]
            top = 0.0 if kind == "mfma" else 0.4
            axes.broken_barh(bars, (wave + top, 0.4), facecolors=COLORS.get(kind, OTHER))
    for name in SHOWN:
        axes.plot([], [], "s", color=COLORS[name], label=name)
    axes.plot([], [], "s", color=OTHER, label="other")
    axes.set(
        xlabel="modelled clocks of the middle workgroup", yticks=[w + 0.4 for w in range(waves)],
        yticklabels=[f"wave {wave}" for wave in range(waves)], title=kernel.kernel,
        xlim=(0, max((b for *_, b in spans), default=1)), ylim=(waves, 0),
    )  # fmt: skip
    axes.legend(ncols=len(SHOWN) + 1, loc="upper center", bbox_to_anchor=(0.5, -0.12))
