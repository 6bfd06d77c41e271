#include "mha_sink/mha_bwd.h"

#include "host/checks.h"
#include "host/run_mha_bwd.h"
#include "host/unsupported.h"

namespace mha_sink {

float mha_bwd(const mha_bwd_args& args, const stream_config& stream) {
  return negative_when_unsupported(
      [&] { return run_mha_bwd(check(args), args.workspace_alloc, stream); });
}

}  // namespace mha_sink
