// Made the golden files of format version 1, and of what was added to it for constraints and for
// sets of tokens. They stay as they are for good: this shows where they came from (since there is a
// tree of settings, sets.stasis would be another file). Runs only when asked for:
//   test_abi --no-skip --test-case='*golden files that are missing are made'
#include <functional>
#include <span>

#include "format/constants.h"
#include "tests/abi/golden.h"

using namespace abi_test;

namespace {

using Json = nlohmann::ordered_json;

void set_temperature(stasis_session *session, float temperature, uint64_t seed) {
    auto sampling = sized<stasis_sampling>();
    sampling.temperature = temperature;
    sampling.top_k = 50;
    sampling.top_p = 0.95F;
    sampling.repetition_penalty = 1.1F;
    sampling.seed = seed;
    REQUIRE(stasis_session_set_sampling(session, &sampling, nullptr) == STASIS_OK);
}

void add_system(stasis_session *session, const std::string &text) {
    REQUIRE(stasis_session_append_message(session, "system", text.data(), text.size(), 0, nullptr,
                                          nullptr) == STASIS_OK);
}

void commit(stasis_session *session, const std::string &path) {
    REQUIRE(save(session, path) == STASIS_OK);
}

void first_save(stasis_model *model, const std::string &path) {
    commit(session_of(model, some_tokens(5)).get(), path);
}

// Grows, is rewound, forks, draws; then a commit of which nothing but some sections got written.
void many_commits(stasis_model *model, const std::string &path) {
    const Session session = session_of(model, some_tokens(12));
    commit(session.get(), path);
    append(session.get(), some_tokens(5, 2));
    commit(session.get(), path);
    const Session child = fork(session.get());
    rewind(session.get(), 9); // into the first run
    commit(session.get(), path);
    append(child.get(), some_tokens(2, 3));
    commit(child.get(), path);
    draw(child.get(), 2);
    commit(child.get(), path);
    const std::string before = read_file(path);
    append(child.get(), some_tokens(4, 4));
    commit(child.get(), path);
    const std::string after = read_file(path);
    const size_t cut = before.size() + (after.size() - before.size()) * 2 / 3;
    write_file(path, before.substr(0, 3 * 4096) + after.substr(3 * 4096, cut - 3 * 4096));
}

void zstd_and_row(stasis_model *model, const std::string &path) {
    auto options = sized<stasis_save_options>();
    options.flags = STASIS_SAVE_FULL_LOGITS;
    options.codec = STASIS_CODEC_ZSTD;
    const Session session = session_of(model, some_tokens(17));
    REQUIRE(stasis_session_save(session.get(), path.c_str(), &options, nullptr) == STASIS_OK);
}

// A conversation of which the keys and values were left out, under two sampling settings.
void chat_without_keys(stasis_model *model, const std::string &path) {
    const Session session = create(model);
    add_system(session.get(), "You are a helpful assistant.");
    set_temperature(session.get(), 0.8F, 7);
    ask(session.get(), "hello");
    set_temperature(session.get(), 1.2F, 8);
    ask(session.get(), "my name is Ada");
    REQUIRE(save_as(session.get(), path, STASIS_CODEC_RAW, STASIS_KEEP_NONE) == STASIS_OK);
}

void pending_system(stasis_model *model, const std::string &path) {
    const Session session = create(model, 500, 32);
    add_system(session.get(), "Be brief.");
    commit(session.get(), path);
}

void streamed(stasis_model *model, const std::string &path) {
    Memory memory;
    const stasis_sink sink = memory.sink();
    const Session session = session_of(model, some_tokens(7));
    REQUIRE(stasis_session_write(session.get(), &sink, nullptr, nullptr) == STASIS_OK);
    write_file(path, memory.bytes);
}

// After the window, so that local layers have released a page; the keys' codec changes between
// saves.
void window_past(stasis_model *model, const std::string &path) {
    const Session session = create(model, 0, STASIS_WINDOW_RETAIN_NONE);
    append(session.get(), some_tokens(129));
    REQUIRE(save_as(session.get(), path, STASIS_CODEC_ZSTD) == STASIS_OK);
    append(session.get(), some_tokens(2, 2));
    commit(session.get(), path);
}

// The newer of two slots is damaged: what opens is the commit before.
void slot_damaged(stasis_model *model, const std::string &path) {
    const Session session = session_of(model, some_tokens(5));
    commit(session.get(), path);
    append(session.get(), some_tokens(3, 2));
    commit(session.get(), path);
    std::string bytes = read_file(path);
    bytes[2 * 4096 + 50] = static_cast<char>(bytes[2 * 4096 + 50] ^ 4);
    write_file(path, bytes);
}

void constrain(stasis_session *session, uint32_t kind, const std::string &text) {
    REQUIRE(stasis_session_set_constraint(session, kind, text.data(), text.size(), nullptr,
                                          nullptr) == STASIS_OK);
}

// Replies under two constraints and none, and one that stands in the middle of its text.
void constrained_replies(stasis_model *model, const std::string &path) {
    const Session session = create(model);
    set_temperature(session.get(), 0.9F, 11);
    constrain(session.get(), STASIS_CONSTRAINT_REGEX, "(yes|no), [a-z]{2,9}[.!]");
    ask(session.get(), "hello");
    constrain(session.get(), STASIS_CONSTRAINT_NONE, "");
    ask(session.get(), "my name is Ada");
    constrain(session.get(), STASIS_CONSTRAINT_JSON_SCHEMA,
              R"({"type":"object","properties":{"name":{"type":"string","maxLength":9},)"
              R"("age":{"type":"integer","minimum":0}},"required":["age"]})");
    ask(session.get(), "and you?");
    commit(session.get(), path);
    say(session.get(), "again");
    draw(session.get(), 5);
    commit(session.get(), path);
}

void constrained_without_keys(stasis_model *model, const std::string &path) {
    const Session session = create(model);
    set_temperature(session.get(), 0.9F, 12);
    constrain(session.get(), STASIS_CONSTRAINT_GRAMMAR, "root ::= \"x\" root? \"y\" | [0-9]{1,3}");
    ask(session.get(), "hello");
    constrain(session.get(), STASIS_CONSTRAINT_JSON, "");
    say(session.get(), "again");
    draw(session.get(), 6);
    REQUIRE(save_as(session.get(), path, STASIS_CODEC_RAW, STASIS_KEEP_NONE) == STASIS_OK);
}

// Sets of tokens in both forms, the last one for the draw that comes next.
void sets_of_tokens(stasis_model *model, const std::string &path) {
    auto info = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(model, &info, nullptr) == STASIS_OK);
    const Session session = session_of(model, some_tokens(20));
    set_temperature(session.get(), 1.5F, 13);
    std::vector<uint32_t> bits((info.vocabulary + 31) / 32);
    for (uint32_t i = 0; i < 13; ++i) {
        for (size_t word = 0; word < bits.size(); ++word) {
            bits[word] = i % 3 == 0 ? 0x5A5A33CC + i * 0x9E3779B9U : word % 5 == i % 5 ? ~0U : 0;
        }
        REQUIRE(stasis_session_set_allowed(session.get(), bits.data(), bits.size(), nullptr) ==
                STASIS_OK);
        if (i < 12) {
            draw(session.get());
        }
    }
    REQUIRE(save_as(session.get(), path, STASIS_CODEC_ZSTD) == STASIS_OK);
}

