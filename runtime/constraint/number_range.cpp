// Comparisons of digits as parts of a grammar; see number_range.h.
#include "runtime/constraint/number_range.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stasis::constraint {

namespace {

bool less_size(const Decimal &left, const Decimal &right) {
    if (left.whole.size() != right.whole.size()) {
        return left.whole.size() < right.whole.size();
    }
    return left.whole != right.whole ? left.whole < right.whole : left.fraction < right.fraction;
}

// Numbers that are not negative, on one side of a bound that is not negative.
class Side {
  public:
    Side(Grammar &grammar, const Bound &bound, bool fraction, bool above)
        : grammar_(grammar), whole_(bound.value.whole.empty() ? "0" : bound.value.whole),
          digits_(bound.value.fraction), exclusive_(bound.exclusive), fraction_(fraction),
          above_(above) {}

    Part make() {
        const auto count = static_cast<uint32_t>(whole_.size());
        std::vector<Part> choices;
        if (above_) { // more digits
            choices.push_back(grammar_.sequence(
                {grammar_.bytes('1', '9'), any_digits(count, kUnbounded), any_fraction()}));
        } else if (count > 1) { // fewer
            choices.push_back(grammar_.sequence({grammar_.literal("0"), any_fraction()}));
            choices.push_back(grammar_.sequence(
                {grammar_.bytes('1', '9'), any_digits(0, count - 2), any_fraction()}));
        }
        for (uint32_t i = 0; i < count; ++i) { // the same, but for the one at i and those after it
            const char least = i == 0 && count > 1 ? '1' : '0';
            if (const auto digit = beyond(whole_[i], least)) {
                choices.push_back(
                    grammar_.sequence({grammar_.literal(whole_.substr(0, i)), *digit,
                                       any_digits(count - 1 - i, count - 1 - i), any_fraction()}));
            }
        }
        choices.push_back(grammar_.sequence({grammar_.literal(whole_), same_whole()}));
        return grammar_.choice(std::move(choices));
    }

  private:
    Part any_digits(uint32_t min, uint32_t max) {
        return grammar_.repeat(grammar_.bytes('0', '9'), min, max);
    }
    Part any_fraction() {
        return fraction_ ? grammar_.optional(grammar_.sequence(
                               {grammar_.literal("."), any_digits(1, kUnbounded)}))
                         : grammar_.empty();
    }
    // Digits on this side of a digit, which is no side of itself.
    std::optional<Part> beyond(char digit, char least) {
        if (above_ ? digit == '9' : digit <= least) {
            return std::nullopt;
        }
        return above_
                   ? grammar_.bytes(static_cast<uint8_t>(digit + 1), '9')
                   : grammar_.bytes(static_cast<uint8_t>(least), static_cast<uint8_t>(digit - 1));
    }
    // What may follow the bound's own digits before the point.
    Part same_whole() {
        std::vector<Part> choices;
        if (digits_.empty() ? !exclusive_ : !above_) {
            choices.push_back(grammar_.empty());
        }
        if (fraction_) {
            const Part zeros = grammar_.repeat(grammar_.literal("0"), 0, kUnbounded);
            for (size_t i = 0; i < digits_.size(); ++i) {
                if (const auto digit = beyond(digits_[i], '0')) {
                    choices.push_back(
                        point(digits_.substr(0, i), {*digit, any_digits(0, kUnbounded)}));
                }
                if (!above_ && i > 0) { // cut short, which is less
                    choices.push_back(point(digits_.substr(0, i), {}));
                }
            }
            const uint32_t least = digits_.empty() ? 1 : 0;
            if (above_ && exclusive_) {
                choices.push_back(
                    point(digits_, {zeros, grammar_.bytes('1', '9'), any_digits(0, kUnbounded)}));
            } else if (above_) {
                choices.push_back(point(digits_, {any_digits(least, kUnbounded)}));
            } else if (!exclusive_) {
                choices.push_back(
                    point(digits_, {grammar_.repeat(grammar_.literal("0"), least, kUnbounded)}));
            }
        }
        return grammar_.choice(std::move(choices));
    }
    Part point(const std::string &digits, std::vector<Part> after) {
        after.insert(after.begin(), grammar_.literal("." + digits));
        return grammar_.sequence(std::move(after));
    }

    Grammar &grammar_;
    std::string whole_, digits_;
    bool exclusive_, fraction_, above_;
};

// Numbers that are not negative between bounds that are not.
Part between(Grammar &grammar, const std::optional<Bound> &low, const std::optional<Bound> &high,
             bool fraction) {
    const Part above = Side(grammar, low.value_or(Bound{}), fraction, true).make();
    return high.has_value() ? grammar.both(above, Side(grammar, *high, fraction, false).make())
                            : above;
}

Bound without_sign(Bound bound) {
    bound.value.negative = false;
    return bound;
}

} // namespace

bool less(const Decimal &left, const Decimal &right) {
    const bool left_negative = left.negative && !left.zero();
    const bool right_negative = right.negative && !right.zero();
    if (left_negative != right_negative) {
        return left_negative;
    }
    return left_negative ? less_size(right, left) : less_size(left, right);
}

Part number_range(Grammar &grammar, const std::optional<Bound> &low,
                  const std::optional<Bound> &high, bool fraction) {
    const Decimal zero;
    std::vector<Part> choices;
    if (!high.has_value() || !less(high->value, zero)) {
        std::optional<Bound> from;
        if (low.has_value() && !less(low->value, zero)) {
            from = without_sign(*low);
        }
        choices.push_back(between(
            grammar, from, high.has_value() ? std::optional(without_sign(*high)) : high, fraction));
    }
    if (!low.has_value() || less(low->value, zero)) {
        std::optional<Bound> from = Bound{zero, true}, to;
        if (high.has_value() && less(high->value, zero)) {
            from = without_sign(*high);
        }
        if (low.has_value()) {
            to = without_sign(*low);
        }
        choices.push_back(
            grammar.sequence({grammar.literal("-"), between(grammar, from, to, fraction)}));
    }
    return grammar.choice(std::move(choices));
}

} // namespace stasis::constraint
