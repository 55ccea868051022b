// Walking a snapshot's token log in a session: draws again at every position, generates from the
// first token that differs, and compares the logits at the end. Uses the library and the file's
// elements; prints nothing.
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

// Comparison of the best logits that the file stores, bit by bit.
struct Logits {
    size_t compared = 0, differ = 0;
    double largest = 0; // difference
    Best stored, computed;
};

struct Walk {
    std::vector<Otherwise> otherwise; // drawn tokens that differ from the recorded ones
    Words recorded, instead;          // from the first difference on; empty without one
    Logits logits;
};

// Walks the log. `redraw`: draws sampled tokens again; else the log is only computed. At most
// `tokens_max` tokens are generated instead. Throws Failure.
Walk walk(const stasis_snapshot *snapshot, stasis_model *model, bool redraw, uint64_t tokens_max,
          stasis_cancel *cancel);

} // namespace command::replay
