"""The compiled part: checks, launches and the gfx950 emulator. It knows nothing of torch."""

from collections.abc import Callable, Sequence
from typing import TypedDict

from typing_extensions import NotRequired

class Error(RuntimeError):
    """What stopped a call: a code object, a launch, a callback that returned null."""

class InvalidArgument(Error, ValueError):
    """An argument that no version could accept. Nothing was launched or written."""

class Unsupported(Error, ValueError):
    """A valid request that this version cannot serve; says what it can. Nothing was launched."""

class Tensor:
    """A tensor by description. The memory must live until the call that uses it returns."""

    data: int
    dtype: str
    shape: list[int]
    strides: list[int]
    device: str

    def __init__(
        self, data: int, dtype: str, shape: Sequence[int], strides: Sequence[int], device: str
    ) -> None:
        """
        data: address of the first element (torch's data_ptr()).
        dtype: as torch spells it without the prefix: "bfloat16", "float32", "int64".
        strides: in elements, one a dimension.
        device: as str(torch.device) spells it: "cpu", "cuda:0".
        """

class MhaBwdCall:
    """The arguments of one attention backward, named as in aiter's `mha_bwd` and `mha_varlen_bwd`.

    Every tensor starts as None, every scalar at the value noted; set the attributes, then pass the
    object to `check_mha_bwd` and `mha_bwd`. Attributes hold copies of the descriptions.

    b batch, sq and sk query and key length, hq and hk query and KV heads, d head dim; strides of
    the last dimension are 1, the others are free.

    With cu_seqlens_q the call is packed: [b, sq, ...] is [total_q, ...], [b, sk, ...] is
    [total_k, ...] and [b, hq, sq] is [hq, total_q].
    """

    # bfloat16 or float16: q [b, sq, hq, d], k [b, sk, hk, d], v [b, sk, hk, dv],
    # dout and out [b, sq, hq, dv]. d and dv are multiples of 8 up to 256.
    dout: Tensor | None
    q: Tensor | None
    k: Tensor | None
    v: Tensor | None
    out: Tensor | None
    # fp32 [b, hq, sq], natural log; includes the sink when gradients of sink attention are wanted.
    softmax_lse: Tensor | None
    # fp32 [b, hq, sq]: gradient of softmax_lse. None: 0.
    dlse: Tensor | None

    # int32 [b + 1]: cumulative lengths, and where given the rows that sequences start at.
    cu_seqlens_q: Tensor | None
    cu_seqlens_k: Tensor | None
    cu_seqlens_q_padded: Tensor | None
    cu_seqlens_k_padded: Tensor | None
    max_seqlen_q: int  # 0; at least the longest sequence's, when packed
    max_seqlen_k: int  # 0

    dropout_p: float  # 0
    softmax_scale: float  # 1
    is_causal: bool  # False; True forces window_size_right = 0
    window_size_left: int  # -1: unbounded
    window_size_right: int  # -1: unbounded
    deterministic: bool  # False

    # Outputs, like q, k and v. Needed by mha_bwd, optional in check_mha_bwd.
    dq: Tensor | None
    dk: Tensor | None
    dv: Tensor | None
    # Output, fp32 [b, hq, sq]: rowsum(dout * out). None: not wanted.
    softmax_d: Tensor | None

    # Anything given here is refused as unsupported, by name.
    dbias: Tensor | None
    bias: Tensor | None
    alibi_slopes: Tensor | None

    # fp32 [b, hq], natural log, already scaled. Only d_sink depends on it.
    sink: Tensor | None
    # fp32 [hq], or [b, hq] without the sum over the batch; accumulated into.
    d_sink: Tensor | None

    def __init__(self) -> None: ...

def check_mha_bwd(call: MhaBwdCall) -> None:
    """Raises InvalidArgument or Unsupported for what mha_bwd would refuse; writes nothing.

    Outputs that are None are not checked, so that a caller can check before it allocates them.
    Reads no memory: mha_bwd checks the lengths of a packed call, on a GPU when MHA_SINK_CHECK=1.
    """

def mha_bwd(
    call: MhaBwdCall,
    workspace_alloc: Callable[[int, bool], int],
    stream: int = 0,
    timed: bool = False,
) -> float:
    """Checks, then writes dq, dk, dv, softmax_d and adds to d_sink.

    workspace_alloc(bytes, zero_init) returns the address of a block that lives until this call
    returns; it is called at most once, with the exact size, zero_init False. What it raises reaches
    the caller unchanged, with nothing launched. Returns the milliseconds that the launches took
    when timed, else 0. The GIL is released while kernels run.

    Runs on the device of call.q; stream is a raw stream of it, 0 its default one.
    """

