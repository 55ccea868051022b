// Saves a State as a snapshot: a first save is a new file, later ones are commits that append to it
// what it does not hold yet (FORMAT.md, "Saving"). Paired with reader.h. Knows neither models nor
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

struct SaveOptions {
    bool replace = false; // a whole new file in the place of any regular file
    // A file that is there must hold the state of `known`, or no token; else Error(conflict).
    bool if_match = false;
    Keep keep = Keep::full;                 // keys and values, or only what they must come out as
    Codec codec = Codec::raw;               // of the pages that this save writes
    std::span<const float> logits_row = {}; // [vocabulary], kept too; empty: not
    Watch watch = {};                       // progress in bytes of KV to be written
    Parallel parallel = {};
    // What the caller's last save returned, or a load read: where nobody has changed the file
    // since, its trees, and a page that has Page::earlier there, are not read and checked again.
    std::shared_ptr<const Contents> known = {};
};

// With Keep::full, pages with data are stored; those without must come first in their group, and
// may hold no position that the window needs. With Keep::none, a page's data gives its
// fingerprints. Far pages are fetched when they are written, a batch of them at a time; what that
// throws is thrown.
//
// If `path` is a snapshot of the same model whose log begins with the same token (or one of the
// logs is empty), what it shares with the state stays and the rest is committed to it. Any other
// regular file is only replaced with options.replace. On failure the file opens as it did before;
// only if the last sync fails, the error says that the new state is in place but may not survive a
// power loss. Error(invalid_argument): the state contradicts itself, the file at `path` is
// something else, or its last commit is damaged and `known` is not the state before it;
// Error(busy): another save of this file is running; Error(conflict); Error(io),
// Error(unsupported), Error(cancelled), Error(stopped).
//
// Returns what the file says now, without the bytes of pages.
std::shared_ptr<const Contents> save(State state, const std::string &path,
                                     const SaveOptions &options,
                                     const FileOperations &files = system_files());

// The whole state in the stream form; options.replace has no meaning.
void write_stream(const State &state, const Sink &sink, const SaveOptions &options);

// Writes the file anew with nothing but its state, one run for each page, under options.codec, and
// puts it in place of the old one at once; what was rewound is gone then. Of the options only
// codec, watch and parallel apply. Errors as those of save, and of Snapshot::open.
void compact(const std::string &path, const SaveOptions &options,
             const FileOperations &files = system_files());

} // namespace stasis::format
