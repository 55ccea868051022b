// The trace without a callback: events wait until they are taken, the same as a callback hears, and
// what is lost is counted.
#include <algorithm>

#include "tests/abi/trace_model.h"

using namespace abi_test;

namespace {

constexpr size_t kEvent = sizeof(stasis_trace_event);

stasis_trace_options waiting(uint64_t events, uint32_t flags = 0) {
    auto options = sized<stasis_trace_options>();
    options.queue_events = events;
    options.flags = flags;
    return options;
}

// Takes up to `capacity` events, and the number lost after them.
std::vector<stasis_trace_event> take(const Session &session, size_t capacity,
                                     uint64_t *lost = nullptr) {
    std::vector<stasis_trace_event> events(capacity);
    size_t count = SIZE_MAX;
    REQUIRE(stasis_session_take_trace(session.get(), events.data(), kEvent, capacity, &count, lost,
                                      nullptr) == STASIS_OK);
    REQUIRE(count <= capacity);
    events.resize(count);
    return events;
}

bool same(const std::vector<stasis_trace_event> &a, const std::vector<stasis_trace_event> &b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), a.size() * kEvent) == 0);
}

// Something of everything.
void live(stasis_session *session, const Folder &folder) {
    append(session, some_tokens(150));
    const Session child = fork(session);
    append(session, some_tokens(100, 2));
    REQUIRE(stasis_session_rewind(session, 200, 0, nullptr, nullptr) == STASIS_OK);
    REQUIRE(stasis_session_evict(session, 10, 130, nullptr) == STASIS_OK);
    append(session, some_tokens(40, 3));
    REQUIRE(save(session, folder.file("s"), STASIS_SAVE_REPLACE) == STASIS_OK);
}

} // namespace

TEST_CASE("stasis_session_take_trace: events that wait are those that a callback hears") {
    const Folder folder;
    TraceModel heard;
    const Session one = create(gemma(), 0, 1000);
    const stasis_trace_options calling = heard.options(STASIS_TRACE_READS);
    REQUIRE(stasis_session_set_trace(one.get(), &calling, nullptr) == STASIS_OK);
    live(one.get(), folder);
    REQUIRE(heard.events.size() > 30);
    for (const size_t piece : {size_t{1}, size_t{7}, size_t{1000}}) {
        CAPTURE(piece);
        const Session other = create(gemma(), 0, 1000);
        const stasis_trace_options options = waiting(1000, STASIS_TRACE_READS);
        REQUIRE(stasis_session_set_trace(other.get(), &options, nullptr) == STASIS_OK);
        live(other.get(), folder);
        CHECK(take(other, 0).empty());
        std::vector<stasis_trace_event> all;
        uint64_t lost = 1;
        for (;;) {
            const auto events = take(other, piece, &lost);
            CHECK(lost == 0);
            if (events.empty()) {
                break;
            }
            all.insert(all.end(), events.begin(), events.end());
        }
        CHECK(same(all, heard.events));
    }
}

TEST_CASE(
    "stasis_session_take_trace: events go round the queue, and those without room are counted") {
    const Folder folder;
    TraceModel heard;
    const Session one = create(gemma()), other = create(gemma());
    heard.follow(one.get());
    constexpr size_t kRoom = 9;
    const stasis_trace_options options = waiting(kRoom);
    REQUIRE(stasis_session_set_trace(other.get(), &options, nullptr) == STASIS_OK);
    size_t at = 0, gaps = 0;
    const auto draw = [&](size_t capacity) {
        uint64_t lost = 0;
        const std::vector<stasis_trace_event> events = take(other, capacity, &lost);
        REQUIRE(at + events.size() + lost <= heard.events.size());
        const auto from = heard.events.begin() + static_cast<ptrdiff_t>(at);
        CHECK(same(events, {from, from + static_cast<ptrdiff_t>(events.size())}));
        at += events.size() + lost;
        return events.size();
    };
    for (uint32_t turn = 0; turn < 12; ++turn) {
        for (stasis_session *session : {one.get(), other.get()}) {
            append(session, some_tokens(turn % 4 == 3 ? 400 : 30, turn));
        }
        if (turn % 2 == 0) {
            continue; // so that some wait longer
        }
        const size_t before = at;
        draw(4);
        for (stasis_session *session : {one.get(), other.get()}) {
            append(session, some_tokens(1)); // the queue has free places, but a gap comes first
        }
        while (draw(kRoom) != 0) {
        }
        CHECK(at == heard.events.size());
        gaps += at - before > kRoom + 1 ? 1 : 0;
    }
    CHECK(gaps >= 2);
}

