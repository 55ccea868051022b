// What constraints allow, as the tests of their notations ask for it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "format/state/error.h"
#include "runtime/constraint/constraint.h"
#include "runtime/constraint/places.h"

namespace stasis {

using constraint::ConstraintKind;

// A constraint, along which texts are walked.
class Texts {
  public:
    Texts(ConstraintKind kind, std::string_view text)
        : places_(constraint::compile_constraint(kind, text)) {}

    // Returns how many bytes of a text an allowed one begins with.
    size_t fitting(std::string_view text) {
        place_ = places_.start();
        for (size_t i = 0; i < text.size(); ++i) {
            const constraint::Place next = places_.next(place_, static_cast<uint8_t>(text[i]));
            if (next == constraint::Places::kDead) {
                return i;
            }
            place_ = next;
        }
        return text.size();
    }
    bool begins(std::string_view text) { return fitting(text) == text.size(); }
    bool fits(std::string_view text) { return begins(text) && places_.accepts(place_); }

  private:
    constraint::Places places_;
    constraint::Place place_ = 0;
};

// Returns the message with which a constraint is refused, after its status; "" if it is not.
inline std::string refusal_of(ConstraintKind kind, std::string_view text) {
    try {
        constraint::compile_constraint(kind, text);
    } catch (const Error &error) {
        const bool known = error.status() == Status::unsupported;
        const bool invalid = error.status() == Status::invalid_argument;
        return std::string(known     ? "unsupported: "
                           : invalid ? "invalid: "
                                     : "other: ") +
               error.what();
    }
    return "";
}

// Whether the refusal has a status and names a thing and its place.
inline bool refused(ConstraintKind kind, std::string_view text, std::string_view status,
                    std::string_view named) {
    const std::string message = refusal_of(kind, text);
    return message.substr(0, status.size()) == status && message.find(named) != std::string::npos;
}

} // namespace stasis
