// Memory that fails once, on demand: the C heap, and with it the C++ heap and the host's allocator,
// for all threads of the program and all libraries in it.
#pragma once

#include <cstdint>

#include "tests/sanitizers.h"

namespace failures {

// From now on the n-th allocation (from 0) of whatever thread fails, once.
void fail_allocation(int64_t n);

// The outcome: no allocation has this number; it failed; or it was spared, because libsentencepiece
// made it. The protobuf inside that library cannot handle a failed allocation: a message that could
// not be completed fails a check of its own in its destructor (arenastring.h:363,
// "!tagged_ptr_.IsTagged()"), which prints and ends the process. The last is for what the address
// sanitizer asks of the C library when a thread starts.
enum class Allocation { none, failed, spared, of_sanitizer };
Allocation end_of_failing();

// While one lives, nothing fails: for what a test's own callbacks allocate inside a call.
class Quiet {
  public:
    Quiet();
    ~Quiet();
    Quiet(const Quiet &) = delete;
    Quiet &operator=(const Quiet &) = delete;

  private:
    int64_t left_;
};

} // namespace failures
