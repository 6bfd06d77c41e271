// One sparse MLA forward or backward on a device, each launch beside the emulator's.
#pragma once

#include "device/compared.h"
#include "host/checks_sparse_mla.h"

namespace mha_sink {

// As compare_mha_bwd.
void compare_sparse_mla(const SparseMlaFwdCall& call, Device& device, LaunchObserver& observer);
void compare_sparse_mla(const SparseMlaBwdCall& call, Device& device, LaunchObserver& observer);

}  // namespace mha_sink
