// Snapshots as the command reads and writes them: in files, and in the standard streams for "-".
#pragma once

#include <string>

#include "tools/cli/handles.h"
#include "tools/cli/terminal.h"

namespace command {

// Returns whether a file name is "-"; a file of that name is "./-".
bool is_stream(const std::string &path);

// Returns a source that reads standard input. Throws Failure if that is a terminal.
stasis_source input_source();

// Reserves standard output for a snapshot while it lives; printed text goes to standard error.
// Throws Failure if standard output is a terminal.
class OutputForSnapshot {
  public:
    OutputForSnapshot();
    ~OutputForSnapshot();
    OutputForSnapshot(const OutputForSnapshot &) = delete;
    OutputForSnapshot &operator=(const OutputForSnapshot &) = delete;
    stasis_sink sink();

  private:
    int descriptor_;
};

// Opens a snapshot; needs no session and no model. Throws Failure.
Snapshot open_snapshot(const std::string &path);
stasis_snapshot_info snapshot_info(const stasis_snapshot *snapshot, const std::string &path);
// Returns whether the root of the last commit is damaged, and reports it on standard error if it
// is.
bool warn_if_older(const stasis_snapshot_info &info, const std::string &path);
// Returns one of the Big 8 + 4, 1 .. 12, as the library writes it: up to 64 times as long as the
// file.
std::string snapshot_element_text(const stasis_snapshot *snapshot, uint32_t element);
Json snapshot_element(const stasis_snapshot *snapshot, uint32_t element);

const char *codec_name(uint32_t codec); // STASIS_CODEC_...
const char *keep_name(uint32_t keep);   // STASIS_KEEP_...

} // namespace command