TEST_CASE("stasis_session_take_trace: waiting events in the struct of an older or a newer caller") {
    const Session session = create(gemma());
    const stasis_trace_options options = waiting(100);
    for (const size_t stride : {size_t{8}, size_t{24}, kEvent, kEvent + 16}) {
        CAPTURE(stride);
        REQUIRE(stasis_session_rewind(session.get(), 0, 0, nullptr, nullptr) == STASIS_OK);
        REQUIRE(stasis_session_set_trace(session.get(), &options, nullptr) == STASIS_OK);
        append(session.get(), some_tokens(10));
        std::vector<unsigned char> bytes(4 * stride + 8, 0xAB);
        size_t count = 0;
        REQUIRE(stasis_session_take_trace(session.get(),
                                          reinterpret_cast<stasis_trace_event *>(bytes.data()),
                                          stride, 4, &count, nullptr, nullptr) == STASIS_OK);
        REQUIRE(count == 3); // two groups' pages, and the append
        for (size_t i = 0; i < count; ++i) {
            stasis_trace_event event{};
            std::memcpy(&event, bytes.data() + i * stride, std::min(stride, kEvent));
            CHECK(event.struct_size == stride);
            CHECK(event.kind == (i < 2 ? STASIS_TRACE_TAKEN : STASIS_TRACE_APPEND));
            CHECK((stride < kEvent || event.end == (i < 2 ? 64 : 10)));
            for (size_t byte = kEvent; byte < stride; ++byte) {
                CHECK(bytes[i * stride + byte] == 0);
            }
        }
        CHECK(std::all_of(bytes.begin() + static_cast<ptrdiff_t>(3 * stride), bytes.end(),
                          [](unsigned char byte) { return byte == 0xAB; }));
    }
}

TEST_CASE("stasis_session_take_trace: what cannot wait, and what is not there, is refused") {
    const Session session = create(llama());
    stasis_error error;
    stasis_trace_event event{};
    size_t count = 7;
    const auto take_one = [&](size_t stride, size_t *counted) {
        return stasis_session_take_trace(session.get(), &event, stride, 1, counted, nullptr,
                                         &error);
    };
    CHECK(take_one(kEvent, &count) == STASIS_NOT_FOUND);
    TraceModel heard;
    stasis_trace_options options = heard.options();
    options.queue_events = 5;
    CHECK(stasis_session_set_trace(session.get(), &options, &error) == STASIS_INVALID_ARGUMENT);
    CHECK(std::string(error.message).find("both") != std::string::npos);
    options.queue_events = 0;
    REQUIRE(stasis_session_set_trace(session.get(), &options, nullptr) == STASIS_OK);
    CHECK(take_one(kEvent, &count) == STASIS_NOT_FOUND);
    options = waiting(STASIS_TRACE_QUEUE_MAX + 1);
    CHECK(stasis_session_set_trace(session.get(), &options, &error) == STASIS_INVALID_ARGUMENT);
    CHECK(std::string(error.message).find("queue_events is 16777217") != std::string::npos);
    CHECK(heard.released == 0);
    options = waiting(3);
    options.user = &heard;
    options.release = heard.options().release; // of what belongs to it, without a callback too
    REQUIRE(stasis_session_set_trace(session.get(), &options, nullptr) == STASIS_OK);
    CHECK(heard.released == 1);
    CHECK(take_one(kEvent - 4, &count) == STASIS_INVALID_ARGUMENT);
    CHECK(take_one(0, &count) == STASIS_INVALID_ARGUMENT);
    CHECK(take_one(kEvent, nullptr) == STASIS_INVALID_ARGUMENT);
    CHECK(stasis_session_take_trace(session.get(), nullptr, kEvent, 1, &count, nullptr, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(count == 7);
    auto run = sized<stasis_run_options>();
    struct Inside {
        const Session &session;
        stasis_status status;
    } inside{session, STASIS_OK};
    run.logits_user = &inside;
    run.logits = [](void *user, uint64_t, const float *, size_t) -> int32_t {
        Inside &self = *static_cast<Inside *>(user);
        stasis_trace_event taken{};
        size_t number = 0;
        self.status = stasis_session_take_trace(self.session.get(), &taken, kEvent, 1, &number,
                                                nullptr, nullptr);
        return 0;
    };
    const Tokens tokens = some_tokens(2);
    REQUIRE(stasis_session_append(session.get(), tokens.data(), tokens.size(), &run, nullptr) ==
            STASIS_OK);
    CHECK(inside.status == STASIS_BUSY);
    CHECK(take(session, 3).size() == 2);
    REQUIRE(stasis_session_set_trace(session.get(), nullptr, nullptr) == STASIS_OK);
    CHECK(heard.released == 2);
}
