// Any bytes given to the safetensors parser end in tensors within them, which cover the payload, or
// in an Error with a reason. The first byte of the input selects what follows: a whole file, or a
// header, a zero byte and the payload, or the index of a checkpoint whose shards exist.
#include <cstddef>
#include <cstdint>
#include <string>

#include "format/state/error.h"
#include "runtime/model/safetensors.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/watched.h"

using namespace stasis;

namespace {

void check_tensors(const std::string &file, const Checkpoint &checkpoint) {
    for (const auto &[name, tensor] : checkpoint.tensors) {
        uint64_t bytes = tensor.type == DataType::f32 ? 4 : 2;
        for (const uint64_t dimension : tensor.shape) {
            bytes *= dimension;
        }
        fuzz::expect(bytes == tensor.size_bytes, "a tensor of another size than its shape");
        fuzz::expect(bytes <= file.size() && tensor.offset_bytes <= file.size() - bytes,
                     "a tensor outside the file");
    }
}

std::string with_size(const std::string &header, const std::string &payload) {
    std::string file;
    for (size_t i = 0; i < 8; ++i) {
        file += static_cast<char>(uint64_t{header.size()} >> (8 * i));
    }
    return file + header + payload;
}

void parse(const std::string &file) {
    Checkpoint checkpoint;
    const fuzz::Meter meter(fuzz::kJsonTimes * file.size() + (16 << 10));
    parse_safetensors(reinterpret_cast<const uint8_t *>(file.data()), file.size(), "fuzz", nullptr,
                      checkpoint);
    check_tensors(file, checkpoint);
}

void open_index(const std::string &index) {
    static const fuzz::Folder folder;
    static const bool written = [] {
        const char *header = R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
        folder.write("a", with_size(header, "1234"));
        return true;
    }();
    fuzz::expect(written, "no shard");
    folder.write("model.safetensors.index.json", index);
    const fuzz::Meter meter(fuzz::kJsonTimes * index.size() + (64 << 10));
    open_checkpoint(folder.path());
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) {
        return 0;
    }
    const std::string input(reinterpret_cast<const char *>(data) + 1, size - 1);
    const size_t cut = input.find('\0');
    try {
        switch (data[0] % 3) {
        case 0:
            parse(input);
            break;
        case 1:
            parse(with_size(input.substr(0, cut),
                            cut == std::string::npos ? "" : input.substr(cut + 1)));
            break;
        default:
            open_index(input);
        }
    } catch (const Error &error) {
        if (error.status() != Status::not_found) { // a shard that is not there
            fuzz::check_refusal(error);
        }
    }
    return 0;
}
