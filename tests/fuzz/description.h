// Takes an input apart that describes what a fuzzer is to make; zeros when there is nothing left.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace stasis {

struct Description {
    std::string_view input;

    uint8_t byte() {
        const uint8_t value = input.empty() ? 0 : static_cast<uint8_t>(input[0]);
        input.remove_prefix(std::min<size_t>(input.size(), 1));
        return value;
    }
    std::string bytes(size_t count) {
        const std::string out(input.substr(0, count));
        input.remove_prefix(out.size());
        return out;
    }
    // Small as a rule, now and then near the top of 64 bits or 32.
    uint64_t number() {
        const uint8_t value = byte();
        return value < 0xF0   ? value
               : value < 0xF8 ? ~uint64_t{0} << (value & 7) * 8
                              : uint64_t{1} << (value & 7) * 9;
    }
};

} // namespace stasis
