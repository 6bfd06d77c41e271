"""What the compiler must make of the sparse MLA kernels."""

import re

import pytest

from mha_sink import _C

PRODUCTS = [
    kernel["name"]
    for kernel in _C.kernels()
    if kernel["name"].startswith("sparse_mla_") and kernel["mfma"] > 0
]


@pytest.mark.parametrize("kernel", PRODUCTS)
def test_descriptors_and_addresses_stay_scalar(kernel: str) -> None:
    """A descriptor that the compiler takes for divergent gets a loop over its values.

    Such a loop begins with a v_readfirstlane_b32 of the descriptor, to which a s_cbranch_execnz
    leads back.
    """
    code = _C.EmulatedObject(_C.kernel_binary(kernel), kernel).disassemble(kernel)
    at = {int(line[:6], 16): line[8:] for line in code.splitlines()}
    targets = re.findall(r"s_cbranch_execnz 0x(\w+)", code)
    assert not [t for t in targets if at[int(t, 16)].startswith("v_readfirstlane_b32")]


@pytest.mark.parametrize("kernel", PRODUCTS)
def test_only_full_rate_products(kernel: str) -> None:
    code = _C.EmulatedObject(_C.kernel_binary(kernel), kernel).disassemble(kernel)
    products = {line.split()[1] for line in code.splitlines() if "v_mfma" in line}
    # ResidentAccumulator::clear() multiplies zeros, whose type does not matter.
    shape = "16x16x32" if kernel.endswith("h16") and "dkv_slots" not in kernel else "32x32x16"
    assert products <= {f"v_mfma_f32_{shape}_bf16", f"v_mfma_f32_{shape}_f16"}
