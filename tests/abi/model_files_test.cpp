// Changes to a model's files while it is open, and while it is opened: written to, cut short,
// replaced, deleted. Each in a child process, because access to a mapped file that was cut short
// ends the process.
#include <csignal>
#include <functional>

#include <sys/wait.h>

#include "tests/abi/fixture.h"
#include "tests/sanitizers.h"

using namespace abi_test;

namespace {

enum class Change { cut_to_nothing, cut_in_the_middle, overwritten, replaced, deleted };
constexpr Change kChanges[] = {Change::cut_to_nothing, Change::cut_in_the_middle,
                               Change::overwritten, Change::replaced, Change::deleted};

bool in_place(Change change) {
    return change != Change::replaced && change != Change::deleted;
}

// A bundled model, or after a comma the type of GGUF file that is made of it: made once.
std::string source_of(const std::string &name) {
    const size_t comma = name.find(',');
    if (comma == name.npos) {
        return test_data(name);
    }
    static const Folder folder;
    const std::string made = folder.file(name.substr(comma + 1) + ".gguf");
    if (!std::filesystem::exists(made)) {
        auto options = sized<stasis_quantize_options>();
        const std::string type = name.substr(comma + 1);
        options.type = type.c_str();
        REQUIRE(stasis_model_quantize(test_data(name.substr(0, comma)).c_str(), made.c_str(),
                                      &options, nullptr, nullptr) == STASIS_OK);
    }
    return made;
}

// A copy of a model that a test may spoil.
struct Spoiled {
    Folder folder;
    std::string path = folder.file("model.gguf"); // which is a directory's name too

    explicit Spoiled(const std::string &name) { std::filesystem::copy(source_of(name), path); }
    // Every file that the model was opened from.
    void change(Change how) const {
        namespace fs = std::filesystem;
        std::vector<std::string> files = {path};
        if (fs::is_directory(path)) {
            files.clear();
            for (const auto &file : fs::directory_iterator(path)) {
                files.push_back(file.path());
            }
        }
        for (const std::string &file : files) {
            const size_t size = fs::file_size(file);
            if (how == Change::deleted) {
                fs::remove(file);
            } else if (how == Change::replaced) {
                write_file(file + ".new", std::string(size, 'x'));
                fs::rename(file + ".new", file);
            } else if (how == Change::overwritten) {
                std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
                    << std::string(size, '\x11');
            } else {
                fs::resize_file(file, how == Change::cut_to_nothing ? 0 : size / 2);
            }
        }
    }
};

Model open_model(const Spoiled &spoiled, uint32_t copy_weights) {
    auto options = sized<stasis_model_options>();
    options.threads = 2;
    options.copy_weights = copy_weights;
    return open_path(spoiled.path, &options);
}

struct Case {
    const char *model;
    bool mapped; // some weights are, unless they are copied
};
const Case kCases[] = {{"zoo/gemma3-text", true},      {"zoo/llama-mha-bias-f16-sharded", false},
                       {"zoo/gemma3-text,BF16", true}, {"zoo/gemma3-text,F16", false},
                       {"zoo/gemma3-text,Q8_0", true}, {"zoo/gemma3-text,Q4_K_M", true}};

} // namespace

TEST_CASE("stasis_model_open: what changed in place is an error to the next append") {
    for (const Case &c : kCases) {
        for (const Change change : kChanges) {
            CAPTURE(c.model);
            CAPTURE(static_cast<int>(change));
            const Spoiled spoiled(c.model);
            const Model model = open_model(spoiled, 0);
            const Session session = session_of(model.get(), some_tokens(30));
            const Digest before = digest(session.get());
            spoiled.change(change);
            const Tokens more = some_tokens(2);
            stasis_error error;
            const stasis_status status =
                stasis_session_append(session.get(), more.data(), more.size(), nullptr, &error);
            const bool noticed = c.mapped && in_place(change);
            CHECK(status == (noticed ? STASIS_IO : STASIS_OK));
            CHECK((!noticed || contains(error, spoiled.path)));
            CHECK((!noticed || digest(session.get()) == before));
        }
    }
}

TEST_CASE(
    "stasis_model_open: what changes in place while a model is opened is an error, and no signal") {
    struct Moment {
        const Spoiled &spoiled;
        Change change;
        int left; // reports of progress before it
    };
    const auto at_moment = [](void *user, uint64_t, uint64_t) -> int32_t {
        auto &moment = *static_cast<Moment *>(user);
        if (moment.left-- == 0) {
            moment.spoiled.change(moment.change);
        }
        return 0;
    };
    for (const Case &c : kCases) {
        for (const uint32_t copy_weights : {0U, 1U}) {
            for (const Change change : kChanges) {
                bool reached = true;
                for (int report = 0; reached; ++report) {
                    CAPTURE(c.model);
                    CAPTURE(copy_weights);
                    CAPTURE(static_cast<int>(change));
                    CAPTURE(report);
                    const Spoiled spoiled(c.model);
                    Moment moment{spoiled, change, report};
                    auto options = sized<stasis_model_options>();
                    options.copy_weights = copy_weights;
                    options.progress = at_moment;
                    options.progress_user = &moment;
                    stasis_model *opened = nullptr;
                    stasis_error error;
                    const stasis_status status =
                        stasis_model_open(spoiled.path.c_str(), &options, &opened, &error);
                    const Model model(opened);
                    reached = moment.left < 0;
                    CHECK((status == STASIS_OK) == (opened != nullptr));
                    CHECK(status == (reached && in_place(change) ? STASIS_IO : STASIS_OK));
                }
            }
        }
    }
}

