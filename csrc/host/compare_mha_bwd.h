// One dense attention backward on a device, each launch beside the emulator's.
#pragma once

#include "device/compared.h"
#include "host/checks.h"

namespace mha_sink {

// `call` describes host memory ("cpu"), outputs included; nothing there is written. Its tensors are
// copied into memory of `device`, whose workspace starts as NaN. Throws as mha_bwd does.
void compare_mha_bwd(const MhaBwdCall& call, Device& device, LaunchObserver& observer);

}  // namespace mha_sink