// Draws tokens under sets that change a little from token to token, come again, are given by
// another seed or not at all.
void draw_under_sets(stasis_session *session, uint32_t vocabulary, uint32_t count) {
    std::vector<uint32_t> bits((vocabulary + 31) / 32, 0x0F0FF0F0);
    for (uint32_t i = 0; i < count; ++i) {
        set_temperature(session, 1.4F, i % 9 == 8 ? 15 : 14);
        bits[i * 7 % bits.size()] ^= 0x00000111U << i % 8;
        if (i % 11 == 10) {
            std::fill(bits.begin(), bits.end(), i % 2 == 0 ? 0x80000001U : ~0U << i % 32);
        }
        if (i % 13 != 12) {
            REQUIRE(stasis_session_set_allowed(session, bits.data(), bits.size(), nullptr) ==
                    STASIS_OK);
        }
        draw(session);
    }
}

// Settings of the tree of more than one leaf, over commits and a rewind.
void tree_of_sets(stasis_model *model, const std::string &path) {
    auto info = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(model, &info, nullptr) == STASIS_OK);
    const Session session = session_of(model, some_tokens(5));
    draw_under_sets(session.get(), info.vocabulary, 30);
    commit(session.get(), path);
    rewind(session.get(), 27);
    constrain(session.get(), STASIS_CONSTRAINT_REGEX, "[ -~]{1,200}");
    draw_under_sets(session.get(), info.vocabulary, 9);
    constrain(session.get(), STASIS_CONSTRAINT_NONE, "");
    draw_under_sets(session.get(), info.vocabulary, 28);
    commit(session.get(), path);
}

