#include "host/unsupported.h"

#include "mha_sink/mha_bwd.h"

namespace mha_sink {
namespace {

std::string& reason_of_this_thread() {
  thread_local std::string reason;
  return reason;
}

}  // namespace

void set_unsupported_reason(const std::string& reason) { reason_of_this_thread() = reason; }

const std::string& unsupported_reason() { return reason_of_this_thread(); }

}  // namespace mha_sink
