// Worker threads that launches share.
#pragma once

#include <functional>

namespace mha_sink::emulator {

// Calls body on this thread and on up to threads - 1 pool threads at the same time, and returns
// when all calls have returned. Rethrows the first exception that any call threw. The calls divide
// the work among themselves; how many there are is unspecified (at least the one of this thread),
// so that concurrent callers and a machine without spare threads only get slower. Each call runs in
// the default floating-point environment, whatever the caller's.
void run_on_threads(int threads, const std::function<void()>& body);

}  // namespace mha_sink::emulator
