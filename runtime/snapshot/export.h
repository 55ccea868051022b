// Exports a session as plain data: the log, the settings, the pages, and the values that follow
// from them. Knows neither files nor bytes of a format.
#pragma once

#include "format/state/state.h"
#include "runtime/session/session.h"

namespace stasis {

// Returns the whole state; its pages are held, not copied. Throws as Timeline::logits.
State export_state(Timeline &timeline, const Settings &settings, const Model &model,
                   const Watch &watch = {});
State export_state(Session &session, const Watch &watch = {});

} // namespace stasis
