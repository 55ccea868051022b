// Models from a host's functions and from descriptors: the models that the same files make by their
// path, and what happens when the functions fail or lie.
#include <chrono>
#include <functional>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>

#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

// Gives the files of a directory. Each call is counted, and may be made to fail.
struct Source {
    std::filesystem::path directory;
    size_t most = SIZE_MAX; // bytes of a read
    int64_t calls = 0;
    int64_t fails_at = -1, with = 0; // the call that returns `with`
    std::function<void()> at_read = [] {};
    size_t most_asked = 0, elsewhere = 0; // bytes of a read; calls on another thread
    std::thread::id thread = std::this_thread::get_id();
    std::string last = {}; // the name of the last file

    bool fails(const char *name) {
        last = name;
        elsewhere += std::this_thread::get_id() == thread ? 0 : 1;
        return calls++ == fails_at;
    }
    static int64_t size(void *user, const char *name) {
        auto &self = *static_cast<Source *>(user);
        if (self.fails(name)) {
            return self.with;
        }
        std::error_code error;
        const auto bytes = std::filesystem::file_size(self.directory / name, error);
        return error ? -1 : static_cast<int64_t>(bytes);
    }
    static int64_t read(void *user, const char *name, uint64_t offset, void *data,
                        size_t size_bytes) {
        auto &self = *static_cast<Source *>(user);
        self.at_read();
        if (self.fails(name)) {
            return self.with;
        }
        self.most_asked = std::max(self.most_asked, size_bytes);
        std::ifstream file(self.directory / name, std::ios::binary);
        file.seekg(static_cast<std::streamoff>(offset));
        file.read(static_cast<char *>(data),
                  static_cast<std::streamsize>(std::min(size_bytes, self.most)));
        return file.gcount();
    }
    stasis_status open(const char *name, stasis_model **model, stasis_error *error,
                       const stasis_model_options *options = nullptr) {
        auto source = sized<stasis_model_source>();
        source.size = size;
        source.read = read;
        source.user = this;
        return stasis_model_open_source(&source, name, options, model, error);
    }
};

Model open_from(Source &source, const char *name = nullptr) {
    stasis_model *model = nullptr;
    stasis_error error;
    const stasis_status status = source.open(name, &model, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    CHECK(source.elsewhere == 0);
    return Model(model);
}

// Fails, and makes no model.
stasis_error source_refusal(Source &source, const char *name = nullptr,
                            const stasis_model_options *options = nullptr) {
    stasis_model *model = nullptr;
    stasis_error error{};
    CHECK(source.open(name, &model, &error, options) == error.status);
    CHECK(error.status != STASIS_OK);
    CHECK(model == nullptr);
    return error;
}

// All that a model says of itself, and what it computes.
std::string model_answers(stasis_model *model) {
    auto info = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(model, &info, nullptr) == STASIS_OK);
    std::string all(reinterpret_cast<const char *>(info.model.bytes), 32);
    all.append(reinterpret_cast<const char *>(info.tokenizer.bytes), 32);
    all += info.chat_template;
    all += info.weight_types;
    auto embedding = sized<stasis_embed_info>();
    if (stasis_model_get_embed_info(model, &embedding, nullptr) == STASIS_OK) {
        all += std::to_string(embedding.pooling) + std::to_string(embedding.prompt_count);
    }
    auto sampling = sized<stasis_sampling>();
    REQUIRE(stasis_model_recommended_sampling(model, &sampling, nullptr) == STASIS_OK);
    all += std::to_string(sampling.temperature) + std::to_string(sampling.top_k);
    const Session session = session_of(model, some_tokens(90));
    draw(session.get(), 4);
    const Digest state = digest(session.get());
    return all.append(reinterpret_cast<const char *>(state.data()), state.size());
}

// A GGUF file of integer weights.
std::string make_gguf(const Folder &folder) {
    const std::string path = folder.file("model.gguf");
    auto options = sized<stasis_quantize_options>();
    options.type = "Q4_0";
    REQUIRE(stasis_model_quantize(test_data("recall-gemma3").c_str(), path.c_str(), &options,
                                  nullptr, nullptr) == STASIS_OK);
    return path;
}

} // namespace

TEST_CASE("stasis_model_open_source: the models that the same files make by their path") {
    for (const char *name : {"recall-gemma3", "recall-llama", "zoo/llama-mha-bias-f16-sharded",
                             "zoo/qwen3-embedding", "zoo/gpt-oss-mxfp4", "zoo/qwen3_5-moe"}) {
        CAPTURE(name);
        Source source{test_data(name)};
        const Model model = open_from(source);
        CHECK(model_answers(model.get()) == model_answers(shared_model(name)));
        CHECK(source.most_asked < (2U << 20)); // whatever the model's size
    }
    const Folder folder;
    const Model by_path = open_path(make_gguf(folder));
    Source source{folder.file("")};
    CHECK(model_answers(open_from(source, "model.gguf").get()) == model_answers(by_path.get()));
}

