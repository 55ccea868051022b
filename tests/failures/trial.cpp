// See trial.h.
#include "tests/failures/trial.h"

#include <cstdlib>

#include "tests/share.h"

namespace failures {

using namespace abi_test;

std::vector<Row> taken_rows(const std::vector<Row> &rows) {
    const bool all = !stasis::test::kSanitized || stasis::test::whole_sweeps();
    const size_t step = all ? 1 : 3;
    std::vector<Row> taken;
    for (size_t i = stasis::test::test_seed() % step; i < rows.size(); i += step) {
        taken.push_back(rows[i]);
    }
    return taken;
}

stasis_status open_hosted(const std::string &path, stasis_model **model, stasis_error *error) {
    auto allocator = sized<stasis_allocator>();
    allocator.allocate = [](void *, size_t size, size_t alignment) {
        return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    };
    allocator.deallocate = [](void *, void *memory, size_t, size_t) { std::free(memory); };
    auto options = sized<stasis_model_options>();
    options.allocator = &allocator;
    options.threads = 2;
    return stasis_model_open(path.c_str(), &options, model, error);
}

std::string hex(const void *bytes, size_t count) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (size_t i = 0; i < count; ++i) {
        const auto byte = static_cast<const uint8_t *>(bytes)[i];
        text += kDigits[byte >> 4];
        text += kDigits[byte & 15];
    }
    return text;
}

std::string outcome_of(const stasis_session *session) {
    const Digest state = digest(session);
    const uint64_t length = position(session);
    Tokens tokens(length);
    std::vector<uint8_t> sources(length);
    size_t count = 0;
    REQUIRE(stasis_session_tokens(session, 0, tokens.data(), sources.data(), length, &count,
                                  nullptr) == STASIS_OK);
    const stasis_session_info info = info_of(session);
    return hex(state.data(), state.size()) + " " + std::to_string(length) + " " +
           std::to_string(info.pending_bytes) + " " + std::to_string(info.positions_evicted) + " " +
           hex(tokens.data(), count * sizeof tokens[0]) + hex(sources.data(), count) + "\n";
}

} // namespace failures
