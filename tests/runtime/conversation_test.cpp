// The eight-turn conversation on both recall models: tokens, replies, spans; what becomes of it
// when it is frozen half-way, and what the models say when memory is damaged (insights 14, 30, 50).
#include <algorithm>

#include "tests/runtime/json_data.h"
#include "tests/runtime/models.h"

using namespace stasis;
using namespace stasis::test;

namespace {

struct Turn {
    std::string user, reply;
    std::vector<uint32_t> prompt_ids, reply_ids;
};

std::vector<Turn> turns_of(const std::string &name) {
    std::vector<Turn> turns;
    const auto conversation = read_json(directory(name) + "/conversation.json");
    for (const auto &turn : conversation["turns"]) {
        turns.push_back({turn["user"], turn["reply"], turn["prompt_ids"], turn["reply_ids"]});
    }
    return turns;
}

std::string play(Session &session, const Turn &turn) {
    session.append_message("user", turn.user, true, {});
    std::string text;
    GenerateOptions options;
    options.tokens_max = 60;
    options.callback_user = &text;
    options.callback = [](void *user, const Generated &generated) {
        static_cast<std::string *>(user)->append(generated.text);
        return true;
    };
    GenerateResult result;
    session.generate(options, result);
    CHECK(result.reason == StopReason::end_token);
    return text;
}

void reverse_values(const PageShape &shape, uint16_t *data) {
    for (size_t layer = 0; layer < shape.layers; ++layer) {
        for (size_t head = 0; head < shape.kv_heads; ++head) {
            uint16_t *slots = data + shape.offset(layer, 1, head);
            for (size_t slot = 0; slot < kPage / 2; ++slot) {
                std::swap_ranges(slots + slot * shape.head_dim, slots + (slot + 1) * shape.head_dim,
                                 slots + (kPage - 1 - slot) * shape.head_dim);
            }
        }
    }
}

const char *const kRecall[] = {"recall-gemma3", "recall-llama"};

} // namespace

TEST_CASE("Session: the eight-turn conversation gives the published tokens and answers") {
    kernels::FloatEnvironment environment;
    for (const char *name : kRecall) {
        Session session(open(name), {});
        for (const Turn &turn : turns_of(name)) {
            const uint64_t begin = session.position();
            const std::string reply = play(session, turn);
            CHECK_MESSAGE(reply == turn.reply, name << ": " << turn.user);
            std::vector<uint32_t> tokens;
            for (uint64_t i = begin; i < session.position(); ++i) {
                tokens.push_back(session.entry(i).token);
            }
            std::vector<uint32_t> expected = turn.prompt_ids;
            expected.insert(expected.end(), turn.reply_ids.begin(), turn.reply_ids.end());
            REQUIRE_MESSAGE(tokens == expected, name << ": " << turn.user);
        }
    }
}

TEST_CASE("Session: frozen at any turn, the conversation goes on with the same words and bits") {
    kernels::FloatEnvironment environment;
    for (const char *name : kRecall) {
        const std::vector<Turn> turns = turns_of(name);
        Session whole(open(name), {});
        std::vector<State> frozen;
        for (const Turn &turn : turns) {
            frozen.push_back(export_state(whole));
            play(whole, turn);
        }
        for (size_t cut = 0; cut < turns.size(); ++cut) {
            const auto resumed = restore_session(open(name, 1), frozen[cut], nullptr);
            for (size_t i = cut; i < turns.size(); ++i) {
                CHECK(play(*resumed, turns[i]) == turns[i].reply);
            }
            CHECK(resumed->digest() == whole.digest());
        }
    }
}

