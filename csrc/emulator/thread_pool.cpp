#include "emulator/thread_pool.h"

#include <pthread.h>

#include <atomic>
#include <cfenv>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

namespace mha_sink::emulator {
namespace {

// A caller may have set flush-to-zero or a rounding mode (torch.set_flush_denormal does): emulated
// results must not depend on it. The default environment clears those on x86 too.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() { std::fesetenv(&saved_); }

 private:
  std::fenv_t saved_;
};

struct Job {
  const std::function<void()>* body;
  int helpers_wanted;
  int helpers_running = 0;
  std::exception_ptr error;
};

class Pool {
 public:
  void run(int threads, const std::function<void()>& body) {
    Job job{&body, threads - 1, 0, nullptr};
    {
      std::lock_guard lock(mutex_);
      grow(job.helpers_wanted);
      jobs_.push_back(&job);
    }
    work_.notify_all();
    const std::exception_ptr own_error = call(body);
    std::unique_lock lock(mutex_);
    std::erase(jobs_, &job);
    finished_.wait(lock, [&] { return job.helpers_running == 0; });
    if (own_error) std::rethrow_exception(own_error);
    if (job.error) std::rethrow_exception(job.error);
  }

 private:
  static std::exception_ptr call(const std::function<void()>& body) {
    const DefaultFloatEnvironment environment;
    try {
      body();
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }

  void grow(int size) {
    while (size_ < size) {
      try {
        std::thread([this] { serve(); }).detach();
      } catch (const std::system_error&) {
        return;  // the process may not have more threads: the present ones do the work
      }
      ++size_;
    }
  }

  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [this] { return !jobs_.empty(); });
      Job& job = *jobs_.front();
      ++job.helpers_running;
      if (--job.helpers_wanted == 0) jobs_.pop_front();
      lock.unlock();
      const std::exception_ptr error = call(*job.body);
      lock.lock();
      if (error && !job.error) job.error = error;
      // Under the lock: once the caller sees zero, `job` is gone.
      if (--job.helpers_running == 0) finished_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable work_, finished_;
  std::deque<Job*> jobs_;  // those that want more helpers
  int size_ = 0;
};

// Never destroyed: its threads wait in it until the process ends.
std::atomic<Pool*> pool{nullptr};

// A forked child has none of the threads, and the pool's mutex may have been locked: start afresh.
const int fork_handler_registered =
    pthread_atfork(nullptr, nullptr, [] { pool.store(nullptr, std::memory_order_relaxed); });

Pool& current_pool() {
  Pool* current = pool.load(std::memory_order_acquire);
  if (current != nullptr) return *current;
  auto fresh = std::make_unique<Pool>();
  if (pool.compare_exchange_strong(current, fresh.get(), std::memory_order_acq_rel)) {
    return *fresh.release();
  }
  return *current;
}

}  // namespace

void run_on_threads(int threads, const std::function<void()>& body) {
  if (fork_handler_registered != 0) threads = 1;
  if (threads > 1) return current_pool().run(threads, body);
  const DefaultFloatEnvironment environment;
  body();
}

}  // namespace mha_sink::emulator
