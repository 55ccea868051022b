// Callbacks of stasis.hpp that throw: the exception reaches the caller, the library's call has
// ended, and the session is as it was.
#include <memory_resource>

#include "tests/cpp/fixture.h"

using namespace cpp_test;

namespace {

// Counts what it gives, and refuses after so many bytes.
class Counted : public std::pmr::memory_resource {
  public:
    std::size_t held = 0, most = static_cast<std::size_t>(-1);

  private:
    void *do_allocate(std::size_t size, std::size_t alignment) override {
        if (size > most - held) {
            throw std::bad_alloc();
        }
        void *place = std::pmr::new_delete_resource()->allocate(size, alignment);
        held += size;
        return place;
    }
    void do_deallocate(void *place, std::size_t size, std::size_t alignment) override {
        held -= size;
        std::pmr::new_delete_resource()->deallocate(place, size, alignment);
    }
    bool do_is_equal(const memory_resource &other) const noexcept override {
        return this == &other;
    }
};

// A stream buffer that fails after so many bytes.
class Failing : public std::stringbuf {
  public:
    explicit Failing(std::string text = {}) : std::stringbuf(std::move(text)) {}

  protected:
    std::streamsize xsputn(const char *, std::streamsize) override { throw Thrown{7}; }
    std::streamsize xsgetn(char *, std::streamsize) override { throw Thrown{8}; }
};

} // namespace

TEST_CASE("Callbacks: what progress and logits throw reaches the caller, and nothing is changed") {
    stasis::Session session = talk();
    const stasis::Digest before = session.digest();
    const std::vector<stasis::Token> tokens(200, 5);
    const stasis::RunOptions stops{.chunk = 8, .progress = [](auto done, auto) {
                                       if (done > 64) {
                                           throw Thrown{1};
                                       }
                                   }};
    CHECK(thrown_by([&] { session.append(tokens, stops); }) == 1);
    CHECK(session.digest() == before);
    CHECK(thrown_by([&] { session.score(tokens, stops); }) == 1);
    CHECK(session.digest() == before);
    CHECK(thrown_by([&] {
              session.append_message("user", std::string(900, 'k'), stasis::ReplyPrompt::No, stops);
          }) == 1);
    CHECK(session.digest() == before);
    std::size_t heard = 0;
    CHECK(thrown_by([&] {
              session.append(tokens, {.logits = [&](auto position, auto logits) {
                                 CHECK(position == 36 + heard);
                                 CHECK(logits.size() == recall().info().vocabulary);
                                 if (++heard == 3) {
                                     throw Thrown{2};
                                 }
                             }});
          }) == 2);
    CHECK(heard == 3);
    CHECK(session.digest() == before);
    session.append(tokens); // and it goes on
    CHECK(thrown_by([&] {
              session.rewind(20, true,
                             {.chunk = 1, .progress = [](auto, auto) { throw Thrown{3}; }});
          }) == 3);
    CHECK(session.position() == 236);
}

TEST_CASE("Callbacks: progress of opening, saving, loading, verifying, embedding, quantizing") {
    const Folder folder;
    const stasis::Progress stop = [](auto, auto) { throw Thrown{4}; };
    CHECK(thrown_by([&] { stasis::Model(test_data("recall-gemma3"), {.progress = stop}); }) == 4);
    stasis::Session session = talk();
    CHECK(thrown_by([&] { session.save(folder.file("s"), {.progress = stop}); }) == 4);
    CHECK(!std::filesystem::exists(folder.file("s")));
    session.save(folder.file("s"));
    CHECK(thrown_by(
              [&] { stasis::Session::load(recall(), folder.file("s"), {.progress = stop}); }) == 4);
    CHECK(thrown_by([&] { session.snapshot().verify(recall(), {.progress = stop}); }) == 4);
    CHECK(thrown_by([&] { stasis::compact(folder.file("s"), {.progress = stop}); }) == 4);
    const stasis::Model embedding(test_data("zoo/qwen3-embedding"));
    const std::vector<stasis::EmbedInput> inputs{std::vector<stasis::Token>(40, 5)};
    CHECK(thrown_by([&] { embedding.embed(inputs, {.progress = stop}); }) == 4);
    CHECK(thrown_by([&] {
              stasis::quantize(test_data("recall-llama"), folder.file("q"), {.progress = stop});
          }) == 4);
    CHECK(!std::filesystem::exists(folder.file("q")));
    CHECK(stasis::Session::load(recall(), folder.file("s")).digest() == session.digest());
}

