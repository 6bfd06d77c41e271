// Damaged calls of mha_bwd.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "fuzz_mutate.h"
#include "mha_sink/mha_bwd.h"

namespace mha_sink::test {

// The call's tensors, each with room for the growth that a damaged size or stride may ask for: the
// emulated device believes what a caller says of its memory, as a GPU would.
class DamagedCall {
 public:
  DamagedCall(Dice& dice, Attention& problem) : dice_(dice), args_(problem.args()) {
    for (const void* mha_bwd_args::* input : kInputs) move(args_.*input, problem);
    for (void* mha_bwd_args::* output : kOutputs) move(args_.*output, problem);
    if (dice.once_in(2)) args_.data_type = "fp16";
    if (dice.once_in(3)) group();
    args_.workspace_alloc = [this](size_t bytes, bool) -> void* {
      if (bytes > kWorkspaceBytes) return nullptr;
      workspace_.resize(bytes);
      return workspace_.data();
    };
    for (uint64_t left = 1 + dice.below(3); left > 0; --left) damage();
  }

  // The callback refers to this.
  DamagedCall(const DamagedCall&) = delete;
  DamagedCall& operator=(const DamagedCall&) = delete;

  const mha_bwd_args& args() const { return args_; }

 private:
  static constexpr size_t kGrowth = 64, kWorkspaceBytes = size_t{64} << 20;

  static constexpr const void* mha_bwd_args::* kInputs[] = {
      &mha_bwd_args::q_ptr,  &mha_bwd_args::k_ptr,   &mha_bwd_args::v_ptr,   &mha_bwd_args::o_ptr,
      &mha_bwd_args::do_ptr, &mha_bwd_args::lse_ptr, &mha_bwd_args::sink_ptr};
  static constexpr void* mha_bwd_args::* kOutputs[] = {&mha_bwd_args::dq_ptr, &mha_bwd_args::dk_ptr,
                                                       &mha_bwd_args::dv_ptr, &mha_bwd_args::d_ptr,
                                                       &mha_bwd_args::d_sink_ptr};
  // Of these group mode takes all but the first.
  static constexpr const void* mha_bwd_args::* kUnsupported[] = {
      &mha_bwd_args::bias_ptr, &mha_bwd_args::seqstart_q_ptr, &mha_bwd_args::seqlen_k_ptr,
      &mha_bwd_args::cu_seqlen_q_ptr};
  static constexpr int mha_bwd_args::* kSizes[] = {&mha_bwd_args::batch,    &mha_bwd_args::seqlen_q,
                                                   &mha_bwd_args::seqlen_k, &mha_bwd_args::nhead_q,
                                                   &mha_bwd_args::nhead_k,  &mha_bwd_args::hdim_q,
                                                   &mha_bwd_args::hdim_v};
  static constexpr int mha_bwd_args::* kChoices[] = {
      &mha_bwd_args::mask_type, &mha_bwd_args::bias_type, &mha_bwd_args::window_size_left,
      &mha_bwd_args::window_size_right, &mha_bwd_args::max_seqlen_q};
  static constexpr int64_t mha_bwd_args::* kStrides[] = {
      &mha_bwd_args::stride_q,          &mha_bwd_args::stride_k,
      &mha_bwd_args::stride_do,         &mha_bwd_args::stride_dq,
      &mha_bwd_args::stride_dk,         &mha_bwd_args::nhead_stride_q,
      &mha_bwd_args::nhead_stride_v,    &mha_bwd_args::nhead_stride_lsed,
      &mha_bwd_args::nhead_stride_dq,   &mha_bwd_args::nhead_stride_dv,
      &mha_bwd_args::batch_stride_q,    &mha_bwd_args::batch_stride_o,
      &mha_bwd_args::batch_stride_lsed, &mha_bwd_args::batch_stride_dk};
  static constexpr bool mha_bwd_args::* kFlags[] = {
      &mha_bwd_args::is_group_mode, &mha_bwd_args::has_dbias, &mha_bwd_args::has_dropout,
      &mha_bwd_args::is_deterministic};