TEST_CASE("Session: insight 25: spans show which tokens the template added") {
    kernels::FloatEnvironment environment;
    Session session(open("recall-gemma3"), {});
    const Turn turn = turns_of("recall-gemma3")[0];
    play(session, turn);
    std::string by_source[4];
    for (uint64_t i = 0; i < session.position(); ++i) {
        const TokenEntry entry = session.entry(i);
        by_source[static_cast<int>(entry.source)] +=
            session.model()->tokenizer->decode({&entry.token, 1}, false, true);
    }
    CHECK(by_source[static_cast<int>(TokenSource::text)] == turn.user);
    CHECK(by_source[static_cast<int>(TokenSource::sampled)] == turn.reply + "<end_of_turn>");
    CHECK(by_source[static_cast<int>(TokenSource::templated)] ==
          "<bos><start_of_turn>user\n<end_of_turn>\n<start_of_turn>model\n");
}

TEST_CASE("Session: a reply that was cut is closed with the template's own end") {
    kernels::FloatEnvironment environment;
    const std::vector<Turn> turns = turns_of("recall-gemma3");
    Session session(open("recall-gemma3"), {});
    session.append_message("user", turns[0].user, true, {});
    GenerateOptions two;
    two.tokens_max = 2;
    GenerateResult result;
    session.generate(two, result);
    CHECK(result.reason == StopReason::length);
    session.append_message("user", "Now?", true, {});
    const auto &tokenizer = *session.model()->tokenizer;
    std::vector<uint32_t> tokens;
    for (uint64_t i = 0; i < session.position(); ++i) {
        tokens.push_back(session.entry(i).token);
    }
    const std::string text = tokenizer.decode(tokens, true, true);
    CHECK(text == "<bos><start_of_turn>user\n" + turns[0].user +
                      "<end_of_turn>\n<start_of_turn>model\nk is<end_of_turn>\n"
                      "<start_of_turn>user\nNow?<end_of_turn>\n<start_of_turn>model\n");
}

TEST_CASE("Session: insight 22: memory is lost under truncation, and the answer shows it") {
    kernels::FloatEnvironment environment;
    for (const char *name : kRecall) {
        const std::vector<Turn> turns = turns_of(name);
        Session truncated(open(name), {}); // what an engine does that drops the oldest turns
        for (size_t i = 5; i < turns.size() - 1; ++i) {
            play(truncated, turns[i]);
        }
        const std::string answer = play(truncated, turns.back());
        MESSAGE(std::string(name) << " without its first five turns: " << answer);
        CHECK(answer != turns.back().reply);
    }
}

TEST_CASE("Session: insight 30: a damaged cache answers fluently and wrong; the digest tells") {
    kernels::FloatEnvironment environment;
    for (const char *name : kRecall) {
        const std::vector<Turn> turns = turns_of(name);
        Session session(open(name), {});
        for (size_t i = 0; i + 2 < turns.size(); ++i) {
            play(session, turns[i]);
        }
        State state = export_state(session);
        // The values of each full page in reverse order: every token stays, what it told is mixed
        // up.
        std::vector<std::vector<uint16_t>> damaged;
        for (size_t group = 0; group < state.pages.size(); ++group) {
            const PageShape &shape = session.model()->pool->shape(static_cast<uint32_t>(group));
            for (Page &page : state.pages[group]) {
                if (page.data != nullptr && page.valid == kPage) {
                    auto &copy = damaged.emplace_back(page.data, page.data + shape.elements());
                    reverse_values(shape, copy.data());
                    page.data = copy.data();
                }
            }
        }
        const Digest honest = state.digest;
        // An honest file cannot hold this: the reader checks each page against its digest.
        const auto broken = restore_session(open(name), state, nullptr);
        const std::string answer = play(*broken, turns[6]);
        MESSAGE(std::string(name) << " with a damaged cache: " << answer);
        CHECK(answer != turns[6].reply);
        const PageShape &shape = session.model()->pool->shape(0);
        CHECK(page_digest({0, 0, state.pages[0][0].data, shape.rows(), kPage,
                           state.pages[0][0].valid, shape.head_dim}) != state.pages[0][0].digest);
        CHECK(session.digest() == honest);
    }
}
