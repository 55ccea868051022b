// Turns of a log: messages, replies, tokens that belong to neither, in sessions and in snapshots.
#include "tests/abi/conversation.h"

using namespace abi_test;

namespace {

struct Found {
    uint32_t role, source;
    uint64_t begin, end, content_begin, content_end;
    bool operator==(const Found &) const = default;
};

template <class Handle, class Call>
std::vector<Found> turns_from(const Handle *handle, const Call &call, uint64_t begin) {
    size_t count = 0;
    const stasis_status asked =
        call(handle, begin, nullptr, sizeof(stasis_turn), 0, &count, nullptr);
    REQUIRE(asked == (count == 0 ? STASIS_OK : STASIS_BUFFER_TOO_SMALL));
    std::vector<stasis_turn> turns(count);
    REQUIRE(call(handle, begin, turns.data(), sizeof turns[0], count, &count, nullptr) ==
            STASIS_OK);
    std::vector<Found> found;
    for (const stasis_turn &turn : turns) {
        CHECK(turn.struct_size == sizeof turn);
        CHECK(turn.reserved == 0);
        CHECK(turn.begin < turn.end);
        CHECK((found.empty() || found.back().end == turn.begin)); // without a gap
        found.push_back(
            {turn.role, turn.source, turn.begin, turn.end, turn.content_begin, turn.content_end});
    }
    return found;
}

// From a session, and the same from its snapshot and from every position on.
std::vector<Found> found_turns(const Session &session) {
    const std::vector<Found> turns = turns_from(session.get(), stasis_session_turns, 0);
    const Folder folder;
    REQUIRE(save(session.get(), folder.file("s")) == STASIS_OK);
    const Snapshot snapshot = open_snapshot(folder.file("s"));
    CHECK(turns_from(snapshot.get(), stasis_snapshot_turns, 0) == turns);
    const uint64_t end = position(session.get());
    CHECK((turns.empty() ? 0 : turns.back().end) == end);
    for (uint64_t begin = 0; begin <= end; ++begin) {
        auto first = std::find_if(turns.begin(), turns.end(),
                                  [&](const Found &turn) { return turn.end > begin; });
        REQUIRE(turns_from(session.get(), stasis_session_turns, begin) ==
                std::vector<Found>(first, turns.end()));
        REQUIRE(turns_from(snapshot.get(), stasis_snapshot_turns, begin) ==
                std::vector<Found>(first, turns.end()));
    }
    stasis_error error;
    size_t count = 0;
    CHECK(stasis_session_turns(session.get(), end + 1, nullptr, sizeof(stasis_turn), 0, &count,
                               &error) == STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "begin is"));
    return turns;
}

std::string shown_text(const Session &session, uint64_t begin, uint64_t end) {
    std::string text(1000, '\0');
    size_t length = 0;
    REQUIRE(stasis_session_text(session.get(), begin, end, text.data(), text.size(), &length,
                                nullptr) == STASIS_OK);
    return text.substr(0, length);
}

std::string content(const Session &session, const Found &turn) {
    return shown_text(session, turn.content_begin, turn.content_end);
}

void say_as(const Session &session, const char *role, const std::string &text) {
    REQUIRE(stasis_session_append_message(session.get(), role, text.data(), text.size(), 0, nullptr,
                                          nullptr) == STASIS_OK);
}

} // namespace

TEST_CASE("stasis_session_turns: messages and replies, with the text of each") {
    for (const char *name : {"recall-llama", "recall-gemma3"}) {
        CAPTURE(name);
        const Session session = create(shared_model(name));
        CHECK(found_turns(session).empty());
        std::vector<std::string> said;
        for (const Turn &turn : turns_of(name)) {
            said.push_back(turn.user);
            said.push_back(ask(session.get(), turn.user));
            if (said.size() == 6) {
                break;
            }
        }
        const std::vector<Found> turns = found_turns(session);
        REQUIRE(turns.size() == said.size());
        for (size_t i = 0; i < turns.size(); ++i) {
            CAPTURE(i);
            CHECK(turns[i].role == (i % 2 == 0 ? STASIS_ROLE_USER : STASIS_ROLE_ASSISTANT));
            CHECK(turns[i].source == (i % 2 == 0 ? STASIS_SOURCE_TEXT : STASIS_SOURCE_SAMPLED));
            CHECK(content(session, turns[i]) == said[i]);
            CHECK(turns[i].begin < turns[i].content_begin); // what the template puts before it
        }
        // A rewind cuts the last turn.
        rewind(session.get(), turns[3].content_begin);
        const std::vector<Found> cut = found_turns(session);
        REQUIRE(cut.size() == 4);
        CHECK(cut[3] == Found{STASIS_ROLE_ASSISTANT, STASIS_SOURCE_TEMPLATE, turns[3].begin,
                              turns[3].content_begin, turns[3].content_begin,
                              turns[3].content_begin});
        CHECK(cut[2] == turns[2]);
    }
}

