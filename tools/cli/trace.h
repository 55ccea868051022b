// The recorder of `run --trace`: writes changes to a session's KV cache, one JSON object a line.
// Must not know what causes them.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "tools/cli/handles.h"

namespace command {

class Recorder {
  public:
    // Opens the file. `reads`: records reads of pages as well. Throws Failure.
    Recorder(const std::string &path, bool reads);
    Recorder(const Recorder &) = delete;
    Recorder &operator=(const Recorder &) = delete;

    // Returns options for a session that the recorder outlives.
    stasis_trace_options options();
    // Throws Failure if a line could not be written.
    void finish();

  private:
    static void hear(void *user, const stasis_trace_event *event) noexcept;

    const std::string path_;
    const bool reads_;
    std::unique_ptr<std::FILE, Releaser<std::fclose>> file_;
    int error_ = 0; // errno of the first line that could not be written
};

} // namespace command
