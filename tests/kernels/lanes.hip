// Data movement between lanes: DPP, permlane swaps, transposed LDS reads, ds permutes.
#include "gfx950.h"

namespace {

// Lanes whose source does not exist keep `old`; with kZero they get 0.
template <int kControl, int kRowMask = 0xf, int kBankMask = 0xf, bool kZero = false>
DEVICE void dpp(uint32_t value, uint32_t*& out) {
  const uint32_t old = 1000 + lane_id();
  out[lane_id()] = __builtin_amdgcn_update_dpp(old, value, kControl, kRowMask, kBankMask, kZero);
  out += 64;
}

}  // namespace

// One row of 64 results a control, in the order of the test's table.
KERNEL dpp_moves(const uint32_t* x, uint32_t* out) {
  const uint32_t value = x[lane_id()];
  dpp<0x1b>(value, out);                   // quad_perm [3,2,1,0]
  dpp<0x4e>(value, out);                   // quad_perm [2,3,0,1]
  dpp<0xa0>(value, out);                   // quad_perm [0,0,2,2]
  dpp<0x101>(value, out);                  // row_shl 1
  dpp<0x10f>(value, out);                  // row_shl 15
  dpp<0x111>(value, out);                  // row_shr 1
  dpp<0x118>(value, out);                  // row_shr 8
  dpp<0x118, 0xf, 0xf, true>(value, out);  // row_shr 8, zero
  dpp<0x123>(value, out);                  // row_ror 3
  dpp<0x130>(value, out);                  // wave_shl 1
  dpp<0x134>(value, out);                  // wave_rol 1
  dpp<0x138>(value, out);                  // wave_shr 1
  dpp<0x13c>(value, out);                  // wave_ror 1
  dpp<0x140>(value, out);                  // row_mirror
  dpp<0x141>(value, out);                  // row_half_mirror
  dpp<0x142>(value, out);                  // row_bcast 15
  dpp<0x142, 0xa>(value, out);             // row_bcast 15, rows 1 and 3
  dpp<0x143, 0xc>(value, out);             // row_bcast 31, rows 2 and 3
  dpp<0x155>(value, out);                  // row_newbcast 5
  dpp<0x1b, 0x5, 0x3>(value, out);         // quad_perm, rows 0 and 2, banks 0 and 1
}

// The upper half of the lanes is switched off: a source in it does not exist for its readers.
KERNEL dpp_half_exec(const uint32_t* x, uint32_t* out) {
  const uint32_t value = x[lane_id()];
  out[lane_id()] = 7;
  if (lane_id() % 16 < 8) {
    out[lane_id()] = __builtin_amdgcn_update_dpp(1000 + lane_id(), value, 0x140, 0xf, 0xf, false);
  }
}

KERNEL permlane_swaps(const uint32_t* x, const uint32_t* y, uint32_t* out) {
  const auto by16 = __builtin_amdgcn_permlane16_swap(x[lane_id()], y[lane_id()], false, false);
  const auto by32 = __builtin_amdgcn_permlane32_swap(x[lane_id()], y[lane_id()], false, false);
  out[lane_id()] = by16[0];
  out[64 + lane_id()] = by16[1];
  out[128 + lane_id()] = by32[0];
  out[192 + lane_id()] = by32[1];
}

// Lane l addresses 4 elements at index addresses[l] of the 1024 of x; out gets what it receives.
KERNEL read_transposed(const uint16_t* x, const uint32_t* addresses, u16x4* out) {
  LDS static uint16_t shared[1024];
  for (uint32_t i = lane_id(); i < 1024; i += 64) shared[i] = x[i];
  workgroup_barrier();
  using Vector = short __attribute__((vector_size(8)));
  const Vector result =
      __builtin_amdgcn_ds_read_tr16_b64_v4i16((LdsPointer<Vector>)&shared[addresses[lane_id()]]);
  out[lane_id()] = __builtin_bit_cast(u16x4, result);
}

KERNEL lds_permutes(const uint32_t* x, const uint32_t* lanes, uint32_t* out) {
  const int address = lanes[lane_id()] * 4;
  out[lane_id()] = __builtin_amdgcn_ds_bpermute(address, x[lane_id()]);
  out[64 + lane_id()] = __builtin_amdgcn_ds_permute(address, x[lane_id()]);
}

KERNEL lane_reads(const uint32_t* x, uint32_t* out, uint32_t lane) {
  out[lane_id()] = __builtin_amdgcn_readlane(x[lane_id()], lane);
  out[64 + lane_id()] = __builtin_amdgcn_readfirstlane(x[lane_id()]);
  const uint64_t odd = __builtin_amdgcn_uicmp(x[lane_id()] & 1, 1u, 32);
  out[128 + lane_id()] = __builtin_amdgcn_mbcnt_hi(odd >> 32, __builtin_amdgcn_mbcnt_lo(odd, 0));
}