def mha_bwd_workspace_bytes(
    batch: int, seqlen_q: int, seqlen_k: int, nhead_q: int, nhead_k: int, hdim: int
) -> int:
    """Bytes that mha_bwd asks workspace_alloc for; allocates nothing."""

# DeepSeek-V4 sparse MLA. T tokens, H heads, TOPK slots a token, head dim 512, K == V.

class SparseMlaFwdCall:
    """The arguments of one sparse MLA forward. All tensors are contiguous and on one device."""

    # bfloat16 or float16: q [T, H, 512], kv [num_kv, 512], num_kv >= T, H at most 128.
    q: Tensor | None
    kv: Tensor | None
    # int32 [T, TOPK], rows of kv; -1 is an empty slot. Values are checked on "cpu", and on a GPU
    # when MHA_SINK_CHECK=1; elsewhere others than [0, num_kv) count as empty.
    topk_indices: Tensor | None
    # fp32 [H], natural log, already scaled; may be None.
    attn_sink: Tensor | None
    # uint8, sparse_mla_plan_bytes, filled by sparse_mla_plan from equal topk_indices; may be None.
    plan: Tensor | None
    scale: float  # 512 ** -0.5

    # Outputs. Needed by sparse_mla_fwd, optional in check_sparse_mla_fwd.
    o: Tensor | None  # like q
    lse: Tensor | None  # fp32 [T, H], natural log, sink-inclusive

    def __init__(self) -> None: ...

class SparseMlaBwdCall:
    """The arguments of one sparse MLA backward. All tensors are contiguous and on one device."""

    # As in SparseMlaFwdCall; do and o like q.
    q: Tensor | None
    kv: Tensor | None
    do: Tensor | None
    o: Tensor | None
    lse: Tensor | None  # fp32 [T, H], natural log, sink-inclusive
    topk_indices: Tensor | None
    attn_sink: Tensor | None
    # fp32 [T, H], the gradient of lse; None: zero.
    dlse: Tensor | None
    plan: Tensor | None
    scale: float  # 512 ** -0.5
    # Slots that go through the temporary buffers at a time: a multiple of 32 that divides TOPK.
    # None: all.
    r_chunk: int | None

    # Outputs. Needed by sparse_mla_bwd, optional in check_sparse_mla_bwd.
    dq: Tensor | None  # like q
    dkv: Tensor | None  # like kv
    d_sink: Tensor | None  # fp32 [H], overwritten; needs attn_sink; None: not wanted

    def __init__(self) -> None: ...

def check_sparse_mla_fwd(call: SparseMlaFwdCall) -> None:
    """Raises InvalidArgument or Unsupported for what sparse_mla_fwd would refuse; launches nothing.

    Outputs that are None are not checked. Reads topk_indices where their values are checked.
    """

def check_sparse_mla_bwd(call: SparseMlaBwdCall) -> None:
    """As check_sparse_mla_fwd, for sparse_mla_bwd."""

def sparse_mla_fwd(
    call: SparseMlaFwdCall,
    workspace_alloc: Callable[[int, bool], int],
    stream: int = 0,
    timed: bool = False,
) -> float:
    """Checks, then writes o and lse. Callback, result, stream and GIL as in mha_bwd."""

def sparse_mla_bwd(
    call: SparseMlaBwdCall,
    workspace_alloc: Callable[[int, bool], int],
    stream: int = 0,
    timed: bool = False,
) -> float:
    """Checks, then writes dq, dkv and d_sink. Callback, result, stream and GIL as in mha_bwd."""

def sparse_mla_bwd_phases(
    call: SparseMlaBwdCall,
    workspace_alloc: Callable[[int, bool], int],
    stream: int = 0,
    repeats: int = 1,
) -> list[tuple[str, list[str], float]]:
    """sparse_mla_bwd, with the time of each phase in the order in which they run.

    A phase is (name, its kernels, milliseconds: the mean of the repeats). Names: "plan" (absent
    when the call has one), "dq", "dkv_slots", "dkv_gather", "d_sink" (absent without a sink);
    phases of several chunks are summed. Counts of the emulator come by kernel from profile_start
    and profile_stop.
    """

def sparse_mla_plan_bytes(tokens: int, topk: int, num_kv: int) -> int:
    """Bytes of a plan; at least 1. Raises InvalidArgument or Unsupported for sizes without one."""

def sparse_mla_plan(
    topk_indices: Tensor, num_kv: int, plan: Tensor, stream: int = 0, timed: bool = False
) -> float:
    """Checks topk_indices, then fills `plan`, uint8 [sparse_mla_plan_bytes], address a multiple of
    16: the inverted index, the slots without empty ones and their count a token. Result as in
    mha_bwd."""

def sparse_mla_fwd_workspace_bytes(tokens: int, topk: int, has_plan: bool) -> int:
    """Bytes that sparse_mla_fwd asks workspace_alloc for; 0: it does not call it."""

