// Features of a generation package (tests/INSIGHTS.md): what a Go package for generation offers
// over a KV cache, each through the C interface.
#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

stasis_model_info info_of(const stasis_model *model) {
    auto info = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(model, &info, nullptr) == STASIS_OK);
    return info;
}

// Bytes of a position's bf16 keys and values, in all layers: half of what f32 would take.
uint64_t position_bytes(const stasis_model_info &info) {
    return uint64_t{info.layers} * 2 * info.kv_heads * info.head_dim * sizeof(uint16_t);
}

struct Kv {
    std::vector<uint16_t> keys, values;
};

Kv kv_of(const stasis_session *session, uint32_t layer, uint64_t begin, uint64_t end) {
    size_t count = 0;
    stasis_session_kv(session, layer, begin, end, nullptr, nullptr, 0, &count, nullptr);
    Kv kv{std::vector<uint16_t>(count), std::vector<uint16_t>(count)};
    REQUIRE(stasis_session_kv(session, layer, begin, end, kv.keys.data(), kv.values.data(), count,
                              &count, nullptr) == STASIS_OK);
    REQUIRE(count == kv.keys.size());
    return kv;
}

} // namespace

TEST_CASE(
    "stasis_model_get_stats: a pool of pages under a budget: take, give back, available, cap") {
    const uint64_t page = 64 * position_bytes(info_of(llama()));
    constexpr uint64_t kPages = 6;
    auto options = sized<stasis_model_options>();
    options.kv_budget_bytes = kPages * page;
    const Model model = open_path(test_data("zoo/llama-gqa-untied"), &options);
    const auto used = [&] { return stats_of(model.get()).kv_used_bytes / page; };
    const auto available = [&] {
        const stasis_model_stats stats = stats_of(model.get());
        return (stats.kv_budget_bytes - stats.kv_used_bytes) / page;
    };
    CHECK(stats_of(model.get()).kv_budget_bytes == kPages * page); // the cap
    CHECK(used() == 0);
    CHECK(available() == kPages);
    std::vector<Session> sessions;
    for (uint64_t taken = 1; taken <= kPages; ++taken) { // one page each
        sessions.push_back(session_of(model.get(), some_tokens(64, static_cast<uint32_t>(taken))));
        CHECK(used() == taken);
        CHECK(available() == kPages - taken);
        CHECK(info_of(sessions.back().get()).pages_own == 1);
        CHECK(info_of(sessions.back().get()).kv_bytes == page);
    }
    const Session late = create(model.get());
    const stasis_token token = 1;
    stasis_error error;
    CHECK(stasis_session_append(late.get(), &token, 1, nullptr, &error) == STASIS_POOL_EXHAUSTED);
    CHECK(position(late.get()) == 0);
    CHECK(used() == kPages);
    sessions.pop_back();
    CHECK(available() == 1);
    CHECK(stats_of(model.get()).kv_cached_bytes == page); // kept for the next session
    append(late.get(), some_tokens(64, 9));
    CHECK(used() == kPages);
    CHECK(stats_of(model.get()).kv_cached_bytes == 0);
}

TEST_CASE("stasis_session_create: what a session reserves lies ready before its first token") {
    const uint64_t page = 64 * position_bytes(info_of(llama()));
    const Model model = open_path(test_data("zoo/llama-gqa-untied"));
    auto options = sized<stasis_session_options>();
    options.reserve = 300;
    stasis_session *out = nullptr;
    REQUIRE(stasis_session_create(model.get(), &options, &out, nullptr) == STASIS_OK);
    const Session session(out);
    CHECK(stats_of(model.get()).kv_cached_bytes == 5 * page);
    CHECK(stats_of(model.get()).kv_used_bytes == 0);
    append(out, some_tokens(300));
    CHECK(stats_of(model.get()).kv_cached_bytes == 0);
    CHECK(stats_of(model.get()).kv_used_bytes == 5 * page);
}

TEST_CASE("stasis_session_rewind: truncate is a rewind, reset a rewind to 0, and pages go back") {
    const Model model = open_path(test_data("zoo/llama-gqa-untied"));
    const Tokens tokens = some_tokens(200);
    const Session session = session_of(model.get(), tokens);
    const uint64_t full = stats_of(model.get()).kv_used_bytes;
    REQUIRE(stasis_session_rewind(session.get(), 70, 0, nullptr, nullptr) == STASIS_OK);
    CHECK(position(session.get()) == 70);
    CHECK(stats_of(model.get()).kv_used_bytes == full / 2); // of 4 pages
    const Tokens kept(tokens.begin(), tokens.begin() + 70);
    CHECK(digest(session.get()) == digest(session_of(model.get(), kept).get()));
    REQUIRE(stasis_session_rewind(session.get(), 0, 0, nullptr, nullptr) == STASIS_OK);
    CHECK(position(session.get()) == 0);
    CHECK(stats_of(model.get()).kv_used_bytes == 0);
    append(session.get(), tokens);
    CHECK(digest(session.get()) == digest(session_of(model.get(), tokens).get()));
}

TEST_CASE("stasis_session_kv: keys and values are stored in 16 bits, half of what f32 takes") {
    for (const char *name : {"zoo/llama-gqa-untied", "recall-llama", "zoo/qwen3-qknorm"}) {
        stasis_model *model = shared_model(name); // none has windows
        const Session session = session_of(model, some_tokens(128));
        const stasis_model_info info = info_of(model);
        const uint64_t f32 = uint64_t{128} * info.layers * 2 * info.kv_heads * info.head_dim * 4;
        CHECK(info_of(session.get()).kv_bytes * 2 == f32);
        // The values that are read are the stored ones: two bytes a number.
        uint64_t bytes = 0;
        for (uint32_t layer = 0; layer < info.layers; ++layer) {
            const Kv kv = kv_of(session.get(), layer, 0, 128);
            bytes += (kv.keys.size() + kv.values.size()) * sizeof(uint16_t);
        }
        CHECK(bytes * 2 == f32);
    }
}

TEST_CASE(
    "stasis_session_kv: the whole cache and any view of it can be read, and stay as they are") {
    const Session session = session_of(llama(), some_tokens(150));
    const stasis_model_info info = info_of(llama());
    const size_t row = size_t{info.kv_heads} * info.head_dim;
    for (uint32_t layer = 0; layer < info.layers; ++layer) {
        const Kv whole = kv_of(session.get(), layer, 0, 150);
        REQUIRE(whole.keys.size() == 150 * row);
        for (const auto &[begin, end] :
             {std::pair<uint64_t, uint64_t>{0, 1}, {63, 65}, {20, 140}, {149, 150}, {64, 128}}) {
            const Kv view = kv_of(session.get(), layer, begin, end);
            REQUIRE(view.keys.size() == (end - begin) * row);
            CHECK(std::memcmp(view.keys.data(), whole.keys.data() + begin * row,
                              view.keys.size() * sizeof(uint16_t)) == 0);
            CHECK(std::memcmp(view.values.data(), whole.values.data() + begin * row,
                              view.values.size() * sizeof(uint16_t)) == 0);
        }
        append(session.get(), some_tokens(3, layer + 2)); // later tokens change nothing before them
        const Kv again = kv_of(session.get(), layer, 0, 150);
        CHECK(again.keys == whole.keys);
        CHECK(again.values == whole.values);
    }
    size_t count = 0;
    stasis_error error;
    CHECK(stasis_session_kv(session.get(), info.layers, 0, 1, nullptr, nullptr, 0, &count,
                            &error) == STASIS_INVALID_ARGUMENT);
}