void tree_without_keys(stasis_model *model, const std::string &path) {
    auto info = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(model, &info, nullptr) == STASIS_OK);
    const Session session = session_of(model, some_tokens(5));
    draw_under_sets(session.get(), info.vocabulary, 15);
    REQUIRE(save_as(session.get(), path, STASIS_CODEC_RAW, STASIS_KEEP_NONE) == STASIS_OK);
}

void stream_of_sets(stasis_model *model, const std::string &path) {
    auto info = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(model, &info, nullptr) == STASIS_OK);
    Memory memory;
    const stasis_sink sink = memory.sink();
    const Session session = session_of(model, some_tokens(7));
    draw_under_sets(session.get(), info.vocabulary, 20);
    REQUIRE(stasis_session_write(session.get(), &sink, nullptr, nullptr) == STASIS_OK);
    write_file(path, memory.bytes);
}

struct Golden {
    const char *name, *model, *what;
    std::function<void(stasis_model *, const std::string &)> make;
};

const Golden kGolden[] = {
    {"first.stasis", "recall-llama", "a first save, raw", first_save},
    {"commits.stasis", "recall-llama",
     "five commits (append, rewind, fork, draws) and the bytes of an interrupted one",
     many_commits},
    {"zstd-row.stasis", "recall-llama", "zstd, with the whole row of logits", zstd_and_row},
    {"chat-none.stasis", "recall-llama", "a conversation drawn under two settings, keep none",
     chat_without_keys},
    {"stream.stasis", "recall-gemma3", "the stream form", streamed},
    {"window.stasis", "recall-gemma3", "behind the window: a released page; zstd, then raw",
     window_past},
    {"slot.stasis", "recall-gemma3", "the newer slot damaged: opens at the commit before",
     slot_damaged},
    {"chat-none-gemma.stasis", "recall-gemma3", "as chat-none.stasis", chat_without_keys},
    {"pending.stasis", "recall-gemma3", "position 0, a system text that waits", pending_system},
};

// Of the form that version 3 of the contract's sampling added.
const Golden kConstrained[] = {
    {"replies.stasis", "recall-llama", "replies under two constraints and none, two commits",
     constrained_replies},
    {"replies-gemma.stasis", "recall-gemma3", "as replies.stasis", constrained_replies},
    {"none.stasis", "recall-llama", "a grammar, then JSON in the middle of a text, keep none",
     constrained_without_keys},
    {"sets.stasis", "recall-gemma3", "tokens drawn from sets of the host's, zstd", sets_of_tokens},
};

// Of the form in which the settings are in a tree.
const Golden kSets[] = {
    {"commits.stasis", "recall-llama", "tokens drawn from sets, over commits and a rewind",
     tree_of_sets},
    {"none.stasis", "recall-gemma3", "tokens drawn from sets, keep none", tree_without_keys},
    {"stream.stasis", "recall-gemma3", "tokens drawn from sets, the stream form", stream_of_sets},
};

Json record(const Golden &golden, const std::string &path, uint64_t features) {
    const stasis_snapshot_info info = snapshot_info(path);
    const std::string bytes = read_file(path);
    Json found = {{"name", golden.name}, {"model", golden.model}, {"what", golden.what}};
    found["sha256"] = to_hex(stasis::Sha256().bytes(bytes.data(), bytes.size()).finish());
    found["position"] = info.position;
    found["digest"] = hex(info.digest.bytes);
    found["root"] = hex(info.root.bytes);
    found["commits"] = info.commits;
    found["keep"] = info.keep;
    found["codec"] = info.codec;
    found["flags"] = info.flags;
    found["features"] = features; // for which a reader must refuse the file
    found["states"] = Json::array();
    found.update(continuation(load(shared_model(golden.model), path).get()));
    return found;
}

} // namespace

TEST_CASE("stasis_session_save: golden files that are missing are made" * doctest::skip()) {
    const auto make = [](const std::string &folder, std::span<const Golden> all,
                         uint64_t features = 0) {
        if (std::filesystem::exists(golden_path(folder, ""))) {
            return; // they are never made anew
        }
        std::filesystem::create_directories(golden_path(folder, ""));
        Json files = Json::array();
        for (const Golden &golden : all) {
            const std::string path = golden_path(folder, golden.name);
            golden.make(shared_model(golden.model), path);
            files.push_back(record(golden, path, features));
        }
        write_file(golden_path(folder, "golden.json"), files.dump(1) + "\n");
    };
    make("v1", kGolden);
    make("constraints", kConstrained);
    make("sets", kSets, stasis::format::kFeatureSettings);
}