def sparse_mla_bwd_workspace_bytes(
    tokens: int, heads: int, topk: int, num_kv: int, r_chunk: int | None, has_plan: bool
) -> int:
    """Bytes that sparse_mla_bwd asks workspace_alloc for; allocates nothing."""

# Devices by torch's names: "cpu" is the emulator, "cuda:N" GPU N of the HIP runtime.

class Rocm(TypedDict):
    library: str  # the file of the HIP runtime
    driver_version: int  # 70125424 is 7.1.25424
    runtime_version: int
    devices: list[str]  # "cuda:0 (AMD Instinct MI350X)"

def rocm() -> Rocm:
    """The HIP runtime that this process has loaded, else the installed one, and its GPUs.

    Raises Error, "no ROCm device: ...", without one.
    """

def warmup(device: str, stream: int = 0) -> None:
    """Loads every kernel onto a device; Error when stream is being captured into a graph."""

def tile_sizes(hdim: int) -> tuple[int, int]:
    """Query rows that a tile of the row kernels holds, and keys that a workgroup of dq_dk_dv owns
    at head dims up to hdim."""

def list_mha_bwd_launches(
    call: MhaBwdCall,
    workspace_alloc: Callable[[int, bool], int],
    launch: Callable[
        [
            str,
            tuple[int, int, int],
            tuple[int, int, int],
            bytes,
            Sequence[tuple[int, int, bool, str]],
        ],
        object,
    ],
) -> None:
    """Calls launch(kernel, workgroups, workgroup_size, arguments, memory) in place of each launch
    of mha_bwd; nothing runs.

    call, workspace_alloc: as of mha_bwd, in CPU memory.
    memory: (address, bytes, writable, name) of what the kernel may touch. A memset is the kernel
    "memset" with one such entry.
    """

def compare_mha_bwd(
    call: MhaBwdCall,
    device: str,
    starting: Callable[[str], object],
    compared: Callable[[str, tuple[int, int, int], list[tuple[str, bool, bytes, bytes]]], object],
) -> None:
    """Runs mha_bwd on a device and each of its launches in the emulator too, from what the device
    holds before it.

    call: tensors on "cpu", outputs included; nothing in them is written.
    starting(kernel) is called before the device gets a launch, compared(kernel, workgroups,
    buffers) after it: a buffer is (name, written by the kernel, bytes on the device, bytes in the
    emulator). A memset is the kernel "memset". The workspace starts as NaN.
    """

def compare_sparse_mla(
    call: SparseMlaFwdCall | SparseMlaBwdCall,
    device: str,
    starting: Callable[[str], object],
    compared: Callable[[str, tuple[int, int, int], list[tuple[str, bool, bytes, bytes]]], object],
) -> None:
    """As compare_mha_bwd, for sparse_mla_fwd and sparse_mla_bwd."""

# Emulated device.

def set_thread_count(threads: int) -> None:
    """Threads that emulate; MHA_SINK_THREADS in the environment wins. At least 1."""

def thread_count() -> int: ...
def set_schedule(quantum: int, reverse: bool) -> None:
    """Default interleaving of a workgroup's waves: instructions before the next wave runs (0: until
    it blocks), and whether waves take turns in descending order."""

def schedule() -> tuple[int, bool]:
    """The default (quantum, reverse)."""

def set_sanitizer(checks: str) -> None:
    """What emulated launches check: any of "races,waits,hazards,uninit"; "" is nothing. Overrides
    MHA_SINK_SANITIZE. Raises InvalidArgument naming an unknown check."""

def sanitizer() -> str:
    """What emulated launches check, as set_sanitizer takes it."""

class BuildInfo(TypedDict):
    version: str
    hip_compiler: str
    hip_compiler_reason: str
    hip_compiler_version: str
    hip_flags: str
    host_compiler: str

def build_info() -> BuildInfo: ...

class KernelArgument(TypedDict):
    """An entry of the metadata's .args; bytes. `name` is empty where the compiler left it out."""

    name: str
    kind: str  # "global_buffer", "by_value", "hidden_block_count_x"
    offset: int
    size: int

class KernelInfo(TypedDict):
    """What the compiler made of a kernel. Registers are per lane (vgpr, agpr) or wave (sgpr); vgpr
    includes agpr: gfx950 has one file of 512 for both. accvgpr_per_mfma counts accumulator moves
    per MFMA in the hottest loop, 0 without MFMAs. registers: allocated to a lane,
    accumulation_registers included."""

    name: str
    vgpr: int
    agpr: int
    sgpr: int
    lds_bytes: int
    vgpr_spills: int
    scratch_bytes: int
    mfma: int
    accvgpr_per_mfma: float
    registers: int
    accumulation_registers: int
    kernarg_bytes: int
    arguments: list[KernelArgument]

