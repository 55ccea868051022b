// Thousands of tokens, each drawn under a set of its own: what becomes of the sets in files, forks,
// rewinds and verification, and what they take.
#include "tests/abi/constrained.h"

using namespace abi_test;

namespace {

constexpr uint32_t kDraws = 2000;

// The set for the draw at a position: most change a little, some are the first one again, and some
// draws have none.
std::vector<uint32_t> set_at(uint64_t position) {
    std::vector<uint32_t> bits(32, 0x55AA33CC);
    for (uint64_t i = 0; i < position % 300; ++i) {
        bits[i * 7 % 32] ^= 1U << (i * 5 + i / 32) % 32;
    }
    if (position % 40 == 39) {
        bits.assign(32, 0);
        bits[position % 32] = 0xFFFF;
    }
    return bits;
}

void draw_under(stasis_session *session, uint64_t end) {
    while (position(session) < end) {
        const std::vector<uint32_t> bits = set_at(position(session));
        const bool any = position(session) % 50 != 7;
        REQUIRE(stasis_session_set_allowed(session, any ? bits.data() : nullptr,
                                           any ? bits.size() : 0, nullptr) == STASIS_OK);
        draw(session);
    }
}

stasis_verify_report verified(const std::string &path) {
    auto report = sized<stasis_verify_report>();
    stasis_error error;
    const stasis_status status =
        stasis_snapshot_verify(open_snapshot(path).get(), recall(), nullptr, &report, &error);
    CHECK_MESSAGE(status == STASIS_OK, error.message);
    return report;
}

} // namespace

TEST_CASE("stasis_session_set_allowed: thousands of sets come through files, forks, rewinds and "
          "verification") {
    const Folder folder;
    const std::string path = folder.file("s");
    const Session session = session_of(recall(), some_tokens(20));
    set_warm(session.get(), 4);
    for (uint64_t end = 20 + kDraws / 4; end <= 20 + kDraws; end += kDraws / 4) {
        draw_under(session.get(), end);
        REQUIRE(save_as(session.get(), path, STASIS_CODEC_ZSTD) == STASIS_OK);
    }
    const stasis_verify_report whole = verified(path);
    CHECK(whole.verified == 1);
    CHECK(whole.drawn == kDraws);
    CHECK(whole.drawn_otherwise == 0);

    // Loaded, forked and in the session itself the same tokens follow under the same sets.
    const Session again = load(recall(), path), child = fork(session.get());
    for (const Session *each : {&session, &again, &child}) {
        draw_under(each->get(), 20 + kDraws + 100);
        CHECK(digest(each->get()) == digest(session.get()));
    }
    // Rewound into the middle, by memory and by file, and drawn on; the file shrinks as well.
    REQUIRE(save_as(again.get(), path, STASIS_CODEC_ZSTD) == STASIS_OK);
    rewind(again.get(), 20 + kDraws / 2);
    draw_under(again.get(), 20 + kDraws / 2 + 60);
    REQUIRE(save_as(again.get(), path, STASIS_CODEC_ZSTD) == STASIS_OK);
    const Session rewound = load(recall(), path);
    CHECK(digest(rewound.get()) == digest(again.get()));
    CHECK(verified(path).drawn == kDraws / 2 + 60);
    REQUIRE(stasis_snapshot_compact(path.c_str(), nullptr, nullptr) == STASIS_OK);
    CHECK(verified(path).drawn_otherwise == 0);
    draw_under(rewound.get(), 20 + kDraws);
    rewind(session.get(), 20 + kDraws);
    CHECK(digest(rewound.get()) == digest(session.get()));
}

TEST_CASE("stasis_session_save: a turn writes its own sets, whatever sets there were before") {
    const Folder folder;
    const auto written = [&](bool sets, uint64_t before) {
        const std::string path = folder.file(std::to_string(before) + (sets ? "sets" : "none"));
        const Session session = session_of(recall(), some_tokens(20));
        set_warm(session.get(), 4);
        const auto draw_to = [&](uint64_t end) {
            if (sets) {
                draw_under(session.get(), end);
            } else {
                draw(session.get(), static_cast<size_t>(end - position(session.get())));
            }
            REQUIRE(save_as(session.get(), path, STASIS_CODEC_RAW, STASIS_KEEP_NONE) == STASIS_OK);
            return std::filesystem::file_size(path);
        };
        const uint64_t first = draw_to(before);
        return draw_to(before + 100) - first;
    };
    const uint64_t early = written(true, 220), late = written(true, 1620);
    MESSAGE("100 tokens with sets: " << early << " bytes, later " << late << ", without "
                                     << written(false, 220));
    CHECK(late < early + 4096);
    CHECK(late < written(false, 1620) + 100 * 150);
}
