"""benchmark_mha_bwd: exit codes, spellings, counts, its JSON, and validation that can fail."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from emulated import elf_sections
from mha_sink import _C

BUILD = Path(os.environ.get("MHA_SINK_BUILD_DIR", "."))
PROGRAM = BUILD / "benchmark_mha_bwd"
FAKE_HIP = BUILD / "tests" / "fake_hip"
S_NOP = 0xBF800000

OK, INVALID_RESULT, BAD_ARGUMENTS, NOT_SUPPORTED, CANNOT_RUN = range(5)

HEADS = ["-h=4", "-h_k=2", "-d=64", "-device=emulated"]
SMALL = [*HEADS, "-b=1", "-s=67", "-s_k=130"]
SINK = ["-sink=1", "-d_sink=1"]

# Longer than a tile, empty on either side or on both, and of one row.
LENS_Q, LENS_K = [67, 0, 5, 0, 1, 130], [130, 9, 0, 0, 40, 259]
PAD_Q, PAD_K = [80, 3, 5, 0, 1, 140], [130, 9, 20, 7, 41, 300]


def lengths(**lists: list[int]) -> list[str]:
    return [f"-{name}={','.join(map(str, values))}" for name, values in lists.items()]


GROUP = [*HEADS, "-mode=1", *lengths(lens_q=LENS_Q, lens_k=LENS_K)]
PADDING = lengths(pad_q=PAD_Q, pad_k=PAD_K)

pytestmark = pytest.mark.skipif(
    "MHA_SINK_BUILD_DIR" not in os.environ or not PROGRAM.exists(),
    reason="needs MHA_SINK_BUILD_DIR, a build tree with benchmark_mha_bwd",
)


def run(
    *arguments: str, program: Path = PROGRAM, expect: int = OK
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == expect, done.stdout + done.stderr
    return done


def report(*arguments: str, of: list[str] = SMALL, **more: Any) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(run(*of, *arguments, "-json=1", **more).stdout)
    return parsed


@pytest.mark.parametrize("prec", ["fp16", "bf16"])
@pytest.mark.parametrize("device", ["auto", "emulated"])
def test_a_sink_with_lengths_that_fill_no_tile(prec: str, device: str) -> None:
    shape = ["-b=1", "-h=4", "-h_k=2", "-s=259", "-s_k=515", "-d=64"]
    text = run(*shape, "-mask=b", *SINK, "-v=1", f"-prec={prec}", f"-device={device}").stdout
    assert text.startswith(f"[{prec}|batch|bhsd] b:1, h:4/2, s:259/515, d:64/64, scale:0.125")
    assert text.endswith("valid:y\n")


@pytest.mark.parametrize(
    ("argument", "needed"),
    [
        ("-b=0", "batch: 0 given, at least 1 needed"),
        ("-h_k=3", "nhead_k (heads of k and v): 3 given, a divisor of nhead_q = 4 needed"),
        ("-s=-7", "seqlen_q: -7 given, at least 0 needed"),
        ("-s=12x", "s: '12x' given, an integer needed"),
        ("-s=99999999999", "s: '99999999999' given, an integer needed"),
        ("-scale=nan", "scale: 'nan' given, a finite number needed"),
        ("-prec=fp8", "prec: 'fp8' given, one of fp16, bf16 needed"),
        ("-mask=q", "mask: 'q' given, one of 0, 1, 2, t, b, t:l,r, b:l,r, xt:w, xb:w, g:y,x"),
        ("-mask=b:3", "mask: 'b:3' given"),
        ("-mask=b:3,-2", "mask: 'b:3,-2' given"),
        ("-mask=xb:", "mask: 'xb:' given"),
        ("-repeat=0", "repeat: '0' given, at least 1 needed"),
        ("-d_sink=1", "d_sink: 1 given, -sink=1 with it needed"),
        ("-v=2", "v: '2' given, one of 0, 1 needed"),
        ("-nosuch=1", "'-nosuch=1' is not an option"),
        ("-d_s=1", "'-d_s=1' is not an option"),  # no abbreviations
        ("-mas=b", "'-mas=b' is not an option"),
        ("stray", "'stray' is not an option"),
        ("-scale", "-scale: a value is needed"),
        ("-lens_q=3", "lens_q: a list given, -mode=1 with it needed"),
        ("-pad_k=3", "pad_k: a list given, -mode=1 with it needed"),
        ("-mode=2", "mode: '2' given, one of 0, 1 needed"),
    ],
)
def test_bad_arguments(argument: str, needed: str) -> None:
    done = run(*SMALL, argument, expect=BAD_ARGUMENTS)
    assert done.stderr.startswith("benchmark_mha_bwd: ")
    assert needed in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (
            "-lens_q=3,x",
            "lens_q: '3,x' given, lengths of at least 0 with commas between them needed",
        ),
        ("-lens_q=3,-1", "lens_q: '3,-1' given, lengths of at least 0"),
        ("-lens_q=3,", "lens_q: '3,' given, lengths of at least 0"),
        ("-lens_q=", "lens_q: '' given, lengths of at least 0"),
        ("-lens_q=3,4 -b=3", "b: 3 given, 2, the lengths of lens_q, needed"),
        ("-lens_q=3,4 -lens_k=5", "lens_k: a list of 1 given, one of 2, a length"),
        ("-lens_k=5", "lens_k: a list given, -lens_q with it needed"),
        ("-lens_q=3,4 -pad_q=4", "pad_q: a list of 1 given, one of 2, a length"),
        ("-lens_q=3,4 -pad_k=3,2", "pad_k: 2 for sequence 1 given, at least its length, 4, needed"),
        (
            "-lens_q=2000000000,2000000000",
            "lens_q: 4000000000 rows in all given, at most 2147483647",
        ),
        ("-b=3 -s=2000000000", "s: 2000000000 for each of 3 sequences given, at most 2147483647"),
        ("-s=-7", "s: -7 given, at least 0 needed"),
        ("-s=7 -s_k=-2", "s_k: -2 given, at least 0 needed"),
        ("-b=0", "batch: 0 given, at least 1 needed"),
    ],
)
def test_bad_lengths_of_sequences(arguments: str, needed: str) -> None:
    done = run(*HEADS, "-mode=1", *arguments.split(), expect=BAD_ARGUMENTS)
    assert needed in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "argument",
    [
        "-d=4096", "-bias=e", "-bias=a:1", "-dbias=1", "-p_drop=0.2", "-timer=cpu",
        "-mask=g:3,4",
    ],
)  # fmt: skip
@pytest.mark.parametrize("of", [SMALL, GROUP], ids=["batch", "group"])
def test_not_supported(argument: str, of: list[str]) -> None:
    done = run(*of, argument, expect=NOT_SUPPORTED)
    assert "not supported" in done.stderr
    assert done.stdout == ""


def test_rocm_without_a_gpu_is_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "")
    done = run(*SMALL, "-device=rocm", expect=NOT_SUPPORTED)
    assert "no ROCm device" in done.stderr


def test_tensors_past_the_address_space_cannot_run() -> None:
    sizes = ["-b=65535", "-h=65535", "-h_k=1", "-s=500000000", "-s_k=1", "-v=0"]
    done = run(*SMALL, *sizes, expect=CANNOT_RUN)
    assert done.stderr == "benchmark_mha_bwd: out of memory\n"


def test_help_names_every_option_and_exit_code() -> None:
    text = run("-help").stdout
    assert run("-?").stdout == text
    contract = (
        "v mode b h h_k s s_k d d_v scale iperm operm bias dbias prec mask kname init seed p_drop "
        "drop_seed drop_offset drop_prefs timer warmup repeat deterministic bwd_v3 v3_atomic_fp32 "
        "v3_bf16_cvt v3_api_check sink d_sink json device lens_q lens_k pad_q pad_k"
    )
    for name in contract.split():
        assert f"\n  -{name} (" in text
    assert "0 ok, 1 validation failed, 2 bad arguments, 3 not supported" in text


def test_spellings_of_options_mean_the_same() -> None:
    def problem(*arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(run(*arguments).stdout)["problem"]
        return found

    plain = problem(*SMALL, *SINK, "-json=1", "-v=0", "-mask=b")
    spaced = [part for argument in SMALL for part in argument.split("=")]
    assert problem(*spaced, "-sink", "-d_sink", "-v", "0", "-json", "-mask", "b") == plain
    doubled = [f"-{argument}" for argument in SMALL]
    assert problem(*doubled, "--sink", "1", "--d_sink", "--json", "--v=0", "--mask=b") == plain


def visible(mask: str, i: int, j: int, sq: int, sk: int) -> bool:
    """What CK's mask of that spelling lets query i see, from its own words."""
    corner, _, window = mask.partition(":")
    diagonal = i + (sk - sq if corner in ("2", "b", "xb") else 0)
    if mask == "0":
        return True
    if corner in ("xt", "xb"):
        width = int(window)
        left, right = width // 2, width - 1 - width // 2
    elif window:
        left, right = map(int, window.split(","))
    else:
        left, right = -1, 0
    return (left < 0 or j >= diagonal - left) and (right < 0 or j <= diagonal + right)


