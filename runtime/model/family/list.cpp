// The list of families. The documents must name the same (tests/tools/test_tidy.py).
#include <algorithm>
#include <cassert>

#include "runtime/model/family/family.h"

namespace stasis {

std::span<const Family *const> families() {
    static const Family *const list[] = {
        &kLlama,  &kMistral,   &kPhi3,       &kQwen2,          &kQwen3,   &kQwen3Moe,
        &kQwen35, &kQwen35Moe, &kGemma3,     &kEmbeddingGemma, &kGemma4,  &kGptOss,
        &kLfm2,   &kSmolLM3,   &kMinistral3, &kOlmo3,          &kGranite4};
    return list;
}

const Family &family_of(const Config &config) {
    const auto all = families();
    const auto found = std::find_if(all.begin(), all.end(), [&](const Family *family) {
        return config.architecture == family->name;
    });
    assert(found != all.end());
    return **found;
}

} // namespace stasis