def kernels() -> list[KernelInfo]:
    """Every kernel of the library, read from the embedded code objects."""

def kernel_binary(name: str) -> bytes:
    """The code object (AMDGPU ELF) that the library embeds for a kernel."""

class InstructionMix(TypedDict):
    """Instructions executed, counted once a wave; `classes` splits them by the names
    mfma, accvgpr, valu, trans, lds, vmem, atomic, smem, salu, branch, wait, barrier, nop;
    `mnemonics` by the assembler's, those that were executed."""

    wave_instructions: int
    classes: dict[str, int]
    mnemonics: dict[str, int]

class BufferCounts(TypedDict):
    """Lines of 128 bytes. Buffers that overlap are one, named "q+k+v"."""

    lines: int  # distinct in a launch, summed over launches
    lines_read: int  # of these, loaded; an atomic reads and writes
    lines_written: int
    workgroup_lines: int  # distinct in a workgroup, summed over workgroups

class AccessCounts(TypedDict):
    """What memory instructions did. `sites` has for each static instruction (bytes that lanes
    moved, distinct lines of an execution summed, LDS bytes, LDS clocks with bank conflicts, the
    same without); LDS-DMA counts on both sides."""

    buffers: dict[str, BufferCounts]
    sites: list[tuple[int, int, int, int, int]]

class ModelCounts(TypedDict):
    """Clocks of the timing MODEL until the last wave ends, and those in which units were busy,
    summed over the four SIMDs for mfma, valu and trans. The timeline has (wave, class, begin, end)
    of one workgroup's instructions, neighbours of a class together."""

    clocks: int
    mfma: int
    valu: int
    trans: int
    lds: int
    vmem: int
    timeline: list[tuple[int, str, int, int]]

class LaunchCounts(InstructionMix):
    """`executions` has an entry for each line of `EmulatedObject.disassemble`."""

    executions: list[int]
    accesses: NotRequired[AccessCounts]
    model: NotRequired[dict[tuple[int, int, int], ModelCounts]]  # by x, y and z of the workgroup

class KernelCounts(LaunchCounts):
    launches: int
    workgroups: int
    work_items: int

def profile_start(accesses: bool = False) -> None:
    """From now on every emulated launch is counted, per kernel; forgets earlier counts.

    accesses: count what memory instructions do too, which makes launches several times slower.
    """

def profile_stop() -> dict[str, KernelCounts]:
    """Stops counting; what was counted, by kernel name. Raises Error when nothing was started."""

# Low-level access, for tests of the emulator and of single kernels.

class EmulationError(Error):
    """A code object that cannot be loaded, an instruction that cannot be executed, or an access
    that a GPU would fault on."""

class SanitizerError(EmulationError):
    """A race, missing wait, hazard or uninitialised read that a check of the sanitizer found."""

class EmulatedObject:
    """A gfx950 code object (AMDGPU ELF), loaded and decoded."""

    def __init__(self, elf: bytes, name: str) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def kernels(self) -> list[KernelInfo]: ...
    def disassemble(self, kernel: str) -> str:
        """One line an instruction: address and the assembler's spelling."""

    def instructions(self, kernel: str) -> list[tuple[int, str, str, str]]:
        """Address, mnemonic, class as in InstructionMix, and spelling of each instruction."""

    def source_lines(self, kernel: str) -> list[tuple[str, int] | None]:
        """File and line of each instruction; None where the object's line tables have none."""

    def launch(
        self,
        kernel: str,
        workgroups: tuple[int, int, int],
        workgroup_size: tuple[int, int, int],
        arguments: bytes,
        memory: Sequence[tuple[int, int, bool, str]],
        dynamic_lds: int = 0,
        quantum: int | None = None,
        reverse: bool | None = None,
        accesses: bool = False,
        sanitize: str | None = None,
        sample: Sequence[int] = (),
        modelled: tuple[int, int] | None = None,
        model_parameters: dict[str, float] = {},
        timeline_clocks: int = 0,
    ) -> LaunchCounts:
        """Runs a grid and waits for it.

        arguments: the explicit part of the kernarg segment.
        memory: (address, bytes, writable, name) of all that the kernel may touch.
        quantum, reverse: as set_schedule; None: the default.
        accesses: as of profile_start.
        sanitize: as set_sanitizer; None: the default.
        sample: workgroups to run, numbered with x fastest; none given: all.
        modelled: (resident, workgroups): also what the timing MODEL says of each workgroup that
            ran: of a compute unit that gets so many like it and has room for `resident` at a time.
        model_parameters: by the names of TimingParameters (emulator/timing_model.h).
        timeline_clocks: that a modelled workgroup's timeline covers.
        """
