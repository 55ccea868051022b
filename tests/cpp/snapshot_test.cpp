// Saving, loading, inspecting and proving with stasis.hpp.
#include <fstream>
#include <iterator>

#include "tests/cpp/fixture.h"

using namespace cpp_test;

TEST_CASE("Session: saved and loaded, with the same bits and settings") {
    const Folder folder;
    stasis::Session session = talk();
    const auto file = folder.file("s");
    std::uint64_t bytes = 0;
    session.save(
        file, {.codec = stasis::Codec::Zstd, .progress = [&](auto done, auto) { bytes = done; }});
    CHECK(bytes > 0);
    stasis::Session loaded = stasis::Session::load(recall(), file);
    CHECK(loaded.digest() == session.digest());
    CHECK(loaded.say(kSecond).text() == "m is 55.");
    CHECK(session.say(kSecond).text() == "m is 55.");
    CHECK(loaded.digest() == session.digest());
    loaded.save(file, {.if_match = true});
    CHECK(status_of([&] { session.save(file, {.if_match = true}); }) == Status::Conflict);
    CHECK(status_of([&] { session.save(file, {.replace = true, .if_match = true}); }) ==
          Status::InvalidArgument);
    session.save(file, {.replace = true, .full_logits = true, .keep = stasis::Keep::Nothing});
    CHECK(status_of([&] { stasis::Session::load(recall(), file, {.no_recompute = true}); }) ==
          Status::Unsupported);
    CHECK(stasis::Session::load(recall(), file).digest() == session.digest());
    CHECK(status_of([&] { stasis::Session::load(without_tokenizer(), file); }) ==
          Status::ModelMismatch);
    CHECK(status_of([&] { stasis::Session::load(recall(), folder.file("none")); }, "none") ==
          Status::NotFound);
    CHECK(status_of([&] {
              stasis::Session::load(recall(), file,
                                    {.session = stasis::SessionOptions{.capacity = 10}});
          }) == Status::Full);
    const stasis::Session smaller =
        stasis::Session::load(recall(), file,
                              {.trusted = true,
                               .any_profile = true,
                               .accept_older = true,
                               .skip_known = true,
                               .session = stasis::SessionOptions{
                                   .capacity = 100, .track_attention = stasis::Track::Total}});
    CHECK(smaller.info().capacity == 100);
    CHECK(smaller.attention().size() == smaller.position());
}

TEST_CASE("Session: written and read by streams, sinks and sources") {
    const Folder folder;
    stasis::Session session = talk();
    {
        std::ofstream out(folder.file("s"), std::ios::binary);
        session.write(out);
    }
    std::ifstream in(folder.file("s"), std::ios::binary);
    CHECK(stasis::Session::read(recall(), in).digest() == session.digest());
    CHECK(stasis::Session::load(recall(), folder.file("s")).digest() == session.digest());
    std::ifstream again(folder.file("s"), std::ios::binary);
    CHECK(stasis::Snapshot::read(again).digest() == session.digest());
    std::vector<std::byte> bytes;
    session.write(
        [&](std::span<const std::byte> more) {
            bytes.insert(bytes.end(), more.begin(), more.end());
        },
        {.keep = stasis::Keep::Nothing});
    std::size_t at = 0;
    const auto source = [&](std::span<std::byte> space) { // a byte or two at a time
        const std::size_t count = std::min({space.size(), bytes.size() - at, std::size_t(2)});
        std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), count, space.begin());
        at += count;
        return count;
    };
    CHECK(stasis::Session::read(recall(), source).digest() == session.digest());
    CHECK(at == bytes.size());
}

TEST_CASE("Snapshot: what it holds, without the model") {
    const Folder folder;
    stasis::Session session = talk();
    session.save(folder.file("s"));
    const stasis::Snapshot snapshot(folder.file("s"));
    CHECK(snapshot.info().position == 36);
    CHECK(snapshot.info().file_bytes == std::filesystem::file_size(folder.file("s")));
    CHECK(snapshot.digest() == session.digest());
    CHECK(snapshot.tokens() == session.tokens());
    CHECK(snapshot.tokens(30) == session.tokens(30));
    CHECK(snapshot.sources() == session.sources());
    for (std::uint32_t number = 1; number <= 12; ++number) {
        const std::string json = snapshot.element(static_cast<stasis::Element>(number));
        CHECK(json.starts_with("{"));
        CHECK(json.ends_with("}"));
    }
    CHECK(snapshot.element(stasis::Element::TokenizerState).find("chat_template") !=
          std::string::npos);
    CHECK(status_of([&] { snapshot.element(static_cast<stasis::Element>(13)); }) ==
          Status::InvalidArgument);
    CHECK(status_of([&] { stasis::Snapshot other(folder.file("none")); }, "none") ==
          Status::NotFound);
}

