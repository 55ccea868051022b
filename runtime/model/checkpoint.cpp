// Opens the files of a checkpoint (safetensors.h), single or sharded. Knows nothing of their
// contents.
#include <algorithm>
#include <climits>
#include <set>

#include "format/state/error.h"
#include "runtime/model/json_file.h"
#include "runtime/model/model_folder.h"
#include "runtime/model/safetensors.h"

namespace stasis {

namespace {

constexpr size_t kIndexLimitBytes = 100'000'000;
constexpr char kSingle[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

void open_file(const ModelFolder &folder, const std::string &name, Checkpoint &checkpoint) {
    auto source = folder.open(name);
    std::vector<uint8_t> head(std::min<uint64_t>(source->size_bytes(), sizeof(uint64_t)));
    source->read(head.data(), head.size(), 0);
    head.resize(safetensors_head_bytes(head.data(), source->size_bytes(), name));
    source->read(head.data(), head.size(), 0);
    parse_safetensors(head.data(), source->size_bytes(), name, source.get(), checkpoint);
    checkpoint.files.push_back(std::move(source));
}

// A name from the index is used to open a file, so it must stay in the directory.
void check_shard_name(const std::string &shard) {
    const bool plain = !shard.empty() && shard.size() <= NAME_MAX && shard != "." &&
                       shard != ".." &&
                       shard.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
    if (!plain) {
        fail(Status::corrupt, "%s names the shard \"%s\", which is not a plain file name", kIndex,
             shard.c_str());
    }
}

Checkpoint open_shards(const ModelFolder &folder) {
    const std::string text = folder.text(kIndex, kIndexLimitBytes);
    const Json index = parse_json(text, kIndex);
    const Json *map = index.find("weight_map");
    if (map == nullptr || map->object() == nullptr) {
        fail(Status::corrupt, "%s: expected an object \"weight_map\"", kIndex);
    }

    // Collects the shards that the index names, each once.
    std::set<std::string> shards;
    for (const auto &[name, shard] : *map->object()) {
        if (shard.text() == nullptr) {
            fail(Status::corrupt, "%s: expected a file name for tensor %s, found %s", kIndex,
                 name.c_str(), shard.type_name());
        }
        check_shard_name(*shard.text());
        shards.insert(*shard.text());
    }

    // Opens them, and compares their tensors with the index.
    Checkpoint checkpoint;
    for (const std::string &shard : shards) {
        open_file(folder, shard, checkpoint);
    }
    for (const auto &[name, shard] : *map->object()) {
        const auto found = checkpoint.tensors.find(name);
        if (found == checkpoint.tensors.end() ? checkpoint.refused.count(name) == 0
                                              : found->second.file != *shard.text()) {
            fail(Status::corrupt, "%s places tensor %s in %s, which does not have it", kIndex,
                 name.c_str(), shard.text()->c_str());
        }
    }
    return checkpoint;
}

} // namespace

void Checkpoint::check_unchanged() const {
    stasis::check_unchanged(files);
}

Checkpoint open_checkpoint_file(const ModelFolder &folder, const std::string &name) {
    Checkpoint checkpoint;
    open_file(folder, name, checkpoint);
    return checkpoint;
}

Checkpoint open_checkpoint(const ModelFolder &folder) {
    if (folder.has(kSingle)) {
        return open_checkpoint_file(folder, kSingle);
    }
    if (!folder.has(kIndex)) {
        fail(Status::not_found, "expected %s or %s, found neither", folder.shown(kSingle).c_str(),
             kIndex);
    }
    return open_shards(folder);
}

} // namespace stasis
