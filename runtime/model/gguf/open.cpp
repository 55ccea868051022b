// Opens files on disk (gguf.h): reads their heads, and joins models split over several files. A
// split file is named NAME-00001-of-0000N.gguf and has its number in split.no (from 0), the count
// in split.count, and split.tensors.count (by the convention of gguf-split of llama.cpp).
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <filesystem>

#include "format/state/error.h"
#include "runtime/model/gguf/gguf.h"

namespace stasis {

namespace {

constexpr uint64_t kHeadFirst = 1U << 20; // bytes of the first read; most files need some more
// This reader's limit; vocabularies take up to some 30 MB.
constexpr uint64_t kHeadLimit = 256U << 20;

struct Split {
    uint64_t number = 0, count = 1;
};

GgufFile open_one(std::shared_ptr<ModelFile> source, const std::string &name) {
    const uint64_t file_bytes = source->size_bytes();
    std::vector<uint8_t> head;
    uint64_t wanted = kHeadFirst;
    // The head has no length field, so more is read until it parses.
    for (;;) {
        const size_t have = head.size();
        head.resize(std::min(file_bytes, std::max<uint64_t>(wanted, 2 * have)));
        source->read(head.data() + have, head.size() - have, have);
        try {
            GgufFile out = parse_gguf(head.data(), head.size(), name, file_bytes - head.size());
            out.files.push_back(std::move(source));
            out.head = std::move(head); // moves the buffer, so `metadata` stays valid
            return out;
        } catch (const GgufHeadEnds &ends) {
            wanted = ends.wanted_bytes;
        }
        if (wanted > kHeadLimit) {
            fail(Status::corrupt,
                 "%s: metadata and table of tensors take more than %" PRIu64 " bytes", name.c_str(),
                 kHeadLimit);
        }
    }
}

Split split_of(const GgufFile &gguf) {
    const Split split{gguf.integer("split.no").value_or(0),
                      gguf.integer("split.count").value_or(1)};
    if (split.count > 0 && split.number >= split.count) {
        fail(Status::corrupt, "%s: split.no %" PRIu64 " is not below split.count %" PRIu64,
             gguf.names[0].c_str(), split.number, split.count);
    }
    return split;
}

std::string ending(uint64_t number, uint64_t count) {
    char text[64];
    std::snprintf(text, sizeof text, "-%05" PRIu64 "-of-%05" PRIu64 ".gguf", number + 1, count);
    return text;
}

// Adds the tensors of another file of the same model.
void add(GgufFile &out, GgufFile &&part) {
    for (auto &[name, tensor] : part.tensors) {
        tensor.file = out.names.size();
        if (!out.tensors.emplace(name, std::move(tensor)).second) {
            fail(Status::corrupt, "tensor %s in %s: another file of the model has it too",
                 name.c_str(), part.names[0].c_str());
        }
    }
    out.names.push_back(part.names[0]);
    out.files.push_back(std::move(part.files[0]));
}

} // namespace

GgufFile open_gguf(const std::string &path) {
    const std::filesystem::path given(path);
    const std::filesystem::path parent = given.parent_path();
    return open_gguf(ModelFolder(parent.empty() ? "." : parent.string()),
                     given.filename().string());
}

GgufFile open_gguf(std::shared_ptr<ModelFile> file, const std::string &name) {
    GgufFile out = open_one(std::move(file), name);
    const Split split = split_of(out);
    if (split.count > 1) {
        fail(Status::unsupported,
             "%s is file %" PRIu64 " of %" PRIu64 " of a model, whose other files have no names",
             name.c_str(), split.number + 1, split.count);
    }
    return out;
}

GgufFile open_gguf(const ModelFolder &folder, const std::string &first) {
    GgufFile out = open_one(folder.open(first), first);
    const Split split = split_of(out);
    if (split.count <= 1) { // gguf-split writes 0 into a merged file
        return out;
    }

    // The names of the other files follow from the name of the first.
    const std::string end = ending(0, split.count);
    if (split.number != 0 || !first.ends_with(end)) {
        fail(Status::corrupt,
             "%s is file %" PRIu64 " of %" PRIu64
             " of a model; open the first, whose name ends in %s",
             out.names[0].c_str(), split.number + 1, split.count, end.c_str());
    }

    const std::string stem = first.substr(0, first.size() - end.size());
    for (uint64_t i = 1; i < split.count; ++i) {
        const std::string name = stem + ending(i, split.count);
        GgufFile part = open_one(folder.open(name), name);
        const Split found = split_of(part);
        if (found.number != i || found.count != split.count) {
            fail(Status::corrupt,
                 "%s says it is file %" PRIu64 " of %" PRIu64 "; expected %" PRIu64 " of %" PRIu64,
                 part.names[0].c_str(), found.number + 1, found.count, i + 1, split.count);
        }
        add(out, std::move(part));
    }

    const uint64_t total = out.integer("split.tensors.count").value_or(out.tensors.size());
    if (total != out.tensors.size()) {
        fail(Status::corrupt,
             "%s: split.tensors.count is %" PRIu64 ", the %" PRIu64 " files have %zu tensors",
             out.names[0].c_str(), total, split.count, out.tensors.size());
    }
    return out;
}

const GgufTensor &GgufFile::tensor(std::string_view name) const {
    const auto found = tensors.find(name);
    if (found == tensors.end()) {
        fail(Status::corrupt, "%s has no tensor %.*s", names[0].c_str(),
             static_cast<int>(name.size()), name.data());
    }
    const GgufTensor &tensor = found->second;
    if (gguf_block(tensor.type).elements == 0) {
        fail(Status::unsupported,
             "tensor %s in %s is of type %s; supported are F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, "
             "Q5_1, Q4_K, Q5_K and Q6_K",
             tensor.name.c_str(), names[tensor.file].c_str(), gguf_type_name(tensor.type).c_str());
    }
    return tensor;
}

void GgufFile::check_unchanged() const {
    stasis::check_unchanged(files);
}

} // namespace stasis
