// Sessions from stored states. `options` null: as saved. `watch`: progress in bytes of pages, or in
// positions where they are computed.
#pragma once

#include <memory>

#include "format/state/state.h"
#include "format/state/watch.h"
#include "runtime/kv/stored_pages.h"
#include "runtime/session/session.h"

namespace stasis {

// Reads pages straight into place; those that the prefix cache knows are read as well, and held
// once. Checks identity element by element (model_mismatch), geometry and digests (corrupt) before
// anything is created.
Timeline restore_timeline(Model &model, const State &state, const TimelineOptions *options,
                          const StoredPages &pages, const Watch &watch);
// Returns the settings of a state that was checked.
Settings settings_of(const State &state);
std::unique_ptr<Session> restore_session(std::shared_ptr<Model> model, const State &state,
                                         const TimelineOptions *options, const StoredPages &pages,
                                         const Watch &watch);

// The pages of a state that holds them itself, on the host or in device memory. Both must outlive
// the result.
StoredPages pages_of(const State &state, const Model &model);
// From a state that holds its pages itself.
std::unique_ptr<Session> restore_session(std::shared_ptr<Model> model, const State &state,
                                         const TimelineOptions *options);

// The same session from the log alone: keys and values are computed again, and must give the stored
// digests of all pages, else Error(diverged) names the first position and layer, as far as `pages`
// can tell.
std::unique_ptr<Session> recompute_session(std::shared_ptr<Model> model, const State &state,
                                           const TimelineOptions *options, const StoredPages &pages,
                                           const Watch &watch);

} // namespace stasis