def visible_pairs(mask: str, sq: int, sk: int) -> int:
    return sum(visible(mask, i, j, sq, sk) for i in range(sq) for j in range(sk))


@pytest.mark.parametrize(
    ("mask", "sq", "sk"),
    [
        ("0", 67, 130), ("2", 67, 130), ("b", 130, 67), ("b:20,5", 67, 130), ("b:-1,7", 130, 67),
        ("b:0,-1", 67, 67), ("xb:9", 67, 130), ("xb:10", 67, 67),
        ("1", 67, 130), ("t", 130, 67), ("t", 67, 67), ("t:20,70", 67, 130), ("t:80,5", 130, 67),
        ("t:3,4", 130, 67), ("t:-1,200", 67, 130), ("t:30,-1", 130, 67), ("xt:9", 67, 130),
        ("xt:10", 130, 67),
    ],
)  # fmt: skip
def test_masks(mask: str, sq: int, sk: int) -> None:
    found = report(f"-mask={mask}", f"-s={sq}", f"-s_k={sk}", *SINK)
    pairs = visible_pairs(mask, sq, sk)
    a_pair = 4 * (6 * 64 + 4 * 64)
    assert found["flops"] == a_pair * sq * sk
    assert found["flops_masked"] == a_pair * pairs
    assert found["validation"]["passed"]