TEST_CASE("Snapshot::compare: the first difference of two timelines") {
    stasis::Session session = talk();
    stasis::Session fork = session.fork();
    CHECK(!session.snapshot().compare(fork.snapshot()));
    CHECK(fork.say(kSecond).text() == "m is 55.");
    const std::optional<stasis::Difference> found = session.snapshot().compare(fork.snapshot());
    REQUIRE(found);
    CHECK(found->element == static_cast<std::uint32_t>(stasis::Element::InputTokenBuffer));
    CHECK(std::string(found->message).find("74 and 36") == std::string::npos);
    CHECK(std::string(found->message).find("36 and 74") != std::string::npos);
    fork.rewind(36);
    CHECK(!session.snapshot().compare(fork.snapshot()));
}

TEST_CASE("Snapshot::verify: proves, audits, and throws where a forged file differs") {
    const Folder folder;
    stasis::Session session = talk();
    session.save(folder.file("s"));
    const stasis::Snapshot snapshot(folder.file("s"));
    std::uint64_t computed = 0;
    const stasis::VerifyReport report = snapshot.verify(
        recall(),
        {.chunk = 5, .strict = true, .progress = [&](auto done, auto) { computed = done; }});
    CHECK(report.verified == 1);
    CHECK(report.positions == 36);
    CHECK(report.sections > 0);
    CHECK(computed == 36);
    const stasis::VerifyReport audit =
        snapshot.verify(recall(), {.audit_percent = 100, .audit_seed = 3});
    CHECK(audit.verified == 1);
    CHECK(audit.positions > 0);
    CHECK(status_of([&] { snapshot.verify(without_tokenizer()); }) == Status::ModelMismatch);
    stasis::Cancel cancel;
    cancel.request();
    CHECK(status_of([&] { snapshot.verify(recall(), {.cancel = &cancel}); }) == Status::Cancelled);

    // One whose log is another's, with right checksums.
    const stasis::Snapshot other(source_folder() + "/bindings/go/testdata/diverged.stasis");
    const stasis::Model model(test_data("recall-llama"));
    try {
        other.verify(model);
        FAIL("it was verified");
    } catch (const stasis::Diverged &diverged) {
        CHECK(diverged.status() == Status::Diverged);
        CHECK(diverged.report().verified == 0);
        CHECK(diverged.report().position == 3);
        CHECK(std::string(diverged.what()) != "");
    }
    std::string damaged;
    {
        std::ifstream in(folder.file("s"), std::ios::binary);
        damaged.assign(std::istreambuf_iterator<char>(in), {});
    }
    damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 1);
    std::ofstream(folder.file("d"), std::ios::binary) << damaged;
    CHECK(status_of([&] {
              const stasis::Snapshot flipped(folder.file("d"));
              flipped.verify(recall(), {.strict = true});
          }) == Status::Corrupt);
}

TEST_CASE("compact: what no state refers to is gone") {
    const Folder folder;
    stasis::Session session = talk();
    session.save(folder.file("s"));
    CHECK(session.say(kSecond).text() == "m is 55.");
    session.save(folder.file("s"));
    session.rewind(36);
    session.save(folder.file("s"));
    const stasis::SnapshotInfo before = stasis::Snapshot(folder.file("s")).info();
    CHECK(before.dead_bytes > 0);
    stasis::compact(folder.file("s"), {.codec = stasis::Codec::Zstd});
    const stasis::SnapshotInfo after = stasis::Snapshot(folder.file("s")).info();
    CHECK(after.file_bytes < before.file_bytes);
    CHECK(stasis::Digest(after.digest) == session.digest());
    CHECK(status_of([&] { stasis::compact(folder.file("none")); }) == Status::NotFound);
}
