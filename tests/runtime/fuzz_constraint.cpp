// Fuzzes the readers of constraints: the input's first byte chooses the kind, then come the
// constraint, a NUL, and a text that is walked along it. Where a text has led there is always a way
// to go on or an end, and the masks of tokens are those of their bytes.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "format/state/error.h"
#include "runtime/constraint/constraint.h"
#include "runtime/constraint/matcher.h"
#include "tests/fuzz/watched.h"

using namespace stasis;
using namespace stasis::constraint;

namespace {

constexpr size_t kTextMax = 200; // bytes: ambiguous grammars take the square of it

std::shared_ptr<const Vocabulary> vocabulary() {
    std::vector<std::string> pieces = {""};
    for (int byte = 0; byte < 256; ++byte) {
        pieces.emplace_back(1, static_cast<char>(byte));
    }
    for (const char *piece :
         {"{\"", "\":", "ab", "aba", "\xC3\xA9", "\xE2\x82", "12", "]}", "\\u0"}) {
        pieces.emplace_back(piece);
    }
    return std::make_shared<const Vocabulary>(pieces, std::vector<uint32_t>{0});
}

void check_mask(Matcher &matcher, const Vocabulary &tokens) {
    const std::shared_ptr<const Mask> mask = matcher.mask();
    bool any = false;
    for (uint32_t token = 0; token < tokens.size(); ++token) {
        Matcher other = matcher;
        const bool taken = token == 0 ? matcher.complete() : other.take_token(token);
        fuzz::expect(taken == allows(*mask, token), "a mask that its tokens do not agree with");
        any = any || taken;
    }
    fuzz::expect(any, "a place from which nothing leads on");
}

void walk(const std::shared_ptr<const Automaton> &automaton, std::string_view text) {
    const auto tokens = vocabulary();
    Matcher matcher(automaton, tokens, text.size() % 2 == 0 ? 1 : Matcher::kPlacesBytes);
    check_mask(matcher, *tokens);
    for (const char byte : text.substr(0, kTextMax)) {
        if (!matcher.take(std::string_view(&byte, 1))) {
            break;
        }
    }
    check_mask(matcher, *tokens);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) {
        return 0;
    }
    const auto kind = static_cast<ConstraintKind>(1 + data[0] % 4);
    const std::string input(reinterpret_cast<const char *>(data) + 1, size - 1);
    const size_t end = std::min(input.find('\0'), input.size());
    const std::string constraint = input.substr(0, end);
    const std::string text = end < input.size() ? input.substr(end + 1) : "";
    try {
        const fuzz::Meter meter(size_t{256} << 20);
        const auto automaton = compile_constraint(kind, constraint);
        walk(automaton, text);
    } catch (const Error &error) {
        fuzz::expect(error.what()[0] != '\0', "an error without a message");
        fuzz::expect(error.status() == Status::invalid_argument ||
                         error.status() == Status::unsupported,
                     error.what());
    }
    return 0;
}