def test_json() -> None:
    found = report(*SINK, "-mask=b", "-prec=bf16", "-iperm=0", "-seed=7")
    assert list(found) == [
        "version", "problem", "device", "workspace_bytes", "bytes_moved", "flops", "flops_masked",
        "timing", "emulation", "validation",
    ]  # fmt: skip
    assert found["version"] == _C.build_info()["version"]
    assert found["problem"] == {
        "prec": "bf16", "mode": "batch", "batch": 1, "nhead_q": 4, "nhead_k": 2, "seqlen_q": 67,
        "seqlen_k": 130, "lens_q": None, "lens_k": None, "pad_q": None, "pad_k": None,
        "hdim_q": 64, "hdim_v": 64, "scale": 0.125, "mask": "b:-1,0", "layout": "bshd-bhsd",
        "sink": True, "d_sink": True, "deterministic": False, "init": 1, "seed": 7,
    }  # fmt: skip
    queries, keys, rows = 67 * 4 * 64 * 2, 130 * 2 * 64 * 2, 67 * 4 * 4
    # q, out, dout, dq; k, v, dk, dv; lse, delta; sink; d_sink both ways.
    assert found["bytes_moved"] == 4 * queries + 4 * keys + 2 * rows + 16 + 2 * 16
    assert found["workspace_bytes"] == _C.mha_bwd_workspace_bytes(1, 67, 130, 4, 2, 64)
    assert found["device"] == "emulated gfx950"
    tensors = found["validation"]["tensors"]
    assert list(tensors) == ["dq", "dk", "dv", "delta", "d_sink"]
    for name, tensor in tensors.items():
        assert tensor["status"] == "pass"
        assert tensor["sequence"] == (None if name == "d_sink" else 0)
        floor = 2**-20 * tensor["magnitude"]
        assert tensor["allowed"] == pytest.approx(2 * tensor["reference_error"] + floor)
        assert 0 < tensor["error"] <= tensor["allowed"] < tensor["magnitude"]


