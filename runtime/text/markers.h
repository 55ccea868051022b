// A set of texts that stand for single tokens; finds the longest of them at a position in a text.
#pragma once

#include <bitset>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace stasis {

class Markers {
  public:
    struct Match {
        size_t size_bytes = 0; // 0: none
        uint32_t token = 0;
    };

    void add(const std::string &text, uint32_t token) {
        tokens_.emplace(text, token);
        sizes_.insert(text.size());
        first_.set(static_cast<unsigned char>(text[0]));
    }

    Match longest(std::string_view text, size_t at) const {
        if (first_.test(static_cast<unsigned char>(text[at]))) {
            for (auto size = sizes_.rbegin(); size != sizes_.rend(); ++size) {
                const auto found = tokens_.find(text.substr(at, *size));
                if (found != tokens_.end()) {
                    return {found->first.size(), found->second};
                }
            }
        }
        return {};
    }

  private:
    std::map<std::string, uint32_t, std::less<>> tokens_;
    std::set<size_t> sizes_; // lengths in use
    std::bitset<256> first_; // first bytes in use
};

} // namespace stasis
