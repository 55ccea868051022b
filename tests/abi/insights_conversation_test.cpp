// Insights about conversations (tests/INSIGHTS.md), shown on the recall models, whose answers
// depend on much earlier turns.
#include "tests/abi/changed_files.h"
#include "tests/abi/conversation.h"

using namespace abi_test;

namespace {

const char *const kRecall[] = {"recall-gemma3", "recall-llama"};

// Plays the turns [begin, end) and checks the answers.
void play(stasis_session *session, const std::string &model, size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
        CHECK(ask(session, turns_of(model)[i].user) == turns_of(model)[i].reply);
    }
}

// Every token stays at its position; the facts are mixed up.
void reverse_values(stasis::State &state) {
    const size_t width = state.head_dim, slots = state.page_positions;
    for (size_t group = 0; group < state.groups.size(); ++group) {
        for (const stasis::Page &page : state.pages[group]) {
            const bool whole = page.data != nullptr && page.valid == slots;
            for (size_t row = 0; whole && row < stasis::format::page_rows(state, group); ++row) {
                auto *const data = const_cast<uint16_t *>(page.data) + row * slots * width;
                const bool values = row / state.kv_heads % 2 == 1;
                for (size_t i = 0; values && i < slots / 2; ++i) {
                    std::swap_ranges(data + i * width, data + (i + 1) * width,
                                     data + (slots - 1 - i) * width);
                }
            }
        }
    }
}

} // namespace

TEST_CASE("stasis_session_append_message: insights 03, 18: each turn and reply advances the "
          "position by its own tokens") {
    for (const char *name : kRecall) {
        const Session session = create(shared_model(name));
        uint64_t expected = 0;
        for (const Turn &turn : turns_of(name)) {
            say(session.get(), turn.user);
            CHECK(position(session.get()) == (expected += turn.prompt_ids.size()));
            reply(session.get());
            CHECK(position(session.get()) == (expected += turn.reply_ids.size()));
        }
    }
}

TEST_CASE("stasis_session_load: insight 08: a damaged cache still talks, and is refused or found "
          "by verify") {
    for (const char *name : kRecall) {
        const Folder folder;
        stasis_model *const model = shared_model(name);
        const Session session = create(model);
        play(session.get(), name, 0, 6);
        REQUIRE(save(session.get(), folder.file("a")) == STASIS_OK);
        // A byte in the middle of the file, that is in a page: refused.
        std::string bytes = read_file(folder.file("a"));
        bytes[bytes.size() / 2] ^= 1;
        write_file(folder.file("flipped"), bytes);
        stasis_error error;
        CHECK(try_load(model, folder.file("flipped"), error) == STASIS_CORRUPT);
        CHECK_MESSAGE(contains(error, "page"), error.message);
        // A forger's file whose digests are right: the values of each full page in reverse order.
        forge_state(folder.file("a"), folder.file("forged"), reverse_values);
        const Session damaged = load(model, folder.file("forged"));
        const Turn &turn = turns_of(name)[6];
        const std::string answer = ask(damaged.get(), turn.user);
        MESSAGE(std::string(name), " with a damaged cache: ", answer);
        CHECK(answer.size() > 3);
        CHECK(answer.back() == '.');
        CHECK(answer != turn.reply);
        auto report = sized<stasis_verify_report>();
        CHECK(stasis_snapshot_verify(open_snapshot(folder.file("forged")).get(), model, nullptr,
                                     &report, nullptr) == STASIS_DIVERGED);
        CHECK(report.element == 1);
        CHECK(report.position == 0);
        CHECK(ask(session.get(), turn.user) == turn.reply); // the live session is untouched
    }
}

