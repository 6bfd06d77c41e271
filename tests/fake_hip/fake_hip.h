// How a test directs and questions the fake HIP runtime. Exported beside HIP's own functions; look
// them up with dlsym or ctypes. Devices, streams, modules and memory are as the HIP functions say.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Devices that there are, 2 at first.
void fake_hip_set_device_count(int count);

// Host memory that from now on counts as a device's, as a test's tensors do. hipMalloc's own is
// unreadable for the host except while the device works.
void fake_hip_own(const void* data, size_t bytes, int device);
void fake_hip_disown(const void* data);

// The nth call of a HIP function from now on, counted from 1, does nothing but return `status`.
void fake_hip_fail(const char* function, int nth, int status);

// In modules loaded from now on: `words` of a kernel's code from `offset` bytes after its entry.
void fake_hip_patch(const char* kernel, uint32_t offset, const uint32_t* words, size_t count);

// Calls of a HIP function since the process began.
int fake_hip_calls(const char* function);

// Launches, memsets and copies that a stream holds and has not done: work is done when something
// waits for it, in the stream's order.
int fake_hip_pending(void* stream);

// Why the last HIP call of the process that failed by itself did; "" when none did.
const char* fake_hip_message();

}  // extern "C"
