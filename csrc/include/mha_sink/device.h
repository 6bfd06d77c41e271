// Where calls run: what stream_config::device_ may be.
#pragma once

namespace mha_sink {

class Device;

// Runs the gfx950 code objects on this machine's processors; memory is the host's own.
Device& emulated_device();

// The GPU of that index, through the HIP runtime that this process has loaded, else the installed
// one. Throws Error, "no ROCm device: ...", where there is none.
Device& rocm_device(int index);

// The GPU whose memory holds `data`, else the emulated device. Opens no HIP runtime: memory of a
// GPU is there only when the process has loaded one.
Device& device_of(const void* data);

// Loads every kernel of the library, which is not possible while a stream is captured into a graph.
// `stream` is one of the device's, null its default one.
void warmup(Device& device, void* stream = nullptr);

}  // namespace mha_sink