def test_counts_instead_of_a_time() -> None:
    found = report(*SINK)
    assert found["timing"] is None
    kernels = found["emulation"]["kernels"]
    stems = ("convert_dq", "dot_do_o", "dq_dk_dv", "reduce_d_sink")
    assert sorted(stem for name in kernels for stem in stems if stem in name) == sorted(stems)
    (main,) = (name for name in kernels if "dq_dk_dv" in name)
    for name, kernel in kernels.items():
        assert kernel["launches"] == 1
        assert kernel["wave_instructions"] == sum(kernel["classes"].values()) > 0
        assert (kernel["per_mfma"] is not None) == (name == main)
    classes, share = kernels[main]["classes"], kernels[main]["per_mfma"]
    assert classes["mfma"] > 0
    assert share["valu"] == pytest.approx(classes["valu"] / classes["mfma"])
    text = run(*SMALL, *SINK).stdout
    assert "which says nothing about a GPU's time" in text
    assert f"{classes['mfma']} (1.000)" in text
    assert "TFLOP/s" not in text


@pytest.mark.parametrize("init", ["0", "1", "2"])
@pytest.mark.parametrize("layout", [("0", "0"), ("0", "1"), ("1", "0")])
def test_inputs_and_layouts(init: str, layout: tuple[str, str]) -> None:
    iperm, operm = layout
    same = [*SINK, f"-init={init}", "-b=2", "-deterministic=1"]
    found = report(*same, f"-iperm={iperm}", f"-operm={operm}")["validation"]
    assert found["passed"]
    # The layout is no part of the mathematics.
    assert found == report(*same)["validation"]


def test_seeds() -> None:
    def magnitude(seed: int) -> float:
        return float(report(f"-seed={seed}")["validation"]["tensors"]["dq"]["magnitude"])

    assert magnitude(5) == magnitude(5) != magnitude(6)
    assert report("-seed=0")["problem"]["seed"] != report("-seed=0")["problem"]["seed"]


def test_without_validation_the_reference_is_not_computed() -> None:
    # A quadratic reference of this size takes minutes; a window keeps the kernels' work small.
    size = ["-h=1", "-h_k=1", "-s=20000", "-s_k=20000", "-mask=b:8,0", "-v=0", *SINK]
    found = report(*size)
    assert found["validation"] is None
    assert found["emulation"]["kernels"]


@pytest.mark.parametrize(
    "mask", ["0", "b", "t", "b:20,5", "t:20,5", "t:3,-1", "b:-1,7", "xt:9", "xb:10"]
)
@pytest.mark.parametrize("padding", [[], PADDING], ids=["dense", "padded"])
def test_masks_and_flops_of_group_mode_are_each_sequences_own(
    mask: str, padding: list[str]
) -> None:
    found = report(f"-mask={mask}", *SINK, *padding, of=GROUP)
    shapes = list(zip(LENS_Q, LENS_K, strict=True))
    a_pair = 4 * (6 * 64 + 4 * 64)
    assert found["flops"] == a_pair * sum(sq * sk for sq, sk in shapes)
    assert found["flops_masked"] == a_pair * sum(visible_pairs(mask, *shape) for shape in shapes)
    assert found["validation"]["passed"]


def test_lengths_are_reported() -> None:
    problem = report(*SINK, "-v=0", *PADDING, of=GROUP)["problem"]
    assert problem["mode"] == "group"
    assert problem["batch"] == len(LENS_Q)
    assert (problem["lens_q"], problem["lens_k"]) == (LENS_Q, LENS_K)
    assert (problem["pad_q"], problem["pad_k"]) == (PAD_Q, PAD_K)
    assert (problem["seqlen_q"], problem["seqlen_k"]) == (sum(PAD_Q), sum(PAD_K))
    text = run(*HEADS, "-mode=1", "-lens_q=3,0,7", "-pad_k=4,0,8", *SINK).stdout
    assert text.startswith("[fp16|group|bhsd] b:3, h:4/2, s:3,0,7/3,0,7(4,0,8), d:64/64,")
    assert text.endswith("valid:y\n")


def test_bytes_of_group_mode_include_the_lengths() -> None:
    rows_q, rows_k = sum(PAD_Q), sum(PAD_K)
    found = report("-v=0", *PADDING, of=GROUP)["bytes_moved"]
    tensors = 4 * rows_q * 4 * 64 * 2 + 4 * rows_k * 2 * 64 * 2 + 2 * rows_q * 4 * 4
    assert found == tensors + 4 * (len(LENS_Q) + 1) * 4


