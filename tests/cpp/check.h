// What the C++ tests share: checks that report and go on, and a summary for main.
#pragma once

#include <cstdio>
#include <string>

namespace mha_sink::test {

inline int& failures() {
  static int count = 0;
  return count;
}

inline bool expect(bool condition, const std::string& what) {
  if (!condition) {
    ++failures();
    std::fprintf(stderr, "FAILED: %s\n", what.c_str());
  }
  return condition;
}

// Runs `call`, expects an Exception whose message holds `part`.
template <class Exception, class Call>
void expect_throw(Call&& call, const std::string& part, const std::string& what) {
  try {
    call();
    expect(false, what + ": nothing thrown");
  } catch (const Exception& error) {
    expect(std::string(error.what()).find(part) != std::string::npos,
           what + ": \"" + error.what() + "\" does not name \"" + part + "\"");
  } catch (const std::exception& error) {
    expect(false, what + ": another exception: " + error.what());
  }
}

// For main to return.
inline int summary() {
  if (failures() > 0) std::fprintf(stderr, "%d checks failed\n", failures());
  return failures() == 0 ? 0 : 1;
}

}  // namespace mha_sink::test