TEST_CASE("stasis_model_open_source: a source may give fewer bytes than it is asked for") {
    Source source{test_data("zoo/gemma3-text"), 1000};
    CHECK(model_answers(open_from(source).get()) == model_answers(gemma()));
}

TEST_CASE("stasis_model_open_source: nothing is read once the model is open") {
    Source source{test_data("recall-gemma3")};
    Model model = open_from(source);
    const int64_t calls = source.calls;
    model_answers(model.get());
    model.reset();
    CHECK(source.calls == calls);
}

TEST_CASE("stasis_model_open_source: each call that fails ends it with a message that names the "
          "file") {
    Source whole{test_data("recall-gemma3")};
    open_from(whole);
    REQUIRE(whole.calls > 20);
    for (int64_t call = 0; call < whole.calls; ++call) {
        CAPTURE(call);
        Source source{test_data("recall-gemma3")};
        source.fails_at = call;
        source.with = -5;
        const stasis_error error = source_refusal(source);
        CHECK(error.status == STASIS_IO);
        CHECK_MESSAGE(contains(error, "returned -5"), error.message);
        CHECK_MESSAGE(contains(error, source.last), error.message);
        CHECK(source.calls == call + 1); // and no other is made
    }
}

TEST_CASE("stasis_model_open_source: sizes and counts that are not true") {
    // A file that says it is longer ends early; the weights begin at a byte of their own.
    struct Lie {
        const char *file;
        int64_t more;
    };
    for (const Lie lie : {Lie{"config.json", 10}, Lie{"model.safetensors", 10},
                          Lie{"model.safetensors", -10}, Lie{"model.safetensors", INT64_MAX / 2}}) {
        CAPTURE(lie.file);
        CAPTURE(lie.more);
        static Lie told;
        told = lie;
        Source source{test_data("zoo/gemma3-text")};
        auto raw = sized<stasis_model_source>();
        raw.size = [](void *user, const char *name) -> int64_t {
            const int64_t bytes = Source::size(user, name);
            return bytes >= 0 && std::string(name) == told.file ? bytes + told.more : bytes;
        };
        raw.read = Source::read;
        raw.user = &source;
        stasis_model *model = nullptr;
        stasis_error error;
        const stasis_status status =
            stasis_model_open_source(&raw, nullptr, nullptr, &model, &error);
        CHECK_MESSAGE((status == STASIS_IO || status == STASIS_CORRUPT), error.message);
        CHECK(contains(error, lie.file));
        CHECK(model == nullptr);
    }
    // More bytes than were asked for, or none.
    Source whole{test_data("zoo/gemma3-text")};
    open_from(whole);
    for (const int64_t count : {INT64_MAX, INT64_C(0)}) {
        for (int64_t call = 0; call < whole.calls; ++call) {
            Source source{test_data("zoo/gemma3-text")};
            source.fails_at = call;
            source.with = count;
            bool of_read = false;
            source.at_read = [&] { of_read = source.calls == call || of_read; };
            stasis_model *model = nullptr;
            stasis_error error;
            const stasis_status status = source.open(nullptr, &model, &error);
            const Model made(model);
            if (of_read) { // else it told a size, perhaps that of a file that is not needed
                CHECK(status == (count == 0 ? STASIS_IO : STASIS_INVALID_ARGUMENT));
            }
        }
    }
}

TEST_CASE("stasis_model_open_source: a file of weights whose size changes while it is read") {
    static bool was_read;
    was_read = false;
    Source source{test_data("zoo/gemma3-text")};
    auto raw = sized<stasis_model_source>();
    raw.size = [](void *user, const char *name) -> int64_t {
        return Source::size(user, name) + (was_read ? 1 : 0);
    };
    raw.read = [](void *user, const char *name, uint64_t offset, void *data,
                  size_t size_bytes) -> int64_t {
        was_read = was_read || std::string(name) == "model.safetensors";
        return Source::read(user, name, offset, data, size_bytes);
    };
    raw.user = &source;
    stasis_model *model = nullptr;
    stasis_error error;
    CHECK(stasis_model_open_source(&raw, nullptr, nullptr, &model, &error) == STASIS_IO);
    CHECK(contains(error, "model.safetensors has another size than before"));
    CHECK(model == nullptr);
}