  // Packs the call's rows of one batch entry. No contents of the lengths are refused here: none may
  // lead outside the tensors.
  void group() {
    args_.is_group_mode = true;
    for (auto& lengths : lengths_) {
      int32_t row = 0;
      for (int32_t& value : lengths) {
        value = row += static_cast<int32_t>(dice_.below(20));
        if (dice_.once_in(20)) {
          value = dice_.pick({-1, 1 << 20, std::numeric_limits<int32_t>::max(),
                              std::numeric_limits<int32_t>::min()});
        }
      }
    }
    args_.seqstart_q_ptr = lengths_[0].data();
    args_.seqstart_k_ptr = lengths_[1].data();
    if (dice_.once_in(2)) args_.cu_seqlen_q_ptr = lengths_[2].data();
    if (dice_.once_in(2)) args_.seqlen_k_ptr = lengths_[3].data();
  }

  template <class Pointer>
  void move(Pointer& pointer, const Attention& problem) {
    const size_t bytes = problem.q.size() * sizeof(float);  // no tensor is larger
    // Zeros that take no memory until they are touched.
    arenas_.emplace_back(std::calloc(bytes, kGrowth), &std::free);
    pointer = arenas_.back().get();
  }

  template <class T>
  static void shift(T*& pointer, uint64_t bytes) {
    pointer = reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(pointer) + bytes);
  }

  // Half or double; what was damaged before stays as it is.
  template <class T>
  T resized(T size) {
    if (size <= 0 || size > 1 << 20) return size;
    return dice_.once_in(2) ? size / 2 : 2 * size;
  }

  // Every size is refused, or at most twice the original: strides as well, so that three of them
  // stay within kGrowth.
  void damage() {
    constexpr int kMost = std::numeric_limits<int>::max(), kLeast = std::numeric_limits<int>::min();
    switch (dice_.below(8)) {
      case 0: {
        int& size = args_.*dice_.pick(kSizes);
        size = dice_.pick({0, -1, 1, resized(size), kMost, kLeast});
        break;
      }
      case 1: {
        int64_t& stride = args_.*dice_.pick(kStrides);
        stride =
            dice_.pick({int64_t{0}, int64_t{-1}, int64_t{1}, resized(stride), int64_t{1} << 62,
                        std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()});
        break;
      }
      case 2: {
        const void*& input = args_.*dice_.pick(kInputs);
        if (dice_.once_in(3)) {
          input = nullptr;
        } else if (dice_.once_in(2)) {
          shift(input, 1 + dice_.below(15));
        } else {
          input = args_.*dice_.pick(kOutputs);
        }
        break;
      }
      case 3: {
        void*& output = args_.*dice_.pick(kOutputs);
        if (dice_.once_in(3)) {
          output = nullptr;
        } else if (dice_.once_in(2)) {
          shift(output, 1 + dice_.below(15));
        } else {
          output = args_.*dice_.pick(kOutputs);
        }
        break;
      }
      case 4:
        args_.*dice_.pick(kChoices) = dice_.pick({0, 1, 2, 3, 4, -1, -2, 17, kMost, kLeast});
        break;
      case 5:
        (dice_.once_in(2) ? args_.scale : args_.p_drop) =
            dice_.pick({0.0f, -1.0f, 1e-40f, 1e30f, -0.5f, 1.0f, INFINITY, NAN});
        break;
      case 6:
        if (dice_.once_in(2)) {
          args_.*dice_.pick(kFlags) = true;
        } else {
          args_.*dice_.pick(kUnsupported) = args_.q_ptr;
        }
        break;
      default:
        if (dice_.once_in(2)) {
          args_.data_type = dice_.pick(std::array<std::string, 4>{"", "fp32", "bf16", "\xff\n"});
        } else {
          args_.workspace_alloc = nullptr;
        }
    }
  }

  Dice& dice_;
  mha_bwd_args args_;
  std::vector<std::unique_ptr<void, decltype(&std::free)>> arenas_;
  std::vector<std::byte> workspace_;
  std::array<int32_t, 64> lengths_[4];  // more than any batch's
};

}  // namespace mha_sink::test