@pytest.mark.parametrize("layout", [("0", "0"), ("0", "1"), ("1", "0")])
@pytest.mark.parametrize("prec", ["fp16", "bf16"])
def test_layout_and_padding_change_no_bit_of_a_packed_batch(
    prec: str, layout: tuple[str, str]
) -> None:
    # Not d_sink: how its summands are grouped depends on where a sequence begins.
    same = ["-sink=1", "-mask=b", f"-prec={prec}", "-deterministic=1"]
    packed = report(*same, of=GROUP)["validation"]
    assert packed["passed"]
    iperm, operm = layout
    arranged = [f"-iperm={iperm}", f"-operm={operm}", *PADDING]
    assert report(*same, *arranged, of=GROUP)["validation"] == packed


@pytest.mark.parametrize("mask", ["0", "b:20,5", "t"])
def test_sequences_of_equal_lengths_are_a_batch(mask: str) -> None:
    # Not d_sink: it sums the tiles of a batch entry, or of all sequences, in turn.
    same = [*HEADS, "-sink=1", f"-mask={mask}", "-deterministic=1"]
    batch = report("-b=3", "-s=67", "-s_k=130", of=same)
    group = report("-mode=1", "-lens_q=67,67,67", "-lens_k=130,130,130", of=same)
    for what in ("validation", "flops", "flops_masked"):
        assert group[what] == batch[what]


def test_random_lengths_follow_the_seed() -> None:
    def lists(*arguments: str) -> tuple[list[int], list[int]]:
        problem = report("-mode=1", "-b=9", "-v=0", *arguments, of=HEADS)["problem"]
        return problem["lens_q"], problem["lens_k"]

    q, k = lists("-s=20")
    assert q == k
    assert len(q) == 9
    assert all(10 <= length <= 30 for length in q)
    assert len(set(q)) > 1
    assert lists("-s=20") == (q, k)
    assert lists("-s=20", "-seed=5")[0] != q
    other_q, other_k = lists("-s=20", "-s_k=50")
    assert other_q == q
    assert all(25 <= length <= 75 for length in other_k)


def test_group_mode_without_any_row() -> None:
    found = report("-mode=1", "-lens_q=0,0", *SINK, of=HEADS)
    assert found["flops"] == 0
    assert found["validation"]["passed"]


@pytest.mark.parametrize("of", [SMALL, GROUP], ids=["batch", "group"])
def test_deterministic(of: list[str]) -> None:
    found = report(*SINK, "-mask=b", "-deterministic=1", of=of)
    assert found["problem"]["deterministic"]
    assert found["validation"]["passed"]
    kernels = found["emulation"]["kernels"]
    assert "mha_dq_fp16_hd64" in kernels
    assert not any("convert_dq" in name for name in kernels), "no sums to convert"
    assert report(*SINK, "-mask=b", "-deterministic=1", of=of)["validation"] == found["validation"]


def test_no_queries() -> None:
    found = report("-s=0", "-v=0")
    assert found["workspace_bytes"] == found["flops"] == 0


BATCH_PHASES = [
    "mha_dot_do_o_fp16", "memset", "mha_dq_dk_dv_fp16_hd64", "mha_convert_dq_fp16",
    "mha_reduce_d_sink",
]  # fmt: skip
GROUP_PHASES = ["memset", "mha_prepare_sequences", "memset", *BATCH_PHASES]


