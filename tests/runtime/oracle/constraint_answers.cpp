// Answers what constraints allow, for tests in Python that compare them with other programs. Each
// line of the input is the number of a kind, the constraint's text and a text that begins an
// instance, both in hexadecimal and with an x before them. The answer is "refused" with the status
// and the message; or how many bytes of the text fit, whether it is complete (1 or 0), and the
// bytes that may come after it, as 64 hexadecimal digits of four bytes each, the least in the
// lowest bit.
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "format/state/error.h"
#include "runtime/constraint/constraint.h"
#include "runtime/constraint/hex.h"
#include "runtime/constraint/places.h"

namespace {

using namespace stasis;
using namespace stasis::constraint;

std::string bytes_of(const std::string &spelled) {
    std::string bytes;
    for (size_t at = 1; at + 1 < spelled.size();) {
        bytes += static_cast<char>(read_hex(spelled, at, 2, "the line"));
    }
    return bytes;
}

void answer(Places &places, const std::string &text) {
    Place place = places.start();
    size_t fitting = 0;
    while (fitting < text.size()) {
        const Place next = places.next(place, static_cast<uint8_t>(text[fitting]));
        if (next == Places::kDead) {
            break;
        }
        place = next;
        ++fitting;
    }
    std::string allowed;
    for (unsigned group = 0; group < 64; ++group) {
        unsigned digit = 0;
        for (unsigned bit = 0; bit < 4; ++bit) {
            const auto byte = static_cast<uint8_t>(group * 4 + bit);
            digit |= places.next(place, byte) != Places::kDead ? 1U << bit : 0U;
        }
        allowed += "0123456789abcdef"[digit];
    }
    std::printf("%zu %d %s\n", fitting, places.accepts(place) ? 1 : 0, allowed.c_str());
}

} // namespace

int main() {
    using Key = std::pair<int, std::string>;
    std::map<Key, std::pair<std::unique_ptr<Places>, std::string>> known; // or the refusal
    int kind = 0;
    std::string constraint, text;
    while (std::cin >> kind >> constraint >> text) {
        auto &[places, refusal] = known[{kind, constraint}];
        try {
            if (places == nullptr && refusal.empty()) {
                places = std::make_unique<Places>(
                    compile_constraint(static_cast<ConstraintKind>(kind), bytes_of(constraint)));
            }
            if (places != nullptr) {
                answer(*places, bytes_of(text));
            }
        } catch (const Error &error) {
            refusal = std::to_string(static_cast<int>(error.status())) + " " + error.what();
        }
        if (!refusal.empty()) {
            std::printf("refused %s\n", refusal.c_str());
        }
        std::fflush(stdout);
    }
    return 0;
}
