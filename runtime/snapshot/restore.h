// Restores sessions from stored states. `options` null: as saved. `watch` reports progress in bytes
// of pages, or in positions if these are computed. Knows no files.
#pragma once

#include <memory>

#include "format/state/state.h"
#include "format/state/watch.h"
#include "runtime/kv/stored_pages.h"
#include "runtime/session/session.h"

namespace stasis {

// Reads pages directly into the pool; pages that the prefix cache knows are held once, and read as
// well unless the options say otherwise. Before anything is created, checks the identity element by
// element (Error(model_mismatch)), the geometry and the digests (Error(corrupt)).
Timeline restore_timeline(Model &model, const State &state, const TimelineOptions *options,
                          const StoredPages &pages, const Watch &watch);
// Returns the settings of a state that was checked.
Settings settings_of(const State &state);
std::unique_ptr<Session> restore_session(std::shared_ptr<Model> model, const State &state,
                                         const TimelineOptions *options, const StoredPages &pages,
                                         const Watch &watch);

// Returns the pages of a state that holds them itself, in host or device memory. `state` and
// `model` must outlive the result.
StoredPages pages_of(const State &state, const Model &model);
// Restores from a state that holds its pages itself.
std::unique_ptr<Session> restore_session(std::shared_ptr<Model> model, const State &state,
                                         const TimelineOptions *options);

// Restores a session from the log alone: keys and values are computed again. Throws Error(diverged)
// unless they have the stored digests of all pages; it names the first position and layer that
// differ, as far as `pages` allows.
std::unique_ptr<Session> recompute_session(std::shared_ptr<Model> model, const State &state,
                                           const TimelineOptions *options, const StoredPages &pages,
                                           const Watch &watch);

} // namespace stasis
