// Snapshots as the command reads and writes them: files, and "-" for the standard streams.
#pragma once

#include <string>

#include "tools/cli/handles.h"
#include "tools/cli/terminal.h"

namespace command {

// "-" among file names; a file of that name is "./-".
bool is_stream(const std::string &path);

// Standard input. Throws Failure if that is a terminal.
stasis_source input_source();

// While it lives, standard output belongs to a snapshot alone, and what is printed goes to standard
// error. Throws Failure if standard output is a terminal.
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

// Needs no session and no model.
Snapshot open_snapshot(const std::string &path);
stasis_snapshot_info snapshot_info(const stasis_snapshot *snapshot, const std::string &path);
// Says on standard error that the root of the last commit is damaged, where it is; returns whether.
bool warn_if_older(const stasis_snapshot_info &info, const std::string &path);
// One of the Big 8 + 4, 1 .. 12, as the library writes it: up to 64 times as long as the file.
std::string snapshot_element_text(const stasis_snapshot *snapshot, uint32_t element);
Json snapshot_element(const stasis_snapshot *snapshot, uint32_t element);

const char *codec_name(uint32_t codec); // STASIS_CODEC_...
const char *keep_name(uint32_t keep);   // STASIS_KEEP_...

} // namespace command
