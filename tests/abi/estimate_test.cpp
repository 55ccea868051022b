// Memory of sessions and of models before they are opened, beside what is really taken.
#include <atomic>
#include <cstdlib>

#include "tests/abi/fixture.h"
#include "tests/runtime/quantized_model.h"

using namespace abi_test;

namespace {

// A host whose allocator counts the bytes that are out.
struct CountingHost {
    std::atomic<uint64_t> live{0};

    stasis_allocator allocator() {
        auto result = sized<stasis_allocator>();
        result.user = this;
        result.allocate = [](void *user, size_t size, size_t alignment) -> void * {
            static_cast<CountingHost *>(user)->live += size;
            return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
        };
        result.deallocate = [](void *user, void *memory, size_t size, size_t) {
            static_cast<CountingHost *>(user)->live -= size;
            std::free(memory);
        };
        return result;
    }
};

std::string path_of_model(const std::string &name) {
    return name.starts_with("quantized/") ? stasis::test::quantized_model(name) : test_data(name);
}

stasis_session_options private_options(uint64_t window_retain) {
    auto options = sized<stasis_session_options>();
    options.window_retain = window_retain;
    options.domain = STASIS_DOMAIN_PRIVATE;
    return options;
}

stasis_session_memory memory_of(const stasis_model *model, const stasis_session_options &options,
                                uint64_t positions) {
    auto memory = sized<stasis_session_memory>();
    stasis_error error;
    const stasis_status status =
        stasis_model_session_memory(model, &options, positions, &memory, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return memory;
}

// Grows a session by appends of many lengths, and compares what it takes with what was said.
void check_session(stasis_model *model, CountingHost &host, uint64_t opened,
                   const stasis_session_options &options) {
    stasis_session *created = nullptr;
    REQUIRE(stasis_session_create(model, &options, &created, nullptr) == STASIS_OK);
    const Session session(created);
    for (const uint64_t end : {0, 1, 2, 63, 64, 65, 150, 230, 256, 257, 1000, 1001, 1023}) {
        CAPTURE(end);
        append(session.get(),
               some_tokens(end - position(session.get()), static_cast<uint32_t>(end)));
        const stasis_session_memory memory = memory_of(model, options, end);
        const stasis_model_stats stats = stats_of(model);
        CHECK(memory.kv_bytes == stats.kv_used_bytes);
        CHECK(memory.kv_bytes == info_of(session).kv_bytes);
        // A pool keeps what was ever used at once, also within an append.
        CHECK(stats.kv_used_bytes + stats.kv_cached_bytes <= memory.kv_most_bytes);
        CHECK(memory.kv_bytes <= memory.kv_most_bytes);
        CHECK(memory.states == info_of(session).states);
        CHECK(memory.state_bytes == stats.state_used_bytes);
        // What is left of the allocator's bytes is the log.
        const uint64_t others = opened + stats.kv_used_bytes + stats.kv_cached_bytes +
                                stats.scratch_bytes + stats.state_used_bytes +
                                stats.state_cached_bytes;
        CHECK(memory.log_bytes == host.live - others);
    }
}

// Opens a model twice as its session grows, with windows of different reach.
void check_model(const std::string &name) {
    for (const uint64_t retain : {uint64_t{0}, uint64_t{100}, STASIS_WINDOW_RETAIN_NONE}) {
        CAPTURE(retain);
        CountingHost host;
        const stasis_allocator allocator = host.allocator();
        auto options = sized<stasis_model_options>();
        options.allocator = &allocator;
        options.threads = 2;
        const Model model = open_path(path_of_model(name), &options);
        check_session(model.get(), host, host.live, private_options(retain));
    }
}

stasis_status estimate(const std::string &path, const stasis_model_options *options,
                       stasis_estimate &told, stasis_error &error) {
    told = sized<stasis_estimate>();
    return stasis_model_estimate(path.c_str(), options, nullptr, 0, &told, nullptr, &error);
}

// Estimates a model, and then opens it.
void check_estimate(const std::string &path, bool copy) {
    CountingHost host;
    const stasis_allocator allocator = host.allocator();
    auto options = sized<stasis_model_options>();
    options.allocator = &allocator;
    options.threads = 2;
    options.copy_weights = copy ? 1 : 0;
    auto told = sized<stasis_estimate>();
    auto session = sized<stasis_session_memory>();
    stasis_error error;
    const stasis_status status =
        stasis_model_estimate(path.c_str(), &options, nullptr, 200, &told, &session, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    CHECK(host.live == 0);

    const Model model = open_path(path, &options);
    CHECK(told.allocated_bytes == host.live.load());
    auto info = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(model.get(), &info, nullptr) == STASIS_OK);
    CHECK(told.weight_bytes == info.weight_bytes);
    CHECK(told.mtp_bytes == info.mtp_bytes);
    CHECK(std::string(told.weight_types) == info.weight_types);
    CHECK(std::string(told.architecture) == info.architecture);
    CHECK(told.layers == info.layers);
    CHECK(told.hidden == info.hidden);
    CHECK(told.vocabulary == info.vocabulary);
    CHECK(told.context == info.context);
    CHECK(told.file_bytes >= told.weight_bytes + told.mtp_bytes);
    CHECK((told.mapped_bytes == 0 || !copy));
    // Every weight is in one of the three places, and as wide as bf16 at most but for vectors.
    CHECK(told.mapped_bytes + told.allocated_bytes + told.heap_bytes >= told.weight_bytes / 2);
    CHECK(told.parameters * 4 >= told.weight_bytes);
    const stasis_session_memory said = memory_of(model.get(), sized<stasis_session_options>(), 200);
    CHECK(std::memcmp(&session, &said, sizeof said) == 0);

    // The first long append takes the workspace; attention and experts some more.
    stasis_session *made = nullptr;
    const stasis_status sessions = stasis_session_create(model.get(), nullptr, &made, &error);
    REQUIRE((sessions == STASIS_OK || std::string(info.architecture) == "embedding_gemma"));
    const Session long_one(made);
    if (info.context < 512 || sessions != STASIS_OK) {
        return;
    }
    Tokens tokens = some_tokens(512);
    for (stasis_token &token : tokens) {
        token %= info.vocabulary;
    }
    append(long_one.get(), tokens);
    const uint64_t scratch = stats_of(model).scratch_bytes;
    CHECK(scratch >= told.workspace_bytes);
    CHECK(scratch <= 3 * told.workspace_bytes);
}

} // namespace

TEST_CASE("stasis_model_session_memory: what sessions really take, as they grow") {
    for (const char *name :
         {"zoo/llama-gqa-untied", "zoo/gemma3-text", "zoo/gemma3-softcap-linear-rope",
          "zoo/mistral-window", "zoo/gemma4-e", "zoo/gemma4-moe", "zoo/qwen3_5-dense",
          "zoo/qwen3_5-moe", "zoo/granite4-h", "zoo/lfm2", "zoo/gpt-oss", "zoo/qwen3-moe",
          "quantized/gemma3-tied"}) {
        CAPTURE(name);
        check_model(name);
    }
}

TEST_CASE("stasis_model_session_memory: the most on the way is reached, and not exceeded") {
    CountingHost host;
    const stasis_allocator allocator = host.allocator();
    auto options = sized<stasis_model_options>();
    options.allocator = &allocator;
    // Places within a page; which of them a window of 64 reaches back the most pages from depends
    // on what is retained beyond it.
    const uint64_t kStarts[] = {640, 641, 650, 660, 667, 668, 690, 702, 703};
    for (const uint64_t retain : {uint64_t{0}, uint64_t{100}}) {
        CAPTURE(retain);
        const Model model = open_path(test_data("recall-gemma3"), &options);
        const stasis_session_options own = private_options(retain);
        uint64_t most = 0;
        for (const uint64_t start : kStarts) {
            stasis_session *created = nullptr;
            REQUIRE(stasis_session_create(model.get(), &own, &created, nullptr) == STASIS_OK);
            const Session session(created);
            append(session.get(), some_tokens(start));
            append(session.get(), some_tokens(1728 - start));
            const stasis_model_stats stats = stats_of(model);
            most = std::max(most, stats.kv_used_bytes + stats.kv_cached_bytes);
        }
        CHECK(most == memory_of(model.get(), own, 1728).kv_most_bytes);
    }
}

TEST_CASE("stasis_model_session_memory: bytes of a position, and of sums of attention") {
    auto options = sized<stasis_session_options>();
    auto info = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(llama(), &info, nullptr) == STASIS_OK);
    stasis_session_memory memory = memory_of(llama(), options, 640);
    CHECK(memory.position_bytes == info.layers * 2 * info.kv_heads * info.head_dim * 2);
    CHECK(memory.global_position_bytes == memory.position_bytes);
    CHECK(memory.kv_bytes == 640 * memory.position_bytes);
    CHECK(memory.page_positions == info.page_positions);
    CHECK(memory.fixed_bytes == info.vocabulary * 4 + info.hidden * 2);
    CHECK(memory.tracking_bytes == 0);
    options.track_attention = STASIS_TRACK_BY_HEAD;
    memory = memory_of(llama(), options, 640);
    CHECK(memory.tracking_bytes == 2 * 8 * 640 * info.layers * info.heads);

