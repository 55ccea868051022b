// Files of a checkpoint (safetensors.h): which there are, and their read-only mappings. Knows
// nothing of what is inside a file.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <set>

#include "format/error.h"
#include "runtime/checkpoint/json_file.h"
#include "runtime/checkpoint/safetensors.h"

namespace stasis {

class Mapping {
  public:
    explicit Mapping(const std::string &path);
    ~Mapping();
    Mapping(const Mapping &) = delete;
    Mapping &operator=(const Mapping &) = delete;

    void check_unchanged() const;
    const uint8_t *data() const { return static_cast<const uint8_t *>(memory_); }
    size_t size_bytes() const { return static_cast<size_t>(opened_.st_size); }

  private:
    void map();

    std::string path_;
    int descriptor_; // kept, so that a check asks about this file, whatever now has its name
    struct stat opened_ {};
    void *memory_ = nullptr; // null: an empty file
};

namespace {

constexpr size_t kIndexLimitBytes = 100'000'000;
constexpr char kSingle[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

bool exists(const std::string &path) {
    return access(path.c_str(), F_OK) == 0;
}

void open_file(const std::string &directory, const std::string &name, Checkpoint &checkpoint) {
    auto mapping = std::make_shared<Mapping>(directory + "/" + name);
    parse_safetensors(mapping->data(), mapping->size_bytes(), name, checkpoint);
    checkpoint.files.push_back(std::move(mapping));
}

// A name from the index is used to open a file: it must stay in the directory.
void check_shard_name(const std::string &shard) {
    const bool plain = !shard.empty() && shard.size() <= NAME_MAX && shard != "." &&
                       shard != ".." &&
                       shard.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
    if (!plain) {
        fail(Status::corrupt, "%s names the shard \"%s\", which is not a plain file name", kIndex,
             shard.c_str());
    }
}

Checkpoint open_shards(const std::string &directory) {
    const std::string text = read_text(directory + "/" + kIndex, kIndexLimitBytes);
    const nlohmann::json index = parse_json(text, kIndex);
    const auto map = index.find("weight_map");
    if (map == index.end() || !map->is_object()) {
        fail(Status::corrupt, "%s: expected an object \"weight_map\"", kIndex);
    }
    std::set<std::string> shards;
    for (const auto &[name, shard] : map->items()) {
        if (!shard.is_string()) {
            fail(Status::corrupt, "%s: expected a file name for tensor %s, found %s", kIndex,
                 name.c_str(), shard.type_name());
        }
        check_shard_name(shard.get_ref<const std::string &>());
        shards.insert(shard.get_ref<const std::string &>());
    }
    Checkpoint checkpoint;
    for (const std::string &shard : shards) {
        open_file(directory, shard, checkpoint);
    }
    for (const auto &[name, shard] : map->items()) {
        const auto found = checkpoint.tensors.find(name);
        if (found == checkpoint.tensors.end() ? checkpoint.refused.count(name) == 0
                                              : found->second.file != shard) {
            fail(Status::corrupt, "%s places tensor %s in %s, which does not have it", kIndex,
                 name.c_str(), shard.get_ref<const std::string &>().c_str());
        }
    }
    return checkpoint;
}

} // namespace

Mapping::Mapping(const std::string &path) : path_(path) {
    // Non-blocking, so that a named pipe in the directory cannot make opening a model wait.
    descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor_ < 0) {
        fail(errno == ENOENT || errno == ENOTDIR ? Status::not_found : Status::io,
             "cannot open %s: %s", path.c_str(), std::strerror(errno));
    }
    try {
        map();
    } catch (...) {
        close(descriptor_);
        throw;
    }
}

Mapping::~Mapping() {
    if (memory_ != nullptr) {
        munmap(memory_, size_bytes());
    }
    close(descriptor_);
}

void Mapping::map() {
    if (fstat(descriptor_, &opened_) != 0 || !S_ISREG(opened_.st_mode)) {
        fail(Status::io, "%s is not a regular file", path_.c_str());
    }
    if (opened_.st_size == 0) {
        return;
    }
    void *memory = mmap(nullptr, size_bytes(), PROT_READ, MAP_PRIVATE, descriptor_, 0);
    if (memory == MAP_FAILED) {
        fail(errno == ENOMEM ? Status::no_memory : Status::io, "cannot map %s: %s", path_.c_str(),
             std::strerror(errno));
    }
    memory_ = memory;
    // Read into the page cache on huge pages, where the file is not there yet and the system can:
    // decoding reads all of it for each token, and walks fewer page tables.
    madvise(memory, size_bytes(), MADV_HUGEPAGE);
}

void Mapping::check_unchanged() const {
    struct stat now {};
    if (fstat(descriptor_, &now) != 0) {
        fail(Status::io, "cannot examine %s: %s", path_.c_str(), std::strerror(errno));
    }
    if (now.st_size != opened_.st_size || now.st_mtim.tv_sec != opened_.st_mtim.tv_sec ||
        now.st_mtim.tv_nsec != opened_.st_mtim.tv_nsec) {
        fail(Status::io, "%s was changed while the model that maps it is open", path_.c_str());
    }
}

void Checkpoint::check_unchanged() const {
    for (const std::shared_ptr<Mapping> &file : files) {
        file->check_unchanged();
    }
}

Checkpoint open_checkpoint(const std::string &directory) {
    if (exists(directory + "/" + kSingle)) {
        Checkpoint checkpoint;
        open_file(directory, kSingle, checkpoint);
        return checkpoint;
    }
    if (!exists(directory + "/" + kIndex)) {
        fail(Status::not_found, "expected %s or %s in %s, found neither", kSingle, kIndex,
             directory.c_str());
    }
    return open_shards(directory);
}

} // namespace stasis
