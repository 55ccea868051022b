// Replies that must call a tool: as a constraint, in the form in which the model's template writes
// calls. Must not know requests.
#pragma once

#include <string>

#include "tools/serve/engine/served_model.h"

namespace serve {

// Returns the form of replies that, after thoughts where the model has them, are a call of the
// conversation's tool `name`, or with "" calls of any of its tools; one call, or where `several` as
// many as the model makes. The arguments are instances of the tool's schema. Throws api::Refused:
// the model's calls have a form that no constraint can say, or the schema does.
api::Form forced_calls(const ServedModel &model, const api::Json &conversation,
                       const std::string &name, bool several);

} // namespace serve
