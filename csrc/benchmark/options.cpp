#include "benchmark/options.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "benchmark/group_lengths.h"
#include "benchmark/option_parser.h"
#include "benchmark/option_value.h"

namespace mha_sink::benchmark {
namespace {

// Before what depends on other options is resolved.
struct Pending {
  Options options;
  bool batch_given = false;
};

using Row = OptionRow<Pending>;

// CK's `e` and `a` spellings may carry a shape after a colon.
int bias_type(const OptionValue& value) {
  const std::string kind = value.text().substr(0, value.text().find(':'));
  if (kind == "n" || kind == "0") return 0;
  if (kind == "e" || kind == "1") return 1;
  if (kind == "a" || kind == "2") return 2;
  value.bad("one of n, e, e:1, e:2, a, a:1");
}

// Routing of aiter's two back ends, and dropout's random numbers: checked, without effect here.
void ignore_boolean(Pending&, const OptionValue& value) { value.boolean(); }
void ignore_natural(Pending&, const OptionValue& value) { value.natural(); }

constexpr Row kRows[] = {
    {"b", "2", "batch; in group mode the number of sequences, which lens_q may say instead",
     [](Pending& p, const OptionValue& v) { p.options.batch = v.integer(); }},
    {"h", "8", "query heads",
     [](Pending& p, const OptionValue& v) { p.options.nhead_q = v.integer(); }},
    {"h_k", "-1", "KV heads, a divisor of h; -1: h",
     [](Pending& p, const OptionValue& v) { p.options.nhead_k = v.integer(); }},
    {"s", "3328", "query length",
     [](Pending& p, const OptionValue& v) { p.options.seqlen_q = v.integer(); }},
    {"s_k", "-1", "key length; -1: s",
     [](Pending& p, const OptionValue& v) { p.options.seqlen_k = v.integer(); }},
    {"d", "128", "head dim of q and k",
     [](Pending& p, const OptionValue& v) { p.options.hdim_q = v.integer(); }},
    {"d_v", "-1", "head dim of v; -1: d",
     [](Pending& p, const OptionValue& v) { p.options.hdim_v = v.integer(); }},
    {"scale", "0", "factor on q.k; 0: 1/sqrt(d)",
     [](Pending& p, const OptionValue& v) { p.options.scale = v.real(); }},
    {"iperm", "1", "layout of q, k, v, dq, dk, dv: 1 b,h,s,d; 0 b,s,h,d",
     [](Pending& p, const OptionValue& v) { p.options.iperm = v.boolean(); }, true},
    {"operm", "1", "layout of o and do, likewise",
     [](Pending& p, const OptionValue& v) { p.options.operm = v.boolean(); }, true},
    {"prec", "fp16", "fp16 or bf16",
     [](Pending& p, const OptionValue& v) { p.options.prec = v.one_of({"fp16", "bf16"}); }},
    {"mask", "0",
     "0 none; 1 or t causal top-left; 2 or b causal bottom-right; t:l,r or b:l,r window with l "
     "keys to the left of the diagonal and r to its right, -1 unbounded; xt:w or xb:w window of w "
     "keys around it; g:y,x generic",
     [](Pending& p, const OptionValue& v) { p.options.mask = parse_mask(v.text()); }},
    {"sink", "0", "1: a learnable sink, heads in turn at -20, -2, 0, 2, 20 from their mean lse",
     [](Pending& p, const OptionValue& v) { p.options.sink = v.boolean(); }, true},
    {"d_sink", "0", "1: and its gradient",
     [](Pending& p, const OptionValue& v) { p.options.d_sink = v.boolean(); }, true},
    {"deterministic", "0", "1: results that do not depend on the order of workgroups",
     [](Pending& p, const OptionValue& v) { p.options.deterministic = v.boolean(); }, true},
    {"mode", "0",
     "0 batch; 1 group: sequences lie one after another, [h, total, d] or [total, h, d]",
     [](Pending& p, const OptionValue& v) { p.options.group_mode = v.boolean(); }},
    {"lens_q", "-1",
     "group mode: query lengths of the sequences, as 3,0,70; -1: random ones, uniform from s/2 to "
     "3*s/2, by seed",
     [](Pending& p, const OptionValue& v) { p.options.lens_q = v.lengths(); }},
    {"lens_k", "-1",
     "their key lengths; -1: as lens_q, or, when that is random and s_k given, random around s_k",
     [](Pending& p, const OptionValue& v) { p.options.lens_k = v.lengths(); }},
    {"pad_q", "-1", "rows that each takes up, of which the last are padding; -1: no padding",
     [](Pending& p, const OptionValue& v) { p.options.pad_q = v.lengths(); }},
    {"pad_k", "-1", "likewise of keys",
     [](Pending& p, const OptionValue& v) { p.options.pad_k = v.lengths(); }},
    {"bias", "n", "n none, e elementwise, a alibi",
     [](Pending& p, const OptionValue& v) { p.options.bias_type = bias_type(v); }},
    {"dbias", "0", "1: gradient of the bias",
     [](Pending& p, const OptionValue& v) { p.options.dbias = v.boolean(); }, true},
    {"p_drop", "0", "dropout probability",
     [](Pending& p, const OptionValue& v) { p.options.p_drop = v.real(); }},
    {"init", "1", "inputs: 0 integers in [-2, 2]; 1 floats in [-1, 1]; 2 sines and cosines",
     [](Pending& p, const OptionValue& v) {
       p.options.init = *parse_number<int>(v.one_of({"0", "1", "2"}));
     }},
    {"seed", "11939", "of the inputs; 0: another one each time",
     [](Pending& p, const OptionValue& v) { p.options.seed = v.natural(); }},
    {"v", "1", "1: validate against a double-precision reference on the CPU",
     [](Pending& p, const OptionValue& v) { p.options.validate = v.boolean(); }, true},
    {"warmup", "10", "untimed runs before the timed ones",
     [](Pending& p, const OptionValue& v) { p.options.warmup = v.count(0); }},
    {"repeat", "10", "timed runs, of which the median is reported",
     [](Pending& p, const OptionValue& v) { p.options.repeat = v.count(1); }},
    {"device", "auto", "rocm, emulated, or auto: rocm where there is a GPU",
     [](Pending& p, const OptionValue& v) {
       p.options.device = v.one_of({"auto", "rocm", "emulated"});
     }},
    {"timer", "gpu", "gpu: events on the GPU's stream",
     [](Pending& p, const OptionValue& v) { p.options.timer = v.one_of({"gpu", "cpu"}); }},
    {"kname", "0", "1: name the launches of a call on stderr",
     [](Pending& p, const OptionValue& v) { p.options.print_kernels = v.boolean(); }, true},
    {"json", "0", "1: one JSON object instead of text",
     [](Pending& p, const OptionValue& v) { p.options.json = v.boolean(); }, true},
    {"drop_seed", "1", "without effect", ignore_natural},
    {"drop_offset", "0", "without effect", ignore_natural},
    {"drop_prefs", "0", "without effect", ignore_boolean, true},
    {"bwd_v3", "0", "without effect: there is one route", ignore_boolean, true},
    {"v3_atomic_fp32", "1", "without effect", ignore_boolean, true},
    {"v3_bf16_cvt", "1", "without effect", ignore_natural},
    {"v3_api_check", "0", "without effect", ignore_boolean, true},
    {"help", "0", "print this",
     [](Pending& p, const OptionValue& v) { p.options.help = v.boolean(); }, true},
};

static_assert(std::string_view(std::end(kRows)[-1].name) == "help");

void resolve_lengths(Options& o, bool batch_given) {
  if (o.group_mode) return resolve_group_lengths(o, batch_given);
  if (o.seqlen_k == -1) o.seqlen_k = o.seqlen_q;
  const std::pair<const char*, const std::vector<int>*> lists[] = {
      {"lens_q", &o.lens_q}, {"lens_k", &o.lens_k}, {"pad_q", &o.pad_q}, {"pad_k", &o.pad_k}};
  for (const auto& [name, list] : lists) {
    if (!list->empty())
      throw BadOption(std::string(name) + ": a list given, -mode=1 with it needed");
  }
}

void resolve(Pending& pending) {
  Options& o = pending.options;
  if (o.nhead_k == -1) o.nhead_k = o.nhead_q;
  if (o.hdim_v == -1) o.hdim_v = o.hdim_q;
  if (o.scale == 0) o.scale = static_cast<float>(1 / std::sqrt(std::max(o.hdim_q, 1)));
  if (o.d_sink && !o.sink) throw BadOption("d_sink: 1 given, -sink=1 with it needed");
  while (o.seed == 0) o.seed = std::random_device()();
  resolve_lengths(o, pending.batch_given);
}

}  // namespace

Options parse_options(int argc, char** argv) {
  Pending pending;
  const auto given = [&](const Row& row) {
    if (row.name == std::string_view("b")) pending.batch_given = true;
  };
  if (parse_rows<Pending>(kRows, argc, argv, pending, given)) return pending.options;
  resolve(pending);
  return pending.options;
}

std::string help_text() {
  std::string text =
      "benchmark_mha_bwd: attention backward with a learnable sink, checked and measured.\n"
      "\n"
      "On a GPU it times whole calls with events, with a cold and a warm L2, and each kernel. On\n"
      "the emulated device it counts what the kernels execute; there is no time to report.\n"
      "\n"
      "Options are -name=value or -name value. Names and defaults are CK's and aiter's; -sink,\n"
      "-d_sink, -lens_q, -lens_k, -pad_q, -pad_k, -device and -json are added.\n"
      "\n";
  text += describe_rows<Pending>(kRows);
  return text +
         "\n"
         "Validation: dq, dk, dv and the row sums delta of each sequence (in batch mode: of each "
         "batch\n"
         "entry), and d_sink, may differ from the double-precision value by twice the error of a\n"
         "reference that rounds as the kernels do (P, dS and results to the dtype, fp32 sums), "
         "plus\n"
         "2^-20 of the largest value. What this reference misses by a tenth of the largest value "
         "cannot\n"
         "be judged, and fails. Padding must come out as 0. Shown is the sequence that is worst "
         "off.\n"
         "\n"
         "Exit codes: 0 ok, 1 validation failed, 2 bad arguments, 3 not supported, 4 could not "
         "run\n"
         "(out of memory, a failing launch).\n";
}

}  // namespace mha_sink::benchmark