TEST_CASE("Callbacks: sinks, sources and streams that throw or fail") {
    stasis::Session session = talk();
    std::ostringstream whole;
    session.write(whole);
    std::size_t taken = 0;
    CHECK(thrown_by([&] {
              session.write([&](std::span<const std::byte> bytes) {
                  taken += bytes.size();
                  if (taken > 1000) {
                      throw Thrown{5};
                  }
              });
          }) == 5);
    const stasis::Source throws = [](std::span<std::byte>) -> std::size_t { throw Thrown{6}; };
    CHECK(thrown_by([&] { stasis::Session::read(recall(), throws); }) == 6);
    CHECK(thrown_by([&] { stasis::Snapshot::read(throws); }) == 6);

    std::ostringstream failed;
    failed.setstate(std::ios::badbit);
    CHECK(status_of([&] { session.write(failed); }, "stream") == Status::Io);
    failed.clear();
    failed.exceptions(std::ios::badbit); // then it throws what it met
    Failing buffer;
    static_cast<std::ostream &>(failed).rdbuf(&buffer);
    CHECK(thrown_by([&] { session.write(failed); }) == 7);

    std::istringstream in(whole.str().substr(0, whole.str().size() / 2));
    CHECK(status_of([&] { stasis::Session::read(recall(), in); }) == Status::Corrupt);
    Failing in_buffer(whole.str());
    std::istream fails(&in_buffer);
    CHECK(status_of([&] { stasis::Session::read(recall(), fails); }, "stream") == Status::Io);
    std::istringstream both(whole.str() + "more");
    CHECK(stasis::Session::read(recall(), both).digest() == session.digest());
    std::string more;
    both >> more;
    CHECK(more == "more"); // no more was read than the snapshot
    const stasis::Source greedy = [](std::span<std::byte> space) { return space.size() + 1; };
    CHECK(status_of([&] { stasis::Snapshot::read(greedy); }) == Status::InvalidArgument);
}

TEST_CASE("Callbacks: what a trace's listener throws is thrown when the call is done") {
    stasis::Session session = talk();
    std::vector<std::uint32_t> kinds;
    bool throws = false;
    session.set_trace(stasis::Trace{.listener = [&](const stasis::TraceEvent &event) {
        kinds.push_back(event.kind);
        if (throws) {
            throw Thrown{9};
        }
    }});
    CHECK(!kinds.empty()); // the pages that it has
    const std::vector<stasis::Token> tokens{5, 6, 7};
    const std::uint64_t before = session.position();
    throws = true;
    CHECK(thrown_by([&] { session.append(tokens); }) == 9);
    CHECK(session.position() == before + 3); // the call had succeeded
    CHECK(kinds.back() == STASIS_TRACE_APPEND);
    CHECK(thrown_by([&] { (void)session.fork(); }) == 9);
    CHECK(thrown_by([&] { (void)session.generate({.tokens_max = 1}).next(); }) == 9);
    CHECK(session.position() == before + 4);
    stasis::Session moved = std::move(session); // the listener comes along
    CHECK(thrown_by([&] { moved.rewind(before); }) == 9);
    CHECK(kinds.back() == STASIS_TRACE_REWIND);
    throws = false;
    std::ostringstream file;
    moved.write(file);
    CHECK(kinds.back() == STASIS_TRACE_SAVE);
    moved.set_trace(std::nullopt);
    const std::size_t heard = kinds.size();
    moved.append(tokens);
    CHECK(kinds.size() == heard);

    std::istringstream from(file.str());
    stasis::Session loaded = stasis::Session::read(
        recall(), from, {.trace = stasis::Trace{.listener = [&](const stasis::TraceEvent &event) {
                             kinds.push_back(event.kind);
                         }}});
    CHECK(kinds.back() == STASIS_TRACE_LOAD);
    loaded.append(tokens);
    CHECK(kinds.back() == STASIS_TRACE_APPEND);
}

TEST_CASE("Trace: a queue that the host empties") {
    stasis::Session session = talk();
    CHECK(status_of([&] { session.take_trace(4); }) == Status::NotFound);
    CHECK(status_of([&] { session.set_trace(stasis::Trace{}); }) == Status::InvalidArgument);
    session.set_trace(stasis::Trace{.queue_events = 2, .reads = true});
    const std::vector<stasis::Token> tokens{5, 6, 7};
    session.append(tokens);
    const stasis::Traced traced = session.take_trace(16);
    CHECK(traced.events.size() == 2);
    CHECK(traced.lost > 0);
    CHECK(traced.events[0].kind == STASIS_TRACE_HELD);
}

TEST_CASE("Model: memory of a std::pmr::memory_resource") {
    Counted memory;
    {
        const stasis::Model model(test_data("zoo/llama-gqa-untied"), {.memory = &memory});
        stasis::Session session(model);
        const std::vector<stasis::Token> tokens(100, 5);
        session.append(tokens);
        CHECK(memory.held > 0);
        memory.most = memory.held;
        const std::vector<stasis::Token> more(3000, 6);
        CHECK(status_of([&] { session.append(std::span(more).first(300)); }) == Status::NoMemory);
        CHECK(session.position() == 100);
    }
    CHECK(memory.held == 0);
}
