// Where a call runs and how it is timed.
#pragma once

namespace mha_sink {

class Device;

// ck_tile's fields in ck_tile's order, then the device.
struct stream_config {
  void* stream_id_ = nullptr;  // hipStream_t of device_; the emulated device runs in call order
  bool time_kernel_ = false;   // return milliseconds: the mean of nrepeat_ runs after cold_niters_
  int log_level_ = 0;          // > 0: name each launch on stderr
  int cold_niters_ = 3;
  int nrepeat_ = 10;
  bool is_gpu_timer_ = true;  // the device's events; false, and on the emulated device: host clock
  bool flush_cache_ = false;  // accepted and ignored: every timed run is warm
  int rotating_count_ = 1;    // likewise

  // mha_sink/device.h. nullptr: device_of the inputs.
  Device* device_ = nullptr;
};

}  // namespace mha_sink