TEST_CASE("stasis_session_tokens: insight 09: tokens are told by turn and source") {
    const Session session = create(shared_model("recall-gemma3"));
    play(session.get(), "recall-gemma3", 0, 2);
    const nlohmann::json spans = element_of(session.get(), 12)["spans"];
    uint64_t total = 0, turns = 0, sampled = 0;
    for (const auto &span : spans) {
        total += span["tokens"].get<uint64_t>();
        turns += span["turn_start"].get<bool>() ? 1 : 0;
        sampled += span["source"] == "sampled" ? span["tokens"].get<uint64_t>() : 0;
    }
    CHECK(total == position(session.get()));
    CHECK(turns == 4); // two of the user, two replies
    CHECK(sampled == turns_of("recall-gemma3")[0].reply_ids.size() +
                         turns_of("recall-gemma3")[1].reply_ids.size());
    const nlohmann::json sources = element_of(session.get(), 4)["sources"];
    CHECK(sources["sampled"] == sampled);
    CHECK(sources["prompt"] == 0);
    CHECK(sources["template"].get<uint64_t>() + sources["text"].get<uint64_t>() + sampled == total);
}

TEST_CASE("stasis_session_append_message: insight 12: a turn costs its own tokens, however long "
          "the history is") {
    for (const char *name : kRecall) {
        const Session session = create(shared_model(name));
        for (const Turn &turn : turns_of(name)) {
            uint64_t computed = 0;
            auto options = sized<stasis_run_options>();
            options.progress_user = &computed;
            options.progress = [](void *user, uint64_t, uint64_t total) -> int32_t {
                *static_cast<uint64_t *>(user) = total;
                return 0;
            };
            say(session.get(), turn.user, &options);
            CHECK(computed == turn.prompt_ids.size());
            reply(session.get());
        }
    }
}

TEST_CASE("stasis_session_append_message: insight 15: turns appended one by one equal the whole "
          "rendering") {
    for (const char *name : kRecall) {
        stasis_model *const model = shared_model(name);
        const Session session = create(model);
        std::vector<stasis_message> messages;
        for (const Turn &turn : turns_of(name)) {
            say(session.get(), turn.user);
            auto message = sized<stasis_message>();
            message.role = "user";
            message.text = turn.user.data();
            message.length = turn.user.size();
            messages.push_back(message);
            std::string whole(1 << 16, '\0'), told(1 << 16, '\0');
            size_t length = 0;
            REQUIRE(stasis_model_render(model, messages.data(), sizeof message, messages.size(),
                                        STASIS_RENDER_REPLY, whole.data(), whole.size(), &length,
                                        nullptr) == STASIS_OK);
            whole.resize(length);
            const Tokens tokens = tokens_from(session.get(), 0);
            REQUIRE(stasis_model_detokenize(model, tokens.data(), tokens.size(),
                                            STASIS_DETOKENIZE_SPECIAL, told.data(), told.size(),
                                            &length, nullptr) == STASIS_OK);
            told.resize(length);
            CHECK(told == whole);
            reply(session.get());
            message.role = "assistant";
            message.text = turn.reply.data();
            message.length = turn.reply.size();
            messages.push_back(message);
        }
    }
}

TEST_CASE("stasis_session_text: insight 27: tokens are kept as they were, even where their text "
          "has other tokens") {
    const Folder folder;
    for (const char *name : kRecall) {
        stasis_model *const model = shared_model(name);
        const Tokens whole = tokenize(model, "variable");
        Tokens letters;
        for (const char letter : std::string("variable")) {
            const Tokens one = tokenize(model, {letter});
            letters.insert(letters.end(), one.begin(), one.end());
        }
        REQUIRE(letters != whole);
        const Session session = session_of(model, letters);
        say(session.get(), "What is k?");
        REQUIRE(save(session.get(), folder.file(name)) == STASIS_OK);
        const Session loaded = load(model, folder.file(name));
        ask(loaded.get(), "What is m?");
        Tokens kept = tokens_from(loaded.get(), 0);
        kept.resize(letters.size());
        CHECK(kept == letters);
    }
}