TEST_CASE("stasis_model_open: copied weights lie in the host's memory, and no file stays open") {
    for (const Case &c : kCases) {
        CAPTURE(c.model);
        const Spoiled spoiled(c.model);
        struct Way {
            uint32_t copy_weights;
            const char *kernels;
            uint64_t tenths; // that are taken at least: coded ones have 12 of 16 bits
        };
        for (const auto &[copy_weights, kernels, tenths] :
             {Way{0, nullptr, 9}, Way{1, "reference", 9}, Way{1, nullptr, 7}}) {
            uint64_t taken = 0;
            auto allocator = sized<stasis_allocator>();
            allocator.user = &taken;
            allocator.allocate = [](void *user, size_t size, size_t alignment) {
                *static_cast<uint64_t *>(user) += size;
                return std::aligned_alloc(alignment, (size / alignment + 1) * alignment);
            };
            allocator.deallocate = [](void *, void *memory, size_t, size_t) { std::free(memory); };
            auto options = sized<stasis_model_options>();
            options.copy_weights = copy_weights;
            options.kernels = kernels;
            options.allocator = &allocator;
            const Model model = open_path(spoiled.path, &options);
            auto info = sized<stasis_model_info>();
            REQUIRE(stasis_model_get_info(model.get(), &info, nullptr) == STASIS_OK);
            const bool mapped =
                read_file("/proc/self/maps").find(spoiled.path) != std::string::npos;
            size_t open_files = 0;
            for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) {
                std::error_code gone;
                const auto name = std::filesystem::read_symlink(entry.path(), gone).string();
                open_files += name.find(spoiled.path) == 0 ? 1 : 0;
            }
            CHECK(mapped == (c.mapped && copy_weights == 0));
            CHECK((open_files > 0) == mapped);
            // All but norms and biases, some of which are stored as F32.
            CHECK((mapped || taken >= info.weight_bytes * tenths / 10));
        }
    }
}

TEST_CASE("stasis_model_open: copy_weights is 0 or 1") {
    auto options = sized<stasis_model_options>();
    options.copy_weights = 2;
    stasis_model *model = nullptr;
    stasis_error error;
    CHECK(stasis_model_open(test_data("zoo/gemma3-text").c_str(), &options, &model, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "copy_weights"));
}

#ifndef STASIS_THREAD_SANITIZER // which cannot follow a process that forks while it has threads

namespace {

// How a child process ended: by a signal, or with a status of its call and a digest.
struct End {
    int signal = 0;
    stasis_status status = STASIS_INTERNAL;
    Digest digest{};
};

End end_in_child(const std::function<End()> &body) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(60);
        std::signal(SIGBUS, SIG_DFL); // sanitizers have their own
        End end;
        try {
            end = body();
        } catch (...) { // a REQUIRE, which must not continue with the parent's tests
            _exit(1);
        }
        _exit(write(ends[1], &end, sizeof end) == sizeof end ? 0 : 1);
    }
    close(ends[1]);
    End end;
    const bool told = read(ends[0], &end, sizeof end) == sizeof end;
    close(ends[0]);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    REQUIRE((end.signal != 0 || (told && status == 0)));
    return end;
}

// Generates 90 tokens, and does something at the third.
End generate(stasis_session *session, const std::function<void()> &at_third) {
    struct Count {
        int tokens = 0;
        const std::function<void()> &at_third;
    } count{0, at_third};
    auto options = sized<stasis_generate_options>();
    options.tokens_max = 90;
    options.flags = STASIS_GENERATE_IGNORE_END;
    options.callback = [](void *user, const stasis_generated *) -> int32_t {
        auto &own = *static_cast<Count *>(user);
        if (++own.tokens == 3) {
            own.at_third();
        }
        return 0;
    };
    options.callback_user = &count;
    End end;
    end.status = stasis_session_generate(session, &options, nullptr, nullptr);
    end.digest = digest(session);
    return end;
}

} // namespace

TEST_CASE("stasis_model_open: with copy_weights nothing that becomes of them is noticed") {
    for (const Case &c : kCases) {
        const Spoiled whole(c.model);
        const Session plain = session_of(open_model(whole, 0).get(), some_tokens(30));
        const Digest expected = generate(plain.get(), [] {}).digest;
        for (const Change change : kChanges) {
            CAPTURE(c.model);
            CAPTURE(static_cast<int>(change));
            const Spoiled spoiled(c.model);
            const End end = end_in_child([&] {
                const Model model = open_model(spoiled, 1);
                const Session session = session_of(model.get(), some_tokens(30));
                return generate(session.get(), [&] { spoiled.change(change); });
            });
            CHECK(end.signal == 0);
            CHECK(end.status == STASIS_OK);
            CHECK((end.digest == expected));
        }
    }
}

TEST_CASE(
    "stasis_model_open: mapped ones may be replaced or deleted, and cutting them short is SIGBUS") {
    for (const Case &c : kCases) {
        const Spoiled whole(c.model);
        const Session plain = session_of(open_model(whole, 0).get(), some_tokens(30));
        const Digest expected = generate(plain.get(), [] {}).digest;
        for (const Change change : kChanges) {
            CAPTURE(c.model);
            CAPTURE(static_cast<int>(change));
            const Spoiled spoiled(c.model);
            const End end = end_in_child([&] {
                const Model model = open_model(spoiled, 0);
                const Session session = session_of(model.get(), some_tokens(30));
                return generate(session.get(), [&] { spoiled.change(change); });
            });
            if (!c.mapped || !in_place(change)) {
                CHECK(end.signal == 0);
                CHECK(end.status == STASIS_OK);
                CHECK((end.digest == expected));
            } else if (change == Change::cut_to_nothing) {
                CHECK(end.signal == SIGBUS);
            } else { // the read is in the lost part, or the next check of the file fails
                CHECK((end.signal == SIGBUS || (end.signal == 0 && end.status == STASIS_IO)));
            }
        }
    }
}

#endif
