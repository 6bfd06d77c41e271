#include <iterator>
#include <random>
#include <string_view>

#include "benchmark/option_parser.h"
#include "benchmark/sparse_mla_problem.h"

namespace mha_sink::benchmark {
namespace {

using O = SparseMlaOptions;
using V = OptionValue;

constexpr OptionRow<O> kRows[] = {
    {"T", "4096", "tokens", [](O& o, const V& v) { o.tokens = v.integer(); }},
    {"H", "128", "heads", [](O& o, const V& v) { o.nhead = v.integer(); }},
    {"topk", "512", "slots a token", [](O& o, const V& v) { o.topk = v.integer(); }},
    {"num_pool", "1024", "rows of the compressed pool",
     [](O& o, const V& v) { o.num_pool = v.count(0); }},
    {"window", "128", "tokens up to its own that a token sees",
     [](O& o, const V& v) { o.window = v.count(0); }},
    {"ratio", "4", "tokens that a row of the pool stands for",
     [](O& o, const V& v) { o.ratio = v.count(1); }},
    {"indices", "pool", "pool: window, then random rows of the pool; uniform: any rows",
     [](O& o, const V& v) { o.indices = v.one_of({"pool", "uniform"}); }},
    {"r_chunk", "0", "slots that go through the temporary buffers at a time; 0: all",
     [](O& o, const V& v) { o.r_chunk = v.integer(); }},
    {"sink", "1", "1: a learnable sink and its gradient",
     [](O& o, const V& v) { o.sink = v.boolean(); }, true},
    {"plan", "0", "1: the plan is made before and not part of the call",
     [](O& o, const V& v) { o.plan = v.boolean(); }, true},
    {"prec", "bf16", "fp16 or bf16", [](O& o, const V& v) { o.prec = v.one_of({"fp16", "bf16"}); }},
    {"seed", "11939", "of the inputs; 0: another one each time",
     [](O& o, const V& v) { o.seed = v.natural(); }},
    {"v", "1", "1: validate a sample of tokens and rows in double precision",
     [](O& o, const V& v) { o.validate = v.boolean(); }, true},
    {"breakdown", "0", "1: the phases of the call too",
     [](O& o, const V& v) { o.breakdown = v.boolean(); }, true},
    {"warmup", "10", "untimed runs before the timed ones",
     [](O& o, const V& v) { o.warmup = v.count(0); }},
    {"repeat", "10", "timed runs, of which the median is reported",
     [](O& o, const V& v) { o.repeat = v.count(1); }},
    {"device", "auto", "rocm, emulated, or auto: rocm where there is a GPU",
     [](O& o, const V& v) { o.device = v.one_of({"auto", "rocm", "emulated"}); }},
    {"kname", "0", "1: name the launches of a call on stderr",
     [](O& o, const V& v) { o.print_kernels = v.boolean(); }, true},
    {"json", "0", "1: one JSON object instead of text",
     [](O& o, const V& v) { o.json = v.boolean(); }, true},
    {"help", "0", "print this", [](O& o, const V& v) { o.help = v.boolean(); }, true},
};
static_assert(std::string_view(std::end(kRows)[-1].name) == "help");

}  // namespace

int SparseMlaOptions::num_kv() const {
  return tokens + (indices == "uniform" || topk > window ? num_pool : 0);
}

SparseMlaOptions parse_sparse_mla_options(int argc, char** argv) {
  SparseMlaOptions o;
  if (parse_rows<O>(kRows, argc, argv, o)) return o;
  while (o.seed == 0) o.seed = std::random_device()();
  if (o.indices == "pool") {
    if (o.topk < o.window) {
      throw BadOption("topk: " + std::to_string(o.topk) + " given, at least the window, " +
                      std::to_string(o.window) + ", needed");
    }
    if (o.topk - o.window > o.num_pool) {
      throw BadOption("num_pool: " + std::to_string(o.num_pool) +
                      " given, at least topk - window, " + std::to_string(o.topk - o.window) +
                      ", needed");
    }
  }
  return o;
}

std::string sparse_mla_help_text() {
  return "benchmark_sparse_mla_bwd: DeepSeek-V4 sparse MLA backward, checked and measured.\n"
         "\n"
         "On a GPU it times whole calls with events, with a cold and a warm L2, and each phase. "
         "On\n"
         "the emulated device it counts what the kernels execute; there is no time to report.\n"
         "\n"
         "Options are -name=value or -name value.\n"
         "\n" +
         describe_rows<O>(kRows) +
         "\n"
         "Validation: a sample of tokens (o, lse, dq) and rows (dkv), and d_sink, may each differ\n"
         "from the double-precision value by twice the error of a reference that rounds as the\n"
         "kernels do, plus 2^-20 of the largest value. Gradients are those of the formulas, from\n"
         "the o and lse that the forward kernel gave.\n"
         "\n"
         "Exit codes: 0 ok, 1 validation failed, 2 bad arguments, 3 not supported, 4 could not "
         "run\n"
         "(out of memory, a failing launch).\n";
}

}  // namespace mha_sink::benchmark