TEST_CASE("stasis_session_get_info: insight 39: the room that is left is told, and a reply stops "
          "at the end by name") {
    const Turn &turn = turns_of("recall-gemma3")[0];
    const Session session = create(shared_model("recall-gemma3"), turn.prompt_ids.size() + 3);
    say(session.get(), turn.user);
    CHECK(info_of(session.get()).capacity - position(session.get()) == 3);
    auto result = sized<stasis_generate_result>();
    REQUIRE(stasis_session_generate(session.get(), nullptr, &result, nullptr) == STASIS_OK);
    CHECK(result.stop_reason == STASIS_STOP_LENGTH);
    CHECK(result.count == 3);
    CHECK(info_of(session.get()).capacity == position(session.get()));
}

TEST_CASE("stasis_session_get_info: insight 40: what each turn adds to the memory is told") {
    const Session session = create(shared_model("recall-llama")); // global layers only
    uint64_t page_bytes = 0;
    for (const Turn &turn : turns_of("recall-llama")) {
        ask(session.get(), turn.user);
        const stasis_session_info info = info_of(session.get());
        const uint64_t pages = (info.position + 63) / 64;
        page_bytes = page_bytes == 0 ? info.kv_bytes / pages : page_bytes;
        CHECK(info.pages_own == pages);
        CHECK(info.kv_bytes == pages * page_bytes);
    }
}

TEST_CASE("stasis_session_digest: insight 48: a paraphrase is another state, though the answer is "
          "the same") {
    const Folder folder;
    for (const char *name : kRecall) {
        const Turn &turn = turns_of(name)[0];
        const Session first = create(shared_model(name)), second = create(shared_model(name));
        CHECK(ask(first.get(), turn.user) == turn.reply);
        std::string other = turn.user;
        other.replace(other.find("Let's start by defining"), 23, "Let's start with");
        CHECK(ask(second.get(), other) == turn.reply);
        CHECK(digest(first.get()) != digest(second.get()));
        REQUIRE(save(first.get(), folder.file("a"), STASIS_SAVE_REPLACE) == STASIS_OK);
        REQUIRE(save(second.get(), folder.file("b"), STASIS_SAVE_REPLACE) == STASIS_OK);
        auto difference = sized<stasis_difference>();
        REQUIRE(stasis_snapshot_compare(open_snapshot(folder.file("a")).get(),
                                        open_snapshot(folder.file("b")).get(), &difference,
                                        nullptr) == STASIS_OK);
        CHECK(difference.equal == 0);
        CHECK(difference.element == 4);
        CHECK(difference.position < turn.prompt_ids.size());
    }
}

TEST_CASE("stasis_session_append_message: insights 22, 50: at its end a session refuses the turn "
          "and keeps all it has") {
    for (const char *name : kRecall) {
        const Session calm = create(shared_model(name)), full = create(shared_model(name), 80);
        play(calm.get(), name, 0, 2);
        play(full.get(), name, 0, 2);
        const std::string &text = turns_of(name)[2].user;
        stasis_error error;
        CHECK(stasis_session_append_message(full.get(), "user", text.data(), text.size(),
                                            STASIS_MESSAGE_REPLY, nullptr, &error) == STASIS_FULL);
        CHECK_MESSAGE(contains(error, "capacity of 80"), error.message);
        CHECK(tokens_from(full.get(), 0) == tokens_from(calm.get(), 0));
        CHECK(digest(full.get()) == digest(calm.get()));
        // Nothing of the beginning is lost: with enough capacity again, the oldest fact is still in
        // the log.
        const Folder folder;
        REQUIRE(save(full.get(), folder.file("a")) == STASIS_OK);
        auto roomy = sized<stasis_session_options>();
        auto options = sized<stasis_load_options>();
        options.session = &roomy;
        stasis_session *out = nullptr;
        REQUIRE(stasis_session_load(shared_model(name), folder.file("a").c_str(), &options, &out,
                                    nullptr) == STASIS_OK);
        const Session loaded(out);
        play(loaded.get(), name, 2, 8);
    }
}
