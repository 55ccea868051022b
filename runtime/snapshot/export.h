// A session as plain data: the log, the settings, the pages, and what follows from them.
#pragma once

#include "format/state/state.h"
#include "runtime/session/session.h"

namespace stasis {

// Returns the whole state; its pages are pinned, not copied. Throws as Timeline::logits.
State export_state(Timeline &timeline, const Settings &settings, const Model &model);
State export_state(Session &session);

} // namespace stasis
