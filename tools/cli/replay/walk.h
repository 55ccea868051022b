// Walking a snapshot's token log in a session: what is drawn at every position, what the model says
// instead from the first token that is not the recorded one, and the logits at the end.
// Knows the library and what the file tells of itself; prints nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/cli/handles.h"

namespace command::replay {

struct Otherwise {
    uint64_t position;
    stasis_token recorded, drawn;
    std::string recorded_text, drawn_text;
};

struct Words {
    std::vector<stasis_token> tokens;
    std::string text; // the ids where the model has no tokenizer
};

struct Best {
    stasis_token token = 0;
    float logit = 0;
    std::string text;
};

// Of the best logits that the file keeps, those that came out with other bits.
struct Logits {
    size_t compared = 0, differ = 0;
    double largest = 0; // difference
    Best stored, computed;
};

struct Walk {
    std::vector<Otherwise> otherwise; // drawn tokens that are not the recorded ones
    Words recorded, instead;          // from the first of them on; empty without one
    Logits logits;
};

// `redraw`: some token is drawn otherwise; else the log is only computed. At most `tokens_max`
// tokens are said instead.
Walk walk(const stasis_snapshot *snapshot, stasis_model *model, bool redraw, uint64_t tokens_max,
          stasis_cancel *cancel);

} // namespace command::replay