TEST_CASE("stasis_session_turns: a reply that is open, and one that the host gives as tokens") {
    const Session session = create(shared_model("recall-llama"));
    say(session.get(), "hello");
    const uint64_t prompted = position(session.get());
    std::vector<Found> turns = found_turns(session);
    REQUIRE(turns.size() == 2);
    CHECK(turns[1].role == STASIS_ROLE_ASSISTANT);
    CHECK(turns[1].source == STASIS_SOURCE_TEMPLATE);
    CHECK(turns[1].content_begin == prompted);
    CHECK(turns[1].content_end == prompted);
    const Tokens given = tokenize(shared_model("recall-llama"), "Yes.");
    append(session.get(), {given[0]});
    append(session.get(), Tokens(given.begin() + 1, given.end()));
    turns = found_turns(session);
    REQUIRE(turns.size() == 2);
    CHECK(turns[1].source == STASIS_SOURCE_PROMPT);
    CHECK(turns[1].content_begin == prompted);
    CHECK(turns[1].content_end == position(session.get()));
    draw(session.get(), 2);
    turns = found_turns(session);
    REQUIRE(turns.size() == 2);
    CHECK(turns[1].source == STASIS_SOURCE_SAMPLED);
    CHECK(turns[1].end == prompted + given.size() + 2);
    // The next message closes the reply with tokens that are the reply's.
    const uint64_t drawn = position(session.get());
    say_as(session, "user", "again");
    turns = found_turns(session);
    REQUIRE(turns.size() == 3);
    CHECK(turns[1].content_end == drawn);
    CHECK(turns[1].end > drawn);
    CHECK(content(session, turns[2]) == "again");
}

TEST_CASE("stasis_session_turns: tokens without a message are one turn of nobody's") {
    const Session session = create(shared_model("recall-llama"));
    append(session.get(), some_tokens(3));
    append(session.get(), some_tokens(4));
    CHECK(found_turns(session) ==
          std::vector<Found>{{STASIS_ROLE_NONE, STASIS_SOURCE_PROMPT, 0, 7, 0, 7}});
    draw(session.get(), 2); // after none of a template's turns this is no reply
    CHECK(found_turns(session) ==
          std::vector<Found>{{STASIS_ROLE_NONE, STASIS_SOURCE_SAMPLED, 0, 9, 0, 9}});
    say_as(session, "user", "hello");
    const uint64_t said = position(session.get());
    append(session.get(), some_tokens(5));
    say_as(session, "assistant", "I am here.");
    draw(session.get(), 3); // without a generation prompt
    const std::vector<Found> turns = found_turns(session);
    REQUIRE(turns.size() == 5);
    CHECK(turns[1].role == STASIS_ROLE_USER);
    CHECK(turns[1].begin == 9);
    CHECK(turns[1].end == said);
    CHECK(turns[2] ==
          Found{STASIS_ROLE_NONE, STASIS_SOURCE_PROMPT, said, said + 5, said, said + 5});
    CHECK(turns[3].role == STASIS_ROLE_ASSISTANT);
    CHECK(turns[3].source == STASIS_SOURCE_TEXT);
    CHECK(content(session, turns[3]) == "I am here.");
    CHECK(turns[4].role == STASIS_ROLE_ASSISTANT);
    CHECK(turns[4].source == STASIS_SOURCE_SAMPLED);
    CHECK(turns[4].begin == turns[4].content_begin);
    // A model without a chat template has such turns alone.
    const Session bare = session_of(gemma(), some_tokens(40));
    CHECK(found_turns(bare) ==
          std::vector<Found>{{STASIS_ROLE_NONE, STASIS_SOURCE_PROMPT, 0, 40, 0, 40}});
}

TEST_CASE("stasis_session_turns: a system text is a turn of its own, or the user's, by the "
          "template") {
    const Session chatml = create(shared_model("recall-llama"));
    say_as(chatml, "system", "Be brief.");
    say_as(chatml, "user", "hello");
    const std::vector<Found> turns = found_turns(chatml);
    CHECK(turns.front().role == (turns.size() == 2 ? STASIS_ROLE_SYSTEM : STASIS_ROLE_USER));
    CHECK(turns.back().role == STASIS_ROLE_USER);
    const Session joined = create(shared_model("recall-gemma3"));
    say_as(joined, "system", "Be brief.");
    CHECK(found_turns(joined).empty()); // it waits
    say_as(joined, "user", "hello");
    const std::vector<Found> one = found_turns(joined);
    REQUIRE(one.size() == 1);
    CHECK(one[0].role == STASIS_ROLE_USER);
    CHECK(content(joined, one[0]).find("Be brief.") != std::string::npos);
}
