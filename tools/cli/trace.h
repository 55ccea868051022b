// The recorder of `run --trace`: what happens to a session's KV cache, a JSON object a line.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "tools/cli/handles.h"

namespace command {

class Recorder {
  public:
    // `reads`: of pages as well. Throws Failure.
    Recorder(const std::string &path, bool reads);
    Recorder(const Recorder &) = delete;
    Recorder &operator=(const Recorder &) = delete;

    // For a session that the recorder outlives.
    stasis_trace_options options();
    // Throws Failure if not all could be written.
    void finish();

  private:
    static void hear(void *user, const stasis_trace_event *event) noexcept;

    const std::string path_;
    const bool reads_;
    std::unique_ptr<std::FILE, Releaser<std::fclose>> file_;
    int error_ = 0; // errno of the first line that could not be written
};

} // namespace command
