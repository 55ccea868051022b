// Numbers between bounds, as texts: digit by digit, without a value being computed.
#pragma once

#include <optional>

#include "runtime/constraint/grammar.h"
#include "runtime/constraint/json_text.h"

namespace stasis::constraint {

struct Bound {
    Decimal value;
    bool exclusive = false;
};

// Whether left is less than right.
bool less(const Decimal &left, const Decimal &right);

// Returns the numbers between two bounds, of which at least one is there, spelled without exponent
// and without minus zero; without fraction unless `fraction`.
Part number_range(Grammar &grammar, const std::optional<Bound> &low,
                  const std::optional<Bound> &high, bool fraction);

} // namespace stasis::constraint
