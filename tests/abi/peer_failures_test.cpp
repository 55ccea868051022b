// Errors that another project's saved sessions had, each as a test: continuing past a sliding
// window, logits that are missing after a restore, damaged bytes. Refusals of files are in
// peer_refusals_test.cpp.
#include "tests/abi/changed_files.h"
#include "tests/abi/restored.h"

using namespace abi_test;

namespace {

std::vector<float> logits(stasis_model *model, const stasis_session *session) {
    auto info = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(model, &info, nullptr) == STASIS_OK);
    std::vector<float> row(info.vocabulary);
    size_t count = 0;
    stasis_error error;
    const stasis_status status =
        stasis_session_logits(session, row.data(), row.size(), &count, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    REQUIRE(count == row.size());
    return row;
}

void write_byte(const std::string &path, size_t at, char byte) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(at)).put(byte);
    REQUIRE(file.flush().good());
}

} // namespace

TEST_CASE("stasis_session_load: past the sliding window the same tokens and bits follow, saved in "
          "any form") {
    for (const char *name : {"zoo/gemma3-text", "zoo/mistral-window", "recall-gemma3"}) {
        stasis_model *model = shared_model(name);
        auto info = sized<stasis_session_info>();
        REQUIRE(stasis_session_get_info(create(model).get(), &info, nullptr) == STASIS_OK);
        const uint64_t window = info.window;
        REQUIRE(window > 1);
        for (const uint64_t retain : {uint64_t{0}, STASIS_WINDOW_RETAIN_NONE}) {
            for (const uint64_t at : {window - 1, window, window + 1, 3 * window}) {
                const Session session = session_of(model, some_tokens(at, 5), retain);
                const Session going_on = fork(session.get());
                const Tokens expected = draw(going_on.get(), 5);
                append(going_on.get(), some_tokens(window, 6));
                const std::vector<float> row = logits(model, going_on.get());
                for (const Form &form : kForms) {
                    CAPTURE(name);
                    CAPTURE(at);
                    CAPTURE(form.name);
                    const Session again = restored(model, session.get(), form);
                    CHECK(draw(again.get(), 5) == expected);
                    append(again.get(), some_tokens(window, 6));
                    CHECK(same_bits(logits(model, again.get()), row));
                    CHECK(digest(again.get()) == digest(going_on.get()));
                }
            }
        }
    }
}

TEST_CASE("stasis_session_load: logits are there after a restore, without a step") {
    for (const char *name : {"recall-gemma3", "recall-llama"}) {
        stasis_model *model = shared_model(name);
        const Session session = session_of(model, some_tokens(70));
        const std::vector<float> row = logits(model, session.get());
        stasis_token expected = 0;
        REQUIRE(stasis_session_sample(session.get(), &expected, nullptr) == STASIS_OK);
        for (const Form &form : kForms) {
            CAPTURE(form.name);
            const Session again = restored(model, session.get(), form);
            CHECK(same_bits(logits(model, again.get()), row));
            stasis_token token = expected + 1;
            REQUIRE(stasis_session_sample(again.get(), &token, nullptr) == STASIS_OK);
            CHECK(token == expected);
            CHECK(position(again.get()) == 70);
            CHECK(digest(again.get()) == digest(session.get()));
        }
    }
}

TEST_CASE("stasis_session_load: one flipped bit in any byte that the root reaches is refused") {
    const Session session = session_of(llama(), some_tokens(2));
    for (const uint32_t codec : {STASIS_CODEC_RAW, STASIS_CODEC_ZSTD}) {
        const Folder folder;
        const std::string path = folder.file("a");
        REQUIRE(save_as(session.get(), path, codec) == STASIS_OK);
        REQUIRE(snapshot_info(path).codec == codec);
        const std::string whole = read_file(path);
        for (size_t at = 0; at < whole.size(); ++at) {
            if (at >= 8192 && at < 12288) {
                continue; // slot B, which is empty
            }
            write_byte(path, at, static_cast<char>(whole[at] ^ (1 << (at % 8))));
            stasis_error error;
            const stasis_status status = try_load(llama(), path, error);
            CHECK_MESSAGE((status == STASIS_CORRUPT || status == STASIS_VERSION), "byte ", at);
            write_byte(path, at, whole[at]);
        }
        CHECK(digest(load(llama(), path).get()) == digest(session.get()));
    }
}

TEST_CASE("stasis_session_load: one flipped bit in any byte of a root slot: the other commit "
          "opens, and it says so") {
    const Folder folder;
    const std::string path = folder.file("a");
    const Session session = session_of(llama(), some_tokens(2));
    const Digest first = digest(session.get());
    REQUIRE(save(session.get(), path) == STASIS_OK);
    append(session.get(), some_tokens(1, 2));
    const Digest second = digest(session.get());
    REQUIRE(save(session.get(), path) == STASIS_OK);
    const std::string whole = read_file(path);
    for (size_t at = 4096; at < 12288; ++at) {
        write_byte(path, at, static_cast<char>(whole[at] ^ (1 << (at % 8))));
        const stasis_snapshot_info info = snapshot_info(path);
        CHECK_MESSAGE(info.flags == STASIS_SNAPSHOT_DAMAGED_ROOT, "byte ", at);
        const Digest &other = at < 8192 ? second : first; // slot A holds the first commit
        CHECK_MESSAGE(std::memcmp(info.digest.bytes, other.data(), 32) == 0, "byte ", at);
        write_byte(path, at, whole[at]);
    }
}