TEST_CASE("stasis_model_open_source: cancelled, and out of time, within a read") {
    const Cancel cancel = make_cancel();
    auto options = sized<stasis_model_options>();
    options.cancel = cancel.get();
    Source source{test_data("recall-gemma3")};
    source.at_read = [&] { stasis_cancel_request(cancel.get()); };
    CHECK(source_refusal(source, nullptr, &options).status == STASIS_CANCELLED);
    CHECK(source.calls <= 3); // not all of the files
    options = sized<stasis_model_options>();
    options.timeout_ms = 2;
    Source slow{test_data("recall-gemma3")};
    slow.at_read = [] { std::this_thread::sleep_for(std::chrono::milliseconds(3)); };
    CHECK(source_refusal(slow, nullptr, &options).status == STASIS_TIMEOUT);
    CHECK(slow.calls <= 3);
}

TEST_CASE("stasis_model_open_source: what is refused") {
    Source source{test_data("recall-gemma3")};
    CHECK(source_refusal(source, "none.gguf").status == STASIS_NOT_FOUND);
    CHECK(source_refusal(source, "").status == STASIS_INVALID_ARGUMENT);
    CHECK(source_refusal(source, "config.json").status == STASIS_CORRUPT);
    Source nowhere{"/no/such/folder"};
    const stasis_error error = source_refusal(nowhere);
    CHECK(error.status == STASIS_NOT_FOUND);
    CHECK_MESSAGE(contains(error, "config.json"), error.message);
    stasis_model *model = nullptr;
    auto raw = sized<stasis_model_source>();
    CHECK(stasis_model_open_source(nullptr, nullptr, nullptr, &model, nullptr) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(stasis_model_open_source(&raw, nullptr, nullptr, &model, nullptr) ==
          STASIS_INVALID_ARGUMENT);
    raw.size = Source::size;
    CHECK(stasis_model_open_source(&raw, nullptr, nullptr, &model, nullptr) ==
          STASIS_INVALID_ARGUMENT);
    raw.read = Source::read;
    raw.user = &source;
    CHECK(stasis_model_open_source(&raw, nullptr, nullptr, nullptr, nullptr) ==
          STASIS_INVALID_ARGUMENT);
    raw.reserved = 1;
    CHECK(stasis_model_open_source(&raw, nullptr, nullptr, &model, nullptr) == STASIS_UNSUPPORTED);
    CHECK(model == nullptr);
}

TEST_CASE("stasis_model_open_descriptor: the model of the file, whatever its name and the "
          "descriptor's offset") {
    const Folder folder;
    const std::string path = make_gguf(folder);
    const Model by_path = open_path(path);
    const int descriptor = ::open(path.c_str(), O_RDONLY);
    REQUIRE(descriptor >= 0);
    REQUIRE(lseek(descriptor, 1000, SEEK_SET) == 1000);
    stasis_model *raw = nullptr;
    stasis_error error;
    REQUIRE_MESSAGE(stasis_model_open_descriptor(descriptor, nullptr, &raw, &error) == STASIS_OK,
                    error.message);
    const Model model(raw);
    CHECK(lseek(descriptor, 0, SEEK_CUR) == 1000);
    CHECK(close(descriptor) == 0);
    CHECK(model_answers(model.get()) == model_answers(by_path.get()));
    REQUIRE(std::filesystem::remove(path));
    CHECK(model_answers(model.get()) == model_answers(by_path.get()));
}

TEST_CASE("stasis_model_open_descriptor: what is refused, and a file that changes") {
    const Folder folder;
    const std::string path = make_gguf(folder);
    stasis_error error;
    const auto open_as = [&](int descriptor) {
        stasis_model *model = nullptr;
        const stasis_status status =
            stasis_model_open_descriptor(descriptor, nullptr, &model, &error);
        CHECK((model != nullptr) == (status == STASIS_OK));
        stasis_model_close(model);
        close(descriptor);
        return status;
    };
    CHECK(open_as(-1) == STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "descriptor -1"));
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    CHECK(open_as(ends[0]) == STASIS_IO);
    close(ends[1]);
    CHECK(open_as(::open(folder.file("").c_str(), O_RDONLY)) == STASIS_IO);
    CHECK(open_as(::open(path.c_str(), O_WRONLY)) == STASIS_IO);
    CHECK(open_as(::open((test_data("recall-gemma3") + "/config.json").c_str(), O_RDONLY)) ==
          STASIS_CORRUPT);
    const int descriptor = ::open(path.c_str(), O_RDONLY);
    CHECK(stasis_model_open_descriptor(descriptor, nullptr, nullptr, nullptr) ==
          STASIS_INVALID_ARGUMENT);
    stasis_model *raw = nullptr;
    REQUIRE(stasis_model_open_descriptor(descriptor, nullptr, &raw, nullptr) == STASIS_OK);
    const Model model(raw);
    close(descriptor);
    const Session session = create(model.get());
    std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() +
                                               std::chrono::seconds(5));
    const Tokens tokens = some_tokens(10);
    CHECK(stasis_session_append(session.get(), tokens.data(), tokens.size(), nullptr, &error) ==
          STASIS_IO);
    CHECK(contains(error, "changed"));
}