    // Layers with windows stop growing.
    options = sized<stasis_session_options>();
    const stasis_session_memory early = memory_of(gemma(), options, 1024),
                                late = memory_of(gemma(), options, 2048);
    CHECK(early.global_position_bytes < early.position_bytes);
    CHECK(late.kv_bytes - early.kv_bytes == 1024 * early.global_position_bytes);
}

TEST_CASE("stasis_model_session_memory: states within a budget") {
    auto model_options = sized<stasis_model_options>();
    model_options.state_budget_bytes = 1; // two states each
    const Model model = open_path(test_data("zoo/qwen3_5-dense"), &model_options);
    const stasis_session_options options = private_options(0);
    const stasis_session_memory memory = memory_of(model.get(), options, 1000);
    auto info = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(model.get(), &info, nullptr) == STASIS_OK);
    CHECK(memory.states == 2);
    CHECK(memory.state_bytes == 2 * info.state_bytes);
    const Session session = create(model.get());
    append(session.get(), some_tokens(1000));
    CHECK(stats_of(model).state_used_bytes <= memory.state_bytes);
}

TEST_CASE("stasis_model_session_memory: what is refused") {
    auto memory = sized<stasis_session_memory>();
    auto options = sized<stasis_session_options>();
    stasis_error error;
    options.capacity = 100;
    CHECK(stasis_model_session_memory(llama(), &options, 100, &memory, &error) == STASIS_OK);
    CHECK(stasis_model_session_memory(llama(), &options, 101, &memory, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "101 positions exceed the capacity of 100"));
    options.capacity = 1U << 30;
    CHECK(stasis_model_session_memory(llama(), &options, 1, &memory, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "context"));
    CHECK(stasis_model_session_memory(nullptr, nullptr, 1, &memory, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(stasis_model_session_memory(llama(), nullptr, 1, nullptr, &error) ==
          STASIS_INVALID_ARGUMENT);
    memory.struct_size = 2;
    CHECK(stasis_model_session_memory(llama(), nullptr, 1, &memory, &error) ==
          STASIS_INVALID_ARGUMENT);
}

TEST_CASE("stasis_model_estimate: what opening really takes, directories and GGUF files") {
    std::vector<std::string> names = {"quantized/llama", "quantized/gemma3-tied",
                                      "quantized/cpu-only", "recall-gemma3", "recall-llama"};
    for (const auto &entry : std::filesystem::directory_iterator(test_data("zoo"))) {
        names.push_back("zoo/" + entry.path().filename().string());
    }
    CHECK(names.size() > 25);
    for (const std::string &name : names) {
        for (const bool copy : {false, true}) {
            CAPTURE(name);
            CAPTURE(copy);
            check_estimate(path_of_model(name), copy);
        }
    }
}

TEST_CASE("stasis_model_estimate: weights are not read") {
    const Folder folder;
    const std::string path = folder.file("model");
    std::filesystem::copy(test_data("zoo/llama-gqa-untied"), path);
    std::string bytes = read_file(path + "/model.safetensors");
    std::fill(bytes.end() - 4000, bytes.end(), '\xFF'); // not finite
    write_file(path + "/model.safetensors", bytes);
    stasis_error error;
    stasis_model *model = nullptr;
    CHECK(stasis_model_open(path.c_str(), nullptr, &model, &error) == STASIS_NONFINITE);
    stasis_estimate told;
    CHECK(estimate(path, nullptr, told, error) == STASIS_OK);
}

TEST_CASE("stasis_model_estimate: bad files are refused as they are by open") {
    const Folder folder;
    const std::string from = test_data("zoo/llama-gqa-untied"), path = folder.file("model");
    std::filesystem::copy(from, path);
    const std::string config = read_file(from + "/config.json");
    const std::string weights = read_file(from + "/model.safetensors");
    const std::string gguf = read_file(stasis::test::quantized_model("quantized/llama"));
    const auto both = [](const std::string &at, stasis_status expected) {
        CAPTURE(at);
        stasis_error opened, estimated;
        stasis_model *model = nullptr;
        stasis_estimate told;
        CHECK(stasis_model_open(at.c_str(), nullptr, &model, &opened) == expected);
        CHECK(estimate(at, nullptr, told, estimated) == expected);
        CHECK(std::string(opened.message) == estimated.message);
    };
    both(folder.file("nothing"), STASIS_NOT_FOUND);
    both(folder.file("."), STASIS_NOT_FOUND); // no config.json
    write_file(path + "/model.safetensors", weights.substr(0, weights.size() - 1));
    both(path, STASIS_CORRUPT);
    write_file(path + "/model.safetensors", weights.substr(0, 100));
    both(path, STASIS_CORRUPT);
    write_file(path + "/model.safetensors", weights);
    write_file(path + "/config.json", config.substr(0, config.size() / 2));
    both(path, STASIS_CORRUPT);
    write_file(path + "/config.json", R"({"architectures":["OtherForCausalLM"]})");
    both(path, STASIS_UNSUPPORTED);
    for (const size_t size : {size_t{0}, size_t{3}, size_t{500}, gguf.size() - 1}) {
        write_file(folder.file("cut.gguf"), gguf.substr(0, size));
        both(folder.file("cut.gguf"), STASIS_CORRUPT);
    }
}

TEST_CASE("stasis_model_estimate: options and arguments that are refused") {
    const std::string path = test_data("zoo/llama-gqa-untied");
    stasis_estimate told;
    stasis_error error;
    auto options = sized<stasis_model_options>();
    options.device = "cuda";
    CHECK(estimate(path, &options, told, error) == STASIS_UNSUPPORTED);
    CHECK(contains(error, "cuda"));
    options = sized<stasis_model_options>();
    options.kernels = "none such";
    CHECK(estimate(path, &options, told, error) == STASIS_UNSUPPORTED);
    options = sized<stasis_model_options>();
    options.profile = "device";
    CHECK(estimate(path, &options, told, error) == STASIS_UNSUPPORTED);
    options = sized<stasis_model_options>();
    options.copy_weights = 2;
    CHECK(estimate(path, &options, told, error) == STASIS_INVALID_ARGUMENT);
    CHECK(estimate("", nullptr, told, error) == STASIS_INVALID_ARGUMENT);

    told = sized<stasis_estimate>();
    auto session = sized<stasis_session_memory>();
    const auto call = [&](const char *at, uint64_t positions, stasis_estimate *to) {
        return stasis_model_estimate(at, nullptr, nullptr, positions, to, &session, &error);
    };
    CHECK(call(nullptr, 0, &told) == STASIS_INVALID_ARGUMENT);
    CHECK(call(path.c_str(), 0, nullptr) == STASIS_INVALID_ARGUMENT);
    CHECK(call(path.c_str(), 2049, &told) == STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "2049 positions"));
    CHECK(call(path.c_str(), 2048, &told) == STASIS_OK);
    session.struct_size = 0;
    CHECK(call(path.c_str(), 0, &told) == STASIS_INVALID_ARGUMENT);
    // A caller of a smaller struct gets the fields it knows.
    session = sized<stasis_session_memory>();
    told.struct_size = 48;
    told.context = 7;
    CHECK(call(path.c_str(), 0, &told) == STASIS_OK);
    CHECK(told.layers == 3);
    CHECK(told.context == 7);
}
