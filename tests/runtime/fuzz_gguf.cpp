// Any bytes given to the reader of GGUF files end in values that can be looked up and tensors
// within the file, or in an Error with a reason. The first byte of the input selects what follows:
// a whole file; or a description of one, whose lengths and counts are made to fit, so that changes
// to it reach beyond the first string; or two such descriptions, of the halves of a split model.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "format/state/error.h"
#include "runtime/model/gguf/gguf.h"
#include "tests/fuzz/description.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/watched.h"
#include "tests/runtime/gguf_writer.h"

using namespace stasis;

namespace {

// Values of one type: strings with their lengths, arrays with their counts, others as they come.
std::string values(Description &reader, GgufValueType type, uint64_t count, int depth) {
    std::string out;
    for (uint64_t i = 0; i < std::min<uint64_t>(count, 64) && !reader.input.empty(); ++i) {
        if (type == GgufValueType::string) {
            out += gguf_text(reader.bytes(reader.byte()));
        } else if (type == GgufValueType::array && depth < 6) {
            const GgufValueType element{reader.byte() % 16U};
            const uint64_t elements = reader.number();
            out += gguf_array(element, elements, values(reader, element, elements, depth + 1));
        } else {
            out += reader.bytes(size_t{1} << reader.byte() % 4);
        }
    }
    return out;
}

std::string described(std::string_view input) {
    static constexpr const char *kKeys[] = {"general.alignment", "split.no", "split.count",
                                            "split.tensors.count"};
    Description reader{input};
    GgufWriter writer;
    writer.data.resize(reader.byte() * 8);
    while (!reader.input.empty() && writer.pair_count + writer.tensor_count < 64) {
        const uint8_t what = reader.byte();
        if (what % 4 == 0) {
            const std::string name = reader.bytes(what / 4 % 8);
            std::vector<uint64_t> shape;
            for (uint8_t rank = reader.byte() % 6; rank > 0; --rank) {
                shape.push_back(reader.number());
            }
            const GgufType type{reader.byte() % 44U};
            writer.info(name, type, shape, reader.number() * 8);
        } else if (what % 4 == 1) {
            writer.integer(kKeys[what / 4 % 4], reader.byte());
        } else {
            const std::string key = reader.bytes(what / 4 % 16);
            const GgufValueType type{reader.byte() % 16U};
            const bool fits = type != GgufValueType::array;
            writer.pair(key, type, values(reader, fits ? type : GgufValueType::array, 1, 0));
        }
    }
    return writer.bytes();
}

template <typename Lookup> void attempt(const Lookup &lookup) {
    try {
        lookup();
    } catch (const Error &error) {
        fuzz::check_refusal(error);
    }
}

void check(const GgufFile &gguf, uint64_t file_bytes) {
    for (const auto &[key, value] : gguf.metadata) {
        const std::string &name = key;
        attempt([&] { gguf.integer(name); });
        attempt([&] { gguf.number(name); });
        attempt([&] { gguf.boolean(name); });
        attempt([&] { gguf.text(name); });
        attempt([&] { gguf.integers(name); });
        attempt([&] { gguf.numbers(name); });
        attempt([&] { gguf.texts(name); });
    }
    for (const auto &[key, entry] : gguf.tensors) {
        const std::string &name = key;
        attempt([&] {
            const GgufTensor &tensor = gguf.tensor(name);
            uint64_t elements = 1;
            for (const uint64_t dimension : tensor.shape) {
                elements *= dimension;
            }
            const GgufBlock block = gguf_block(tensor.type);
            fuzz::expect(elements > 0 && elements % block.elements == 0 &&
                             elements / block.elements * block.size_bytes == tensor.size_bytes,
                         "a tensor of another size than its shape");
            fuzz::expect(tensor.size_bytes <= file_bytes &&
                             tensor.offset_bytes <= file_bytes - tensor.size_bytes,
                         "a tensor outside the file");
        });
    }
}

void parse(const std::string &file) {
    const std::vector<uint8_t> exact(file.begin(), file.end());
    const fuzz::Meter meter(16 * file.size() + (16 << 10));
    check(parse_gguf(exact.data(), exact.size(), "fuzz"), exact.size());
}

void open_split(const std::string &first, const std::string &second) {
    static const fuzz::Folder folder;
    folder.write("m-00001-of-00002.gguf", first);
    folder.write("m-00002-of-00002.gguf", second);
    const fuzz::Meter meter(16 * (first.size() + second.size()) + (64 << 10));
    check(open_gguf(folder.path() + "/m-00001-of-00002.gguf"),
          std::max(first.size(), second.size()));
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) {
        return 0;
    }
    const std::string input(reinterpret_cast<const char *>(data) + 1, size - 1);
    const size_t half = input.size() / 2;
    try {
        switch (data[0] % 3) {
        case 0:
            parse(input);
            break;
        case 1:
            parse(described(input));
            break;
        default:
            open_split(described(input.substr(0, half)), described(input.substr(half)));
        }
    } catch (const Error &error) {
        fuzz::check_refusal(error);
    }
    return 0;
}
