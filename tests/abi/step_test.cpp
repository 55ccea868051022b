// Steps of several sessions through the interface: the bits of the same calls made one by one, each
// item's own status, and refusals that touch nothing.
#include "tests/abi/fixture.h"

using namespace abi_test;

TEST_CASE("stasis_sessions_step: a step of sessions equals the same calls made one by one") {
    const Tokens tokens = some_tokens(90);
    const Session parent = session_of(llama(), some_tokens(70));
    std::vector<Session> together, alone;
    for (int i = 0; i < 5; ++i) {
        for (std::vector<Session> *to : {&together, &alone}) {
            stasis_session *child = nullptr;
            REQUIRE(stasis_session_fork(parent.get(), &child, nullptr) == STASIS_OK);
            to->emplace_back(child);
        }
    }
    std::vector<stasis_step_item> items(5, sized<stasis_step_item>());
    const struct {
        size_t begin, count;
        uint32_t flags;
    } plan[] = {{0, 90, 0},
                {0, 0, STASIS_STEP_SAMPLE},
                {20, 3, STASIS_STEP_SAMPLE},
                {0, 0, 0},
                {10, 40, STASIS_STEP_SAMPLE}};
    for (int round = 0; round < 3; ++round) {
        for (size_t i = 0; i < 5; ++i) {
            items[i] = sized<stasis_step_item>();
            items[i].session = together[i].get();
            items[i].begin = plan[i].begin;
            items[i].count = plan[i].count;
            items[i].flags = plan[i].flags;
        }
        stasis_error error;
        REQUIRE_MESSAGE(stasis_sessions_step(items.data(), sizeof items[0], 5, tokens.data(),
                                             tokens.size(), nullptr, &error) == STASIS_OK,
                        error.message);
        for (size_t i = 0; i < 5; ++i) {
            CHECK(items[i].status == STASIS_OK);
            stasis_session *own = alone[i].get();
            REQUIRE(stasis_session_append(own, tokens.data() + plan[i].begin, plan[i].count,
                                          nullptr, nullptr) == STASIS_OK);
            if (plan[i].flags != 0) {
                stasis_token token = 0;
                REQUIRE(stasis_session_decode(own, &token, nullptr) == STASIS_OK);
                CHECK(token == items[i].token);
            }
            CHECK(digest(together[i].get()) == digest(own));
        }
    }
}

TEST_CASE("stasis_sessions_step: each item of a step has its own status and message") {
    const Tokens tokens = some_tokens(8);
    const Session small = create(gemma(), 4), well = create(gemma());
    stasis_error own{};
    std::vector<stasis_step_item> items(2, sized<stasis_step_item>());
    items[0].session = small.get();
    items[1].session = well.get();
    items[0].count = items[1].count = 8;
    items[0].error = &own;
    CHECK(stasis_sessions_step(items.data(), sizeof items[0], 2, tokens.data(), 8, nullptr,
                               nullptr) == STASIS_OK);
    CHECK(items[0].status == STASIS_FULL);
    CHECK(own.status == STASIS_FULL);
    CHECK(contains(own, "capacity of 4"));
    CHECK(items[1].status == STASIS_OK);
    CHECK(position(small.get()) == 0);
    CHECK(position(well.get()) == 8);

    auto options = sized<stasis_run_options>();
    options.progress = [](void *, uint64_t, uint64_t) { return 1; };
    items[0].session = create(gemma()).release();
    const Session fresh(items[0].session);
    CHECK(stasis_sessions_step(items.data(), sizeof items[0], 2, tokens.data(), 8, &options,
                               nullptr) == STASIS_STOPPED);
    CHECK(items[0].status == STASIS_STOPPED);
    CHECK(items[1].status == STASIS_STOPPED);
    CHECK(position(fresh.get()) == 0);
    CHECK(position(well.get()) == 8);
}

TEST_CASE("stasis_sessions_step: a step that makes no sense is refused, and nothing is done") {
    const Tokens tokens = some_tokens(8);
    const Session first = create(gemma()), second = create(gemma()), foreign = create(llama());
    std::vector<stasis_step_item> items(2, sized<stasis_step_item>());
    const auto refused = [&](const char *what, size_t stride, size_t count) {
        CAPTURE(what);
        stasis_error error;
        const stasis_status status =
            stasis_sessions_step(items.data(), stride, count, tokens.data(), 8, nullptr, &error);
        CHECK((status == STASIS_INVALID_ARGUMENT || status == STASIS_UNSUPPORTED));
        CHECK_MESSAGE(contains(error, what), error.message);
        CHECK(position(first.get()) == 0);
        CHECK(position(second.get()) == 0);
    };
    constexpr size_t kStride = sizeof(stasis_step_item);
    items[0].session = first.get();
    items[0].count = items[1].count = 8;
    refused("items[1].session is NULL", kStride, 2);
    items[1].session = first.get();
    refused("twice", kStride, 2);
    items[1].session = foreign.get();
    refused("different models", kStride, 2);
    items[1].session = second.get();
    refused("stride is 8", 8, 2);
    items[1].flags = 6;
    refused("flags", kStride, 2);
    items[1].flags = 0;
    items[1].begin = 1;
    refused("items[1]: tokens from 1 on, 8 of them", kStride, 2);
    items[1].begin = SIZE_MAX;
    refused("items[1]: tokens from", kStride, 2);
    items[1].begin = 0;
    for (const uint32_t size : {0U, 47U, 4097U}) {
        items[1].struct_size = size;
        refused("struct_size", kStride, 2);
    }
    items[1].struct_size = kStride + 8; // a newer caller's, but not the stride of one
    refused("at most the stride of 48", kStride, 1 + 1);
    items[1].struct_size = kStride;
    struct Newer {
        stasis_step_item known;
        uint64_t future;
    };
    std::vector<Newer> newer{{items[0], 0}, {items[1], 1}};
    for (Newer &item : newer) {
        item.known.struct_size = sizeof(Newer);
    }
    CHECK(stasis_sessions_step(&newer[0].known, sizeof(Newer), 2, tokens.data(), 8, nullptr,
                               nullptr) == STASIS_UNSUPPORTED);
    newer[1].future = 0;
    const Session third = create(gemma()), fourth = create(gemma());
    newer[0].known.session = third.get();
    newer[1].known.session = fourth.get();
    CHECK(stasis_sessions_step(&newer[0].known, sizeof(Newer), 2, tokens.data(), 8, nullptr,
                               nullptr) == STASIS_OK);
    CHECK(digest(third.get()) == digest(fourth.get()));
    CHECK(stasis_sessions_step(nullptr, kStride, 0, nullptr, 0, nullptr, nullptr) == STASIS_OK);
    stasis_error error;
    CHECK(stasis_sessions_step(nullptr, kStride, 1, nullptr, 0, nullptr, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "items is NULL"));
    CHECK(stasis_sessions_step(items.data(), kStride, 2, tokens.data(), 8, nullptr, nullptr) ==
          STASIS_OK);
}
