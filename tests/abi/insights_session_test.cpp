// Insights about positions, the cache and drawing (tests/INSIGHTS.md): errors that a session's
// interface excludes, and what it reports.
#include <regex>

#include "tests/abi/changed_files.h"
#include "tests/abi/conversation.h"
#include "tests/places.h"

using namespace abi_test;

namespace {

// Keys and values of positions [begin, end) of a layer.
std::vector<uint16_t> keys_and_values(const stasis_session *session, uint32_t layer, uint64_t begin,
                                      uint64_t end) {
    size_t count = 0;
    REQUIRE(stasis_session_kv(session, layer, begin, end, nullptr, nullptr, 0, &count, nullptr) ==
            STASIS_BUFFER_TOO_SMALL);
    std::vector<uint16_t> both(2 * count);
    stasis_error error;
    const stasis_status status = stasis_session_kv(session, layer, begin, end, both.data(),
                                                   both.data() + count, count, &count, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return both;
}

void set_sampling(stasis_session *session, float temperature, uint64_t seed) {
    auto sampling = sized<stasis_sampling>();
    sampling.temperature = temperature;
    sampling.seed = seed;
    REQUIRE(stasis_session_set_sampling(session, &sampling, nullptr) == STASIS_OK);
}

} // namespace

TEST_CASE(
    "stasis_session_get_info: insight 02: the position is the log's length, whatever was done") {
    const Folder folder;
    const Session session = session_of(gemma(), some_tokens(70));
    const auto holds = [](const stasis_session *at, uint64_t expected) {
        CHECK(position(at) == expected);
        size_t count = 0;
        stasis_session_tokens(at, 0, nullptr, nullptr, 0, &count, nullptr);
        CHECK(count == expected);
    };
    holds(session.get(), 70);
    draw(session.get());
    holds(session.get(), 71);
    holds(fork(session.get()).get(), 71);
    REQUIRE(stasis_session_rewind(session.get(), 65, 0, nullptr, nullptr) == STASIS_OK);
    holds(session.get(), 65);
    REQUIRE(save(session.get(), folder.file("a")) == STASIS_OK);
    const Session loaded = load(gemma(), folder.file("a"));
    holds(loaded.get(), 65);
    append(loaded.get(), {1, 2, 3});
    holds(loaded.get(), 68);
}

TEST_CASE("stasis_session_sample: insight 04: what only asks does not change a session") {
    const Folder folder;
    const Session session = session_of(gemma(), some_tokens(100));
    const Digest before = digest(session.get());
    auto info = sized<stasis_session_info>(), after = sized<stasis_session_info>();
    REQUIRE(stasis_session_get_info(session.get(), &info, nullptr) == STASIS_OK);
    std::vector<float> row(192);
    std::vector<double> scores(70);
    const Tokens other = some_tokens(70, 2);
    stasis_token token = 0;
    size_t count = 0;
    CHECK(stasis_session_logits(session.get(), row.data(), 192, &count, nullptr) == STASIS_OK);
    CHECK(stasis_session_top(session.get(), 1, &token, nullptr, nullptr) == STASIS_OK);
    CHECK(stasis_session_sample(session.get(), &token, nullptr) == STASIS_OK);
    CHECK(stasis_session_score(session.get(), other.data(), 70, scores.data(), nullptr, nullptr) ==
          STASIS_OK);
    set_sampling(session.get(), 2.0F, 9);
    CHECK(save(session.get(), folder.file("a")) == STASIS_OK);
    draw(fork(session.get()).get());
    CHECK(digest(session.get()) == before);
    REQUIRE(stasis_session_get_info(session.get(), &after, nullptr) == STASIS_OK);
    CHECK(std::memcmp(&info, &after, sizeof info) == 0);
    draw(session.get());
    CHECK(digest(session.get()) != before);
}

TEST_CASE("stasis_session_decode: insight 06: drawing advances by one, or does not draw") {
    const Session session = create(gemma(), 21);
    append(session.get(), some_tokens(20));
    stasis_token next = 0, drawn = 0;
    REQUIRE(stasis_session_sample(session.get(), &next, nullptr) == STASIS_OK);
    drawn = draw(session.get());
    CHECK(drawn == next);
    CHECK(tokens_from(session.get(), 20) == Tokens{drawn});
    const Digest before = digest(session.get());
    drawn = 12345;
    CHECK(stasis_session_decode(session.get(), &drawn, nullptr) == STASIS_FULL);
    CHECK(position(session.get()) == 21);
    CHECK(digest(session.get()) == before);
}

TEST_CASE("stasis_session_create: insight 07: a new session holds nothing, and its first token "
          "sees nothing else") {
    const Session session = create(gemma());
    auto info = sized<stasis_session_info>();
    REQUIRE(stasis_session_get_info(session.get(), &info, nullptr) == STASIS_OK);
    CHECK(info.position == 0);
    CHECK(info.kv_bytes == 0);
    append(session.get(), {7});
    const Session used = session_of(gemma(), some_tokens(90)); // pages that held other numbers
    REQUIRE(stasis_session_rewind(used.get(), 0, 0, nullptr, nullptr) == STASIS_OK);
    append(used.get(), {7});
    CHECK(digest(used.get()) == digest(session.get()));
}

TEST_CASE("stasis.h: insight 20: no call that writes to a session takes a position") {
    const std::string folder = std::string(places::source) + "/abi/";
    const std::string header =
        read_file(folder + "stasis.h") + read_file(folder + "stasis_generate.h");
    for (const char *name : {"append", "append_message", "decode", "generate"}) {
        std::smatch found;
        const std::regex regex("stasis_session_" + std::string(name) + R"(\(([^)]*)\);)");
        REQUIRE(std::regex_search(header, found, regex));
        CHECK(found[1].str().find("stasis_session *session") == 0);
        CHECK(found[1].str().find("uint64_t") == std::string::npos);
        CHECK(found[1].str().find("position") == std::string::npos);
    }
    // The options of these calls do not either; `position` in the answers is reported, not
    // accepted.
    for (const char *name : {"run", "generate"}) {
        const std::regex regex("typedef struct stasis_" + std::string(name) +
                               R"(_options \{([^}]*)\})");
        std::smatch found;
        REQUIRE(std::regex_search(header, found, regex));
        const std::string fields =
            std::regex_replace(found[1].str(), std::regex(R"(/\*[^*]*\*/)"), "");
        CHECK(fields.find("position") == std::string::npos);
    }
}

TEST_CASE("stasis_session_generate: insight 21: generate equals decode in a loop, with nothing to "
          "hand back in between") {
    for (const char *name : {"zoo/gemma3-text", "zoo/llama-gqa-untied"}) {
        const Session whole = session_of(shared_model(name), some_tokens(50));
        set_sampling(whole.get(), 1.5F, 3);
        const Session loop = fork(whole.get());
        auto options = sized<stasis_generate_options>();
        options.flags = STASIS_GENERATE_IGNORE_END;
        options.tokens_max = 40;
        REQUIRE(stasis_session_generate(whole.get(), &options, nullptr, nullptr) == STASIS_OK);
        for (int i = 0; i < 40; ++i) {
            draw(loop.get());
        }
        CHECK(tokens_from(loop.get(), 0) == tokens_from(whole.get(), 0));
        CHECK(digest(loop.get()) == digest(whole.get()));
    }
}

TEST_CASE("stasis_session_append: insight 23: appending keeps every bit that was there") {
    const Session session = create(gemma(), 0, 2048); // local layers keep all positions
    append(session.get(), some_tokens(100));
    std::vector<std::vector<uint16_t>> before;
    for (uint32_t layer = 0; layer < 7; ++layer) {
        before.push_back(keys_and_values(session.get(), layer, 0, 100));
    }
    append(session.get(), some_tokens(100, 2));
    draw(session.get());
    for (uint32_t layer = 0; layer < 7; ++layer) {
        CHECK(keys_and_values(session.get(), layer, 0, 100) == before[layer]);
    }
    const Tokens tokens = tokens_from(session.get(), 0);
    CHECK(Tokens(tokens.begin(), tokens.begin() + 100) == some_tokens(100));
}

TEST_CASE("stasis_model_open: insight 24: an unknown device is refused by name") {
    for (const char *device : {"cuda:9", "cuda:", "cuda:x", "cuda:1 ", "cpu:1", "CPU", "metal"}) {
        auto options = sized<stasis_model_options>();
        options.device = device;
        stasis_model *model = nullptr;
        stasis_error error;
        CHECK(stasis_model_open(test_data("zoo/gemma3-text").c_str(), &options, &model, &error) ==
              STASIS_DEVICE);
        CHECK(contains(error, '"' + std::string(device) + '"'));
        CHECK(model == nullptr);
    }
}

TEST_CASE("stasis_session_load: insight 28: a key carries its position's phase, and keeps it when "
          "it is loaded") {
    const Folder folder;
    const Session session = session_of(llama(), Tokens(10, 7)); // one token ten times
    const std::vector<uint16_t> all = keys_and_values(session.get(), 0, 0, 10);
    const size_t one = all.size() / 20; // of a position, keys before values
    for (size_t at = 1; at < 10; ++at) {
        const auto same = [&](size_t begin) {
            return std::equal(&all[begin], &all[begin] + one, &all[begin + at * one]);
        };
        CHECK(!same(0));       // in the first layer keys differ in the phase alone,
        CHECK(same(10 * one)); // and values have none
    }
    REQUIRE(save(session.get(), folder.file("a")) == STASIS_OK);
    const Session loaded = load(llama(), folder.file("a"));
    append(loaded.get(), some_tokens(200));
    CHECK(keys_and_values(loaded.get(), 0, 0, 10) == all);
}

TEST_CASE("stasis_session_set_sampling: insight 33: every draw can be repeated after the settings "
          "changed") {
    const Folder folder;
    const Session session = session_of(gemma(), some_tokens(30));
    for (const uint64_t seed : {1U, 2U, 3U}) {
        set_sampling(session.get(), static_cast<float>(seed), seed);
        for (int i = 0; i < 5; ++i) {
            draw(session.get());
        }
    }
    REQUIRE(save(session.get(), folder.file("a")) == STASIS_OK);
    const nlohmann::json spans = element_of(session.get(), 12)["spans"];
    REQUIRE(spans.size() == 4); // the prompt, and a span for each setting
    CHECK(spans[2]["sampling"] == 1);
    CHECK(element_of(session.get(), 6)["samplings"][1]["seed"] == 2);
    auto report = sized<stasis_verify_report>();
    CHECK(stasis_snapshot_verify(open_snapshot(folder.file("a")).get(), gemma(), nullptr, &report,
                                 nullptr) == STASIS_OK);
    forge_state(folder.file("a"), folder.file("forged"),
                [](stasis::State &state) { state.samplings[1].seed = 77; });
    CHECK(stasis_snapshot_verify(open_snapshot(folder.file("forged")).get(), gemma(), nullptr,
                                 &report, nullptr) == STASIS_DIVERGED);
    CHECK(report.position >= 35);
    CHECK(report.position < 40);
}

TEST_CASE("stasis_session_kv: insights 32, 35: what local layers released is told, and reading it "
          "is an error") {
    const Session session = create(gemma(), 0, STASIS_WINDOW_RETAIN_NONE);
    append(session.get(), some_tokens(400));
    auto info = sized<stasis_session_info>();
    REQUIRE(stasis_session_get_info(session.get(), &info, nullptr) == STASIS_OK);
    CHECK(info.window == 16);
    REQUIRE(info.window_begin == 384);
    CHECK(info.pages_own == 7 + 1); // of the global layer, and of the local ones
    std::vector<uint16_t> keys(400 * 32), values(400 * 32);
    size_t count = 0;
    stasis_error error;
    CHECK(stasis_session_kv(session.get(), 0, 383, 400, keys.data(), values.data(), keys.size(),
                            &count, &error) == STASIS_NOT_FOUND);
    CHECK_MESSAGE(contains(error, "position 383 (window of 16)"), error.message);
    CHECK(stasis_session_kv(session.get(), 0, 384, 400, keys.data(), values.data(), keys.size(),
                            &count, &error) == STASIS_OK);
    CHECK(stasis_session_kv(session.get(), 5, 0, 400, keys.data(), values.data(), keys.size(),
                            &count, &error) == STASIS_OK);
}

TEST_CASE("stasis_model_open: insight 59: a config's dropout has no influence, and a pass repeated "
          "gives its bits") {
    const Folder folder;
    const Session session = session_of(gemma(), some_tokens(100));
    const std::string path = copy_model(folder, "zoo/gemma3-text");
    edit(path + "/config.json", "\"attention_dropout\": 0.0", "\"attention_dropout\": 0.5");
    const Model model = open_path(path);
    for (int i = 0; i < 2; ++i) {
        CHECK(digest(session_of(model.get(), some_tokens(100)).get()) == digest(session.get()));
    }
}
