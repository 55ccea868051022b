// A load checks its cancel handle and the result of its progress callback in every phase: opening,
// checking, reading or computing again. Wherever it is asked to end, it ends at the next check and
// leaves nothing.
#include <doctest/doctest.h>

#include "tests/abi/changed_files.h"

using namespace abi_test;

namespace {

// Counts calls, and asks for an end at one of them.
struct Told {
    stasis_cancel *cancel = nullptr; // null: the callback asks itself
    uint64_t at = UINT64_MAX;
    uint64_t calls = 0, opening = 0; // opening: 0 of 0

    static int32_t report(void *user, uint64_t done, uint64_t total) {
        auto &told = *static_cast<Told *>(user);
        told.opening += done == 0 && total == 0 ? 1 : 0;
        if (told.calls++ != told.at) {
            return 0;
        }
        stasis_cancel_request(told.cancel);
        return told.cancel == nullptr ? 1 : 0;
    }
};

struct Reading {
    const std::string &bytes;
    size_t at = 0;

    static int64_t read(void *user, void *data, size_t size_bytes) {
        auto &reading = *static_cast<Reading *>(user);
        const size_t count =
            std::min({size_bytes, size_t{4096}, reading.bytes.size() - reading.at});
        std::memcpy(data, reading.bytes.data() + reading.at, count);
        reading.at += count;
        return static_cast<int64_t>(count);
    }
};

// Loads the file, or the stream of its bytes.
stasis_status load_told(const std::string &path, bool stream, Told &told,
                        Session *loaded = nullptr) {
    auto options = sized<stasis_load_options>();
    options.cancel = told.cancel;
    options.progress = Told::report;
    options.progress_user = &told;
    stasis_session *session = nullptr;
    stasis_status status = STASIS_OK;
    if (stream) {
        const std::string bytes = read_file(path);
        Reading reading{bytes};
        auto source = sized<stasis_source>();
        source.read = Reading::read;
        source.user = &reading;
        status = stasis_session_read(gemma(), &source, &options, &session, nullptr);
    } else {
        status = stasis_session_load(gemma(), path.c_str(), &options, &session, nullptr);
    }
    CHECK((session != nullptr) == (status == STASIS_OK));
    const Session owned(session);
    if (loaded != nullptr && session != nullptr) {
        *loaded = fork(session);
    }
    return status;
}

} // namespace

TEST_CASE("stasis_session_load: a load that is told to end in any phase ends at once") {
    const Folder folder;
    const std::string path = folder.file("s");
    const Session session = session_of(gemma(), some_tokens(150));
    for (const bool keep : {true, false}) {
        auto options = sized<stasis_save_options>();
        options.flags = STASIS_SAVE_REPLACE | STASIS_SAVE_FULL_LOGITS;
        options.keep = keep ? STASIS_KEEP_FULL : STASIS_KEEP_NONE;
        REQUIRE(stasis_session_save(session.get(), path.c_str(), &options, nullptr) == STASIS_OK);
        for (const bool stream : {false, true}) {
            CAPTURE(keep);
            CAPTURE(stream);
            Told all;
            Session whole;
            REQUIRE(load_told(path, stream, all, &whole) == STASIS_OK);
            CHECK(digest(whole.get()) == digest(session.get()));
            CHECK(all.opening >= 20);
            CHECK(all.calls > all.opening);
            for (uint64_t at = 0; at < all.calls; ++at) {
                CAPTURE(at);
                Told stopping;
                stopping.at = at;
                CHECK(load_told(path, stream, stopping) == STASIS_STOPPED);
                CHECK(stopping.calls == at + 1);
                const Cancel cancel = make_cancel();
                Told cancelling;
                cancelling.cancel = cancel.get();
                cancelling.at = at;
                CHECK(load_told(path, stream, cancelling) == STASIS_CANCELLED);
                CHECK(cancelling.calls == at + 1);
            }
            const Cancel cancel = make_cancel();
            stasis_cancel_request(cancel.get());
            Told before;
            before.cancel = cancel.get();
            CHECK(load_told(path, stream, before) == STASIS_CANCELLED);
            CHECK(before.calls == 0);
        }
    }
}

TEST_CASE("stasis_session_save: a save that is told to end while it looks at the file that is "
          "there leaves that file") {
    const Folder folder;
    const std::string path = folder.file("s");
    REQUIRE(save(session_of(gemma(), some_tokens(70)).get(), path) == STASIS_OK);
    const std::string before = read_file(path);
    const Session session = session_of(gemma(), some_tokens(150));
    uint64_t at = 0;
    for (stasis_status status = STASIS_STOPPED; status != STASIS_OK; ++at) {
        CHECK(read_file(path) == before);
        Told told;
        told.at = at;
        auto options = sized<stasis_save_options>();
        options.progress = Told::report;
        options.progress_user = &told;
        status = stasis_session_save(session.get(), path.c_str(), &options, nullptr);
        CHECK((status == STASIS_OK || status == STASIS_STOPPED));
    }
    CHECK(at > 20);
}
