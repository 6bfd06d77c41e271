// Where a call runs and how it is timed.
#pragma once

namespace mha_sink {

class Device;

// ck_tile's fields in ck_tile's order, then the device.
struct stream_config {
  void* stream_id_ = nullptr;  // hipStream_t; the emulated device runs everything in call order
  bool time_kernel_ = false;   // return milliseconds: the mean of nrepeat_ runs after cold_niters_
  int log_level_ = 0;          // > 0: name each launch on stderr
  int cold_niters_ = 3;
  int nrepeat_ = 10;
  bool is_gpu_timer_ = true;  // needs a GPU: the emulated device is timed with the host's clock
  bool flush_cache_ = false;  // GPU only
  int rotating_count_ = 1;    // GPU only

  Device* device_ = nullptr;  // nullptr: the default device, which is the emulated one
};

}  // namespace mha_sink
