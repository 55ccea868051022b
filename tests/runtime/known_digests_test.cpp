// Digests that an earlier opening left in the cache directory: when they are taken, and when not.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/runtime/edited_model.h"

namespace stasis {

namespace fs = std::filesystem;

namespace {

// The user's cache directory for the length of a test.
class CacheHome {
  public:
    explicit CacheHome(const std::string &path) {
        const char *before = getenv("XDG_CACHE_HOME");
        had_ = before != nullptr;
        before_ = had_ ? before : "";
        setenv("XDG_CACHE_HOME", path.c_str(), 1);
    }
    ~CacheHome() {
        had_ ? setenv("XDG_CACHE_HOME", before_.c_str(), 1) : unsetenv("XDG_CACHE_HOME");
    }
    CacheHome(const CacheHome &) = delete;
    CacheHome &operator=(const CacheHome &) = delete;

  private:
    bool had_;
    std::string before_;
};

// Loads with the cache, whatever the size. `read_bytes`: what progress counted.
Loaded load_known(const std::string &directory, bool verify = false, bool map = true,
                  uint64_t *read_bytes = nullptr, const kernels::Table *code = nullptr) {
    Loaded loaded;
    loaded.config = read_config(directory);
    Threads threads(2);
    static const Memory heap;
    uint64_t total = 0;
    Watch watch;
    watch.progress = [](void *user, uint64_t, uint64_t bytes) {
        *static_cast<uint64_t *>(user) = bytes;
        return true;
    };
    watch.user = &total;
    loaded.weights = load_weights(open_checkpoint(directory), loaded.config,
                                  {heap, map, 0, verify, code}, threads, watch, loaded.identity);
    if (read_bytes != nullptr) {
        *read_bytes = total;
    }
    return loaded;
}

std::vector<fs::path> entries_of(const std::string &cache) {
    std::vector<fs::path> entries;
    const fs::path directory = fs::path(cache) / "stasis" / "weights";
    if (fs::exists(directory)) {
        for (const auto &entry : fs::directory_iterator(directory)) {
            entries.push_back(entry.path());
        }
    }
    return entries;
}

// A model whose files are older than any file system's steps of time.
const std::string &old_model() {
    static const std::string model = test_data("zoo/llama-gqa-untied");
    return model;
}

// Replaces the entry's digest of a tensor, and mends the entry's own digest.
void forge(const fs::path &entry, size_t tensor = 0) {
    std::string bytes = read_bytes(entry.string());
    bytes[8 + tensor * sizeof(Digest)] = static_cast<char>(bytes[8 + tensor * sizeof(Digest)] ^ 1);
    const size_t covered = bytes.size() - sizeof(Digest);
    Digest key;
    for (size_t i = 0; i < key.bytes.size(); ++i) {
        key.bytes[i] = static_cast<uint8_t>(
            std::stoul(entry.filename().string().substr(2 * i, 2), nullptr, 16));
    }
    const Digest sum = Sha256().digest(key).bytes(bytes.data(), covered).finish();
    std::memcpy(bytes.data() + covered, sum.bytes.data(), sizeof sum);
    write_bytes(entry.string(), bytes);
}

} // namespace

TEST_CASE("known digests: a second opening takes them and reads nothing that is mapped") {
    const TemporaryDirectory cache;
    const CacheHome home(cache.path());
    const Loaded plain = load(old_model());
    uint64_t first_bytes = 0, second_bytes = 0, copied_bytes = 0;
    const Loaded first = load_known(old_model(), false, true, &first_bytes);
    REQUIRE(entries_of(cache.path()).size() == 1);
    const Loaded second = load_known(old_model(), false, true, &second_bytes);
    const Loaded copied = load_known(old_model(), false, false, &copied_bytes);
    for (const Loaded *loaded : {&first, &second, &copied}) {
        CHECK(loaded->identity.model == plain.identity.model);
        CHECK(differences(plain.identity, loaded->identity).empty());
        const Matrix &down = loaded->weights.layers[2].mlp.down;
        CHECK(std::memcmp(down.data, plain.weights.layers[2].mlp.down.data,
                          down.rows * down.columns * sizeof(uint16_t)) == 0);
        CHECK(std::memcmp(loaded->weights.final_norm, plain.weights.final_norm,
                          plain.config.hidden * sizeof(float)) == 0);
    }
    CHECK(second_bytes < first_bytes / 10); // vectors alone
    CHECK(copied_bytes == first_bytes);
    CHECK(entries_of(cache.path()).size() == 1);

    struct stat status {};
    REQUIRE(stat(entries_of(cache.path())[0].c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
}

TEST_CASE("known digests: what an entry says is taken, unless the weights are to be verified") {
    const TemporaryDirectory cache;
    const CacheHome home(cache.path());
    const Loaded plain = load_known(old_model());
    const fs::path entry = entries_of(cache.path()).at(0);
    const std::string right = read_bytes(entry.string());
    forge(entry);
    CHECK(load_known(old_model()).identity.model != plain.identity.model);
    CHECK(load_known(old_model(), true).identity.model == plain.identity.model);
    CHECK(read_bytes(entry.string()) == right); // written anew
}

TEST_CASE("known digests: an entry that what was read contradicts is not taken") {
    const TemporaryDirectory cache;
    const CacheHome home(cache.path());
    const Loaded plain = load_known(old_model());
    const fs::path entry = entries_of(cache.path()).at(0);
    const std::string right = read_bytes(entry.string());
    const size_t tensors = (right.size() - 8) / sizeof(Digest) - 1;
    size_t noticed = 0; // of what is mapped only norms are read
    for (size_t tensor = 0; tensor < tensors; ++tensor) {
        write_bytes(entry.string(), right);
        forge(entry, tensor);
        const bool mapped_is_true = load_known(old_model()).identity.model == plain.identity.model;
        CHECK((read_bytes(entry.string()) == right) == mapped_is_true);
        noticed += mapped_is_true ? 1 : 0;
        forge(entry, mapped_is_true ? tensor : 0);
        const Loaded copied = load_known(old_model(), false, false);
        CHECK(copied.identity.model == plain.identity.model);
        CHECK(read_bytes(entry.string()) == right);
        if (kernels::best_table().code_strip != nullptr) {
            forge(entry, tensor);
            const Loaded coded =
                load_known(old_model(), false, false, nullptr, &kernels::best_table());
            CHECK(coded.weights.layers[2].mlp.down.coded != nullptr);
            CHECK(coded.identity.model == plain.identity.model);
            CHECK(read_bytes(entry.string()) == right);
        }
        CHECK(std::memcmp(copied.weights.final_norm, plain.weights.final_norm,
                          plain.config.hidden * sizeof(float)) == 0);
    }
    CHECK(noticed == 2 * plain.config.layers + 1);
}

TEST_CASE("known digests: an entry that is damaged, or that others could write, is not taken") {
    const TemporaryDirectory cache;
    const CacheHome home(cache.path());
    const Loaded plain = load_known(old_model());
    const fs::path entry = entries_of(cache.path()).at(0);
    const std::string right = read_bytes(entry.string());
    const std::function<void()> damages[] = {
        [&] { write_bytes(entry.string(), ""); },
        [&] { write_bytes(entry.string(), right.substr(0, right.size() - 1)); },
        [&] { write_bytes(entry.string(), right + "x"); },
        [&] {
            std::string other = right;
            other[20] = static_cast<char>(other[20] ^ 1);
            write_bytes(entry.string(), other);
        },
        [&] {
            std::string other = right;
            other[0] = 'X';
            write_bytes(entry.string(), other);
        },
        [&] { forge(entry), chmod(entry.c_str(), 0620); },
        [&] { forge(entry), chmod(entry.c_str(), 0602); },
        [&] { fs::remove(entry), fs::create_directory(entry); },
    };
    for (const auto &damage : damages) {
        fs::remove_all(entry);
        write_bytes(entry.string(), right);
        damage();
        CHECK(load_known(old_model()).identity.model == plain.identity.model);
    }
}

TEST_CASE("known digests: a file that changed is hashed, whatever its time says") {
    const TemporaryDirectory cache;
    const CacheHome home(cache.path());
    EditedModel model("zoo/llama-gqa-untied");
    const std::string path = model.directory.file("model.safetensors");
    write_bytes(path, safetensors_bytes(model.tensors, 0));

    // Too young: nothing is kept.
    const Loaded young = load_known(model.directory.path());
    CHECK(entries_of(cache.path()).empty());

    sleep(4);
    CHECK(load_known(model.directory.path()).identity.model == young.identity.model);
    REQUIRE(entries_of(cache.path()).size() == 1);

    // One other bit, the same size and time of the last write.
    struct stat status {};
    REQUIRE(stat(path.c_str(), &status) == 0);
    std::string &values = model.tensors.at("model.layers.2.mlp.down_proj.weight").bytes;
    values[0] = static_cast<char>(values[0] ^ 1);
    const std::string bytes = safetensors_bytes(model.tensors, 0);
    const int descriptor = open(path.c_str(), O_WRONLY);
    REQUIRE(pwrite(descriptor, bytes.data(), bytes.size(), 0) ==
            static_cast<ssize_t>(bytes.size()));
    const timespec times[2] = {status.st_atim, status.st_mtim};
    REQUIRE(futimens(descriptor, times) == 0);
    close(descriptor);
    const Loaded changed = load_known(model.directory.path());
    CHECK(changed.identity.model != young.identity.model);
    CHECK(changed.identity.model == load(model.directory.path()).identity.model);

    // The entry of the file as it was, under the name of the file as it is.
    const fs::path before = entries_of(cache.path()).at(0);
    sleep(4);
    CHECK(load_known(model.directory.path()).identity.model == changed.identity.model);
    const std::vector<fs::path> entries = entries_of(cache.path());
    REQUIRE(entries.size() == 2);
    const fs::path now = entries[0] == before ? entries[1] : entries[0];
    const std::string right = read_bytes(now.string());
    write_bytes(now.string(), read_bytes(before.string()));
    CHECK(load_known(model.directory.path()).identity.model == changed.identity.model);
    CHECK(read_bytes(now.string()) == right);
}

TEST_CASE("known digests: a cache that cannot be written to is no error") {
    const Loaded plain = load(old_model());
    for (const char *path : {"/dev/null", "/proc/none", "relative", ""}) {
        const CacheHome home(path);
        const std::string user = getenv("HOME") != nullptr ? getenv("HOME") : "";
        setenv("HOME", "/dev/null", 1); // for those that are no absolute path
        CHECK(load_known(old_model()).identity.model == plain.identity.model);
        setenv("HOME", user.c_str(), 1);
    }
    CHECK_FALSE(fs::exists("relative"));
}

} // namespace stasis