@pytest.mark.skipif(
    not (FAKE_HIP / "libamdhip64.so.7").exists(),
    reason="needs the fake HIP runtime of tests/fake_hip",
)
@pytest.mark.parametrize(
    ("device", "of", "phases"),
    [
        ("rocm", SMALL, BATCH_PHASES),
        ("auto", SMALL, BATCH_PHASES),
        ("rocm", [*GROUP, *PADDING], GROUP_PHASES),
    ],
    ids=["rocm", "auto", "group"],
)
def test_a_gpu_is_timed(
    device: str, of: list[str], phases: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a HIP runtime whose GPUs are emulated: what is shown is the order of calls, not speed."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(FAKE_HIP))
    arguments = [*SINK, "-mask=b", "-warmup=1", "-repeat=2", f"-device={device}"]
    found = report(*arguments, of=of)
    assert "emulated" not in found["device"]
    assert found["emulation"] is None
    assert found["validation"]["passed"]
    timing = found["timing"]
    assert timing["repeats"] == 2
    for whole_call in (timing["warm"], timing["flushed"]):
        seconds = whole_call["ms"] * 1e-3
        assert seconds > 0
        assert whole_call["tflops"] == pytest.approx(found["flops"] / seconds * 1e-12)
        assert whole_call["tflops_masked"] == pytest.approx(found["flops_masked"] / seconds * 1e-12)
        assert whole_call["gbytes_per_s"] == pytest.approx(found["bytes_moved"] / seconds * 1e-9)
    assert [phase["name"] for phase in timing["phases"]] == phases
    text = run(*of, *arguments).stdout
    assert "whole call, flushed" in text
    assert text.endswith("valid:y\n")


# A kernel of the program and what to take from its machine code, with the results that then fail.
FAULTS = {
    "a product": ("mha_dq_dk_dv_fp16_hd64", "v_mfma", {"dq", "dk", "dv"}),
    "dq's stores": ("mha_convert_dq_fp16", "buffer_store", {"dq"}),
    "d_sink's store": ("mha_reduce_d_sink", "global_store", {"d_sink"}),
    "dq's sums": ("mha_dq_dk_dv_fp16_hd64", "buffer_atomic", {"dq"}),
}


def without(kernel: str, mnemonic: str, directory: Path) -> Path:
    """A copy of the program in which instructions of an embedded kernel were replaced by s_nop."""
    elf = (BUILD / "kernels" / f"{kernel}.co").read_bytes()
    text = elf_sections(elf)[".text"].offset
    lines = _C.EmulatedObject(elf, kernel).disassemble(kernel).splitlines()
    found = [line.partition(": ") for line in lines]
    addresses = [int(at, 16) for at, _, rest in found if rest.startswith(mnemonic)]
    assert addresses
    program = bytearray(PROGRAM.read_bytes())
    occurrences = program.count(elf)
    assert occurrences == 1
    start = program.index(elf) + text
    for address in addresses:  # each is two words long
        struct.pack_into("<2I", program, start + address, S_NOP, S_NOP)
    wrong = directory / "benchmark_mha_bwd"
    wrong.write_bytes(program)
    wrong.chmod(0o755)
    return wrong


@pytest.mark.parametrize("fault", FAULTS)
def test_validation_fails_when_a_kernel_is_wrong(fault: str, tmp_path: Path) -> None:
    kernel, mnemonic, at_least_one_of = FAULTS[fault]
    wrong = without(kernel, mnemonic, tmp_path)
    result = report(*SINK, program=wrong, expect=INVALID_RESULT)["validation"]
    assert not result["passed"]
    failed = {name for name, tensor in result["tensors"].items() if tensor["status"] == "FAIL"}
    assert failed & at_least_one_of
    assert run(*SMALL, *SINK, program=wrong, expect=INVALID_RESULT).stdout.endswith("valid:n\n")


def test_validation_fails_when_padding_is_not_zeroed(tmp_path: Path) -> None:
    wrong = without("mha_prepare_sequences", "buffer_store", tmp_path)
    assert report(*SINK, program=wrong, of=GROUP)["validation"]["passed"]
    result = report(*SINK, *PADDING, program=wrong, of=GROUP, expect=INVALID_RESULT)["validation"]
    for name, sequence in {"dq": 0, "dk": 2, "dv": 2}.items():
        tensor = result["tensors"][name]
        assert tensor["status"] == "FAIL"
        assert tensor["reason"].startswith(f"padding of sequence {sequence}: ")


def test_each_sequence_is_judged_by_itself() -> None:
    # The second sees one key and no sink: its dq is 0, whatever the first one's size.
    lists = ["-mode=1", "-lens_q=30,30", "-lens_k=40,1"]
    found = report(*lists, of=HEADS, expect=INVALID_RESULT)["validation"]["tensors"]["dq"]
    assert found["status"] == "unresolvable"
    assert found["sequence"] == 1
    assert found["reason"].startswith("sequence 1: ")
    assert report(*lists, *SINK, of=HEADS)["validation"]["passed"]


def test_what_the_dtype_cannot_resolve_is_no_pass() -> None:
    # One key and no sink: P is 1, dS is 0, and dq and dk are nothing but rounding errors.
    found = report("-s_k=1", "-h_k=4", expect=INVALID_RESULT)["validation"]
    assert found["tensors"]["dq"]["status"] == "unresolvable"
    assert found["tensors"]["dv"]["status"] == "pass"
