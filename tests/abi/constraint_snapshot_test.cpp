// Constraints in snapshots: what was drawn under them is drawn again by whoever continues or
// verifies a file; a file that names another constraint is found; what they take in a file.
#include "format/state/token_set.h"
#include "tests/abi/changed_files.h"
#include "tests/abi/constrained.h"

using namespace abi_test;

namespace {

using stasis::Constraint;
using stasis::State;

stasis_verify_report verified(const std::string &path, double percent = 0) {
    auto report = sized<stasis_verify_report>();
    auto options = sized<stasis_verify_options>();
    options.audit_percent = percent;
    options.audit_seed = 9;
    stasis_error error;
    const stasis_status status =
        stasis_snapshot_verify(open_snapshot(path).get(), recall(), &options, &report, &error);
    REQUIRE_MESSAGE(status == (report.verified == 1 ? STASIS_OK : STASIS_DIVERGED), error.message);
    return report;
}

// Draws under each constraint in turn, a reply each, with something that is drawn without one.
Session many_constraints() {
    Session session = create(recall());
    set_warm(session.get(), 4);
    for (int round = 0; round < 2; ++round) {
        for (const ConstraintCase &each : constraint_cases()) {
            say(session.get(), "Tell me more.");
            constrain(session.get(), each.kind, each.text);
            draw(session.get(), 12);
            REQUIRE(stasis_session_set_constraint(session.get(), STASIS_CONSTRAINT_NONE, nullptr, 0,
                                                  nullptr, nullptr) == STASIS_OK);
            draw(session.get(), 2);
        }
    }
    constrain(session.get(), STASIS_CONSTRAINT_JSON, "");
    draw(session.get(), 5);
    return session;
}

Session with_allowed(size_t draws) {
    Session session = create(recall());
    say(session.get(), "hello");
    set_warm(session.get(), 4);
    for (uint32_t i = 0; i < draws; ++i) {
        std::vector<uint32_t> bits(32);
        for (const stasis_token token : some_tokens(i * 7 % 40 + 1, i % 11 + 1)) {
            bits[token / 32] |= 1U << token % 32;
        }
        REQUIRE(stasis_session_set_allowed(session.get(), bits.data(), bits.size(), nullptr) ==
                STASIS_OK);
        draw(session.get());
    }
    return session;
}

} // namespace

TEST_CASE("stasis_snapshot_verify: tokens that were drawn under constraints are drawn again") {
    const Folder folder;
    const std::string path = folder.file("s");
    for (const bool allowed : {false, true}) {
        const Session session = allowed ? with_allowed(60) : many_constraints();
        for (const uint32_t keep : {STASIS_KEEP_FULL, STASIS_KEEP_NONE}) {
            std::filesystem::remove(path);
            REQUIRE(save_as(session.get(), path, STASIS_CODEC_ZSTD, keep) == STASIS_OK);
            CHECK(snapshot_info(path).contract[2] == 3);
            const stasis_verify_report report = verified(path);
            CHECK(report.verified == 1);
            CHECK(report.drawn == (allowed ? 60 : 2 * 4 * 14 + 5));
            CHECK(report.drawn_otherwise == 0);
            CHECK(digest(load(recall(), path).get()) == digest(session.get()));
        }
        std::filesystem::remove(path);
        REQUIRE(save(session.get(), path) == STASIS_OK);
        for (const double percent : {10.0, 50.0, 100.0}) {
            const stasis_verify_report report = verified(path, percent);
            CHECK(report.verified == 1);
            CHECK(report.drawn > 0);
            CHECK(report.drawn_otherwise == 0);
        }
        // What comes after a load, and what a commit adds, is as in the session itself.
        const Session again = load(recall(), path);
        CHECK(draw(again.get(), 10) == draw(session.get(), 10));
        REQUIRE(save(again.get(), path) == STASIS_OK);
        CHECK(verified(path).drawn_otherwise == 0);
    }
}

TEST_CASE("stasis_snapshot_verify: a constraint that was tampered with is found") {
    const Folder folder;
    const std::string path = folder.file("s"), forged = folder.file("forged");
    const Session session = create(recall());
    say(session.get(), "hello");
    set_warm(session.get(), 2);
    constrain(session.get(), STASIS_CONSTRAINT_REGEX, "[a-m]{30}");
    const uint64_t begin = position(session.get());
    draw(session.get(), 8);
    REQUIRE(save(session.get(), path) == STASIS_OK);

    struct Tampering {
        const char *text;
        bool loads; // the reply so far is a beginning of one of its texts
    };
    for (const Tampering &each :
         {Tampering{"[n-z]{30}", false}, Tampering{"[a-z]{30}", true}, Tampering{"a(", false}}) {
        CAPTURE(each.text);
        forge_state(path, forged, [&](State &state) {
            for (stasis::Sampling &sampling : state.samplings) {
                if (sampling.v3.constraint.value != nullptr) {
                    sampling.v3.constraint.value = std::make_shared<const Constraint>(
                        Constraint{STASIS_CONSTRAINT_REGEX, each.text});
                }
            }
        });
        const stasis_verify_report report = verified(forged);
        CHECK(report.verified == 0);
        CHECK(report.drawn_otherwise > 0);
        CHECK(report.position >= begin);
        CHECK(report.position < begin + 8);
        stasis_error error;
        const stasis_status status = try_load(recall(), forged, error);
        CHECK(status == (each.loads ? STASIS_OK : STASIS_CORRUPT));
        MESSAGE(error.message);
    }
    // Taken away, or given to tokens that were drawn without one.
    forge_state(path, forged, [&](State &state) {
        for (stasis::Sampling &sampling : state.samplings) {
            sampling.v3 = {};
        }
        state.contract.sampling = 1;
    });
    CHECK(verified(forged).drawn_otherwise > 0);
    const Session allowed = with_allowed(20);
    std::filesystem::remove(path);
    REQUIRE(save(allowed.get(), path) == STASIS_OK);
    forge_state(path, forged, [&](State &state) {
        const uint32_t token = state.log.back().token;
        const stasis::TokenRuns others = {token + 1, 1024};
        state.samplings[state.log.back().sampling].v3.allowed.value =
            std::make_shared<const std::string>(stasis::encode_tokens(others, 1024));
    });
    CHECK(verified(forged).position == position(allowed.get()) - 1);
}

TEST_CASE("stasis_session_save: a constraint is stored once, and a set of tokens is short") {
    const Folder folder;
    const ConstraintCase &schema = constraint_cases()[2];
    const std::string text = schema.text + std::string(20000, ' ');
    const auto bytes_of = [&](const Session &session, const char *name) {
        REQUIRE(save_as(session.get(), folder.file(name), STASIS_CODEC_ZSTD, STASIS_KEEP_NONE) ==
                STASIS_OK);
        return std::filesystem::file_size(folder.file(name));
    };
    const Session session = create(recall());
    for (uint64_t seed = 0; seed < 6; ++seed) { // of as many settings
        say(session.get(), "hello");
        set_warm(session.get(), seed);
        constrain(session.get(), schema.kind, text);
        draw(session.get(), 5);
    }
    const auto with = bytes_of(session, "with");
    CHECK(with > 20000);
    CHECK(with < 40000);
    const Session plain = create(recall()), sets = with_allowed(60);
    append(plain.get(), tokens_from(sets.get(), 0));
    const auto each = (bytes_of(sets, "sets") - bytes_of(plain, "plain")) / 60;
    MESSAGE("bytes for a token with a set: " << each);
    CHECK(each < 400);
}
