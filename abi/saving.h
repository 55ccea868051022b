// What saving to files and to stores, and loading from them, have in common. Knows sessions and the
// format; must not know where the bytes are.
#pragma once

#include <functional>
#include <memory>

#include "abi/handles.h"
#include "format/reader.h"
#include "format/store/ranges.h"
#include "format/writer.h"

namespace stasis::abi {

class Caller;

struct SaveChoice {
    uint32_t codec = 0, keep = 0; // STASIS_CODEC_..., STASIS_KEEP_...
    bool full_logits = false;
    bool replace = false, if_match = false; // of a file
};

format::Parallel parallel_on(const Model &model);
// `standard`: what STASIS_CODEC_DEFAULT stands for. Throw Error(unsupported).
format::Codec read_codec(uint32_t given, format::Codec standard);
format::Keep read_keep(uint32_t given);

// Hands the session's state, and how it is to be saved, to `write`.
void save_with(Session &session, const SaveChoice &choice, const Watch &watch,
               const std::function<void(State &&state, format::SaveOptions &options)> &write);

struct Opened {
    std::shared_ptr<const format::Snapshot> snapshot;
    std::shared_ptr<const format::StoredRanges> stored = {}; // null: it is not in a store
};
using Open = std::function<Opened(const Watch &watch)>;

// Makes a session of what `open` gives, which is called once the options have been found good. The
// session has the trace that the options ask for.
std::unique_ptr<stasis_session> load_traced(const Caller &caller,
                                            const std::shared_ptr<Model> &model,
                                            const stasis_load_options &given, const Watch &watch,
                                            const Open &open);

} // namespace stasis::abi
