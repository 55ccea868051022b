// Saves a State as a snapshot: the first save makes a new file, later ones are commits that append
// what it does not hold yet (FORMAT.md, "Saving"). Paired with reader.h. Must not know models or
// sessions.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "format/codec.h"
#include "format/layout.h"
#include "format/parallel.h"
#include "format/state/file.h"
#include "format/state/state.h"
#include "format/state/watch.h"
#include "format/stream.h"

namespace stasis::format {

struct Contents;
class Snapshot;

struct SaveOptions {
    bool replace = false; // put a whole new file in place of any regular file
    // An existing file must hold the state of `known`, or no token; else Error(conflict).
    bool if_match = false;
    Keep keep = Keep::full;                 // keys and values, or their digests and fingerprints
    Codec codec = Codec::raw;               // of the pages and states that this save writes
    std::span<const float> logits_row = {}; // [vocabulary], stored as well; empty: not stored
    Watch watch = {};                       // progress in bytes of KV and states to be written
    Parallel parallel = {};
    // Contents that the caller's last save returned, or a load read. If nobody has changed the file
    // since, its trees are not read and checked again, nor is a page that it has in the form
    // Page::earlier.
    std::shared_ptr<const Contents> known = {};
    // Of write_sections without an old state: another stored state, whose pages the sink can lend.
    // Where both begin with the same pages, its runs are referred to and not written again.
    const Snapshot *lender = nullptr;
};

// With Keep::full, recurrent states must have data and are stored, and pages with data are stored;
// pages without data must come first in their group and hold no position that the window needs.
// With Keep::none, a page's data is replaced by its fingerprints. Far pages are fetched when they
// are written, one batch at a time; exceptions of the fetch are passed on.
//
// If `path` is a snapshot of the same model whose log begins with the same token (or one of the
// logs is empty), the parts that it shares with the state stay, and the rest is committed to it.
// Any other regular file is only replaced with options.replace. On failure the file opens as it did
// before; if only the last sync fails, the error says that the new state is in place but may not
// survive a power loss.
//
// Returns the contents of the file without the bytes of pages. Throws
//   Error(invalid_argument)  the state contradicts itself, the file at `path` is something else, or
//                            its last commit is damaged and `known` is not the state before it
//   Error(busy)              another save of this file is running
//   Error(conflict)          see SaveOptions::if_match
//   Error(io), Error(unsupported), Error(cancelled), Error(stopped)
std::shared_ptr<const Contents> save(State state, const std::string &path,
                                     const SaveOptions &options,
                                     const FileOperations &files = system_files());

// Writes the whole state in the stream form; options.replace and options.if_match have no effect.
void write_stream(const State &state, const Sink &sink, const SaveOptions &options);

// Writes the sections of the state that `old` does not hold, to follow its end; without `old` all
// of them, to follow root slots. The sections have the sequence given, and the root of the contents
// that are returned refers to them: whoever keeps it has committed. Throws the errors of save but
// Error(busy) and Error(conflict), and those of reading `old`.
std::shared_ptr<const Contents> write_sections(const State &state, const Snapshot *old,
                                               uint64_t sequence, const Sink &sink,
                                               const SaveOptions &options);
// Throws Error(invalid_argument) if the file uses features that this build cannot write.
void check_known_features(const Snapshot &old);

// Replaces the file by a new one that holds nothing but its state, one run for each page, under
// options.codec; data of rewound positions is gone. Only codec, watch and parallel of the options
// apply. Throws the errors of save, and of Snapshot::open.
void compact(const std::string &path, const SaveOptions &options,
             const FileOperations &files = system_files());

} // namespace stasis::format
