// Tensors by hand: places that overlap, contain each other, are in the header or after the end,
// names that are listed twice, empty tensors. A set is refused unless no byte belongs to two
// tensors, which is checked by counting byte for byte, and no tensor reaches beyond the file.
#include <doctest/doctest.h>

#include <random>
#include <set>

#include "format/state/error.h"
#include "runtime/model/gguf/gguf.h"
#include "runtime/model/safetensors.h"
#include "tests/runtime/gguf_writer.h"

namespace stasis {

namespace {

struct Range {
    std::string name;
    uint64_t begin, size; // in numbers of four bytes
};

// Some tensors one after the other; then, mostly, one forbidden change.
std::vector<Range> random_ranges(std::mt19937 &random, uint64_t step, uint64_t &end) {
    std::vector<Range> ranges;
    end = 0;
    for (size_t count = random() % 5 + 1; ranges.size() < count;) {
        const uint64_t size = random() % 4 == 0 ? step : random() % (3 * step) + 1;
        ranges.push_back({"t" + std::to_string(ranges.size()), end, size});
        end += (size + step - 1) / step * step;
    }
    Range &one = ranges[random() % ranges.size()];
    const Range &other = ranges[random() % ranges.size()];
    switch (random() % 8) {
    case 0:
        one.begin = other.begin;
        break;
    case 1:
        one.begin = random() % (end / step + 2) * step;
        break;
    case 2:
        one.size += random() % (2 * step);
        break;
    case 3:
        one.name = other.name;
        break;
    case 4:
        one.begin = UINT64_MAX / 4 - random() % 64; // wraps around into the header
        break;
    case 5:
        one.size = 0;
        break;
    default:
        break;
    }
    std::shuffle(ranges.begin(), ranges.end(), random);
    return ranges;
}

// Returns whether no byte is claimed twice and none is after the end; `count` is the number of
// claimed bytes.
bool apart(const std::vector<Range> &ranges, uint64_t end, uint64_t &count) {
    std::vector<bool> claimed(end);
    std::set<std::string> names;
    count = 0;
    for (const Range &range : ranges) {
        if (!names.insert(range.name).second || range.begin > end ||
            range.size > end - range.begin) {
            return false;
        }
        for (uint64_t at = range.begin; at < range.begin + range.size; ++at, ++count) {
            if (claimed[at]) {
                return false;
            }
            claimed[at] = true;
        }
    }
    return true;
}

// The reader takes the file exactly if it should, and then has each tensor's own bytes.
template <typename Read>
void check(const std::string &bytes, bool good, const std::vector<Range> &ranges,
           uint64_t data_begin, const Read &read) {
    const std::vector<uint8_t> file(bytes.begin(), bytes.end()); // ends where the sanitizer sees it
    try {
        for (const Range &range : ranges) {
            const auto [begin_bytes, size_bytes] = read(file, range.name);
            CHECK(begin_bytes == data_begin + 4 * range.begin);
            CHECK(size_bytes == 4 * range.size);
        }
        CHECK(good);
    } catch (const Error &error) {
        CAPTURE(error.what());
        CHECK_FALSE(good);
        CHECK(error.status() == Status::corrupt);
    }
}

} // namespace

TEST_CASE("GgufFile: tensors whose bytes are another's, or not the file's, are refused") {
    std::mt19937 random(5);
    int taken = 0;
    for (int round = 0; round < 4000; ++round) {
        uint64_t end = 0, count = 0;
        const std::vector<Range> ranges = random_ranges(random, 8, end); // 32 bytes: the alignment
        GgufWriter writer;
        bool good = apart(ranges, end, count);
        for (const Range &range : ranges) {
            writer.info(range.name, GgufType::f32, {range.size}, 4 * range.begin);
            good = good && range.size > 0 && range.begin % 8 == 0;
        }
        writer.data.assign(4 * end, 'x');
        const std::string bytes = writer.bytes();
        CAPTURE(round);
        taken += good ? 1 : 0;
        check(bytes, good, ranges, bytes.size() - 4 * end,
              [](const std::vector<uint8_t> &file, const std::string &name) {
                  const GgufFile parsed = parse_gguf(file.data(), file.size(), "m.gguf");
                  const GgufTensor &tensor = parsed.tensor(name);
                  return std::pair<uint64_t, uint64_t>(tensor.offset_bytes, tensor.size_bytes);
              });
    }
    CHECK(taken > 500);
    CHECK(taken < 3500);
}

TEST_CASE("open_checkpoint: tensors whose bytes are another's, or nobody's, are refused") {
    std::mt19937 random(6);
    int taken = 0;
    for (int round = 0; round < 4000; ++round) {
        uint64_t end = 0, count = 0;
        const std::vector<Range> ranges = random_ranges(random, 1, end);
        std::string header;
        bool good = apart(ranges, end, count) && count == end;
        for (const Range &range : ranges) {
            // An empty tensor must be between two others, not in one.
            for (const Range &other : ranges) {
                good = good && !(range.size == 0 && range.begin > other.begin &&
                                 range.begin - other.begin < other.size);
            }
            const uint64_t begin = 4 * range.begin, behind = begin + 4 * range.size;
            header += (header.empty() ? "{\"" : ",\"") + range.name +
                      "\":{\"dtype\":\"F32\",\"shape\":[" + std::to_string(range.size) +
                      "],\"data_offsets\":[" + std::to_string(begin) + "," +
                      std::to_string(behind) + "]}";
        }
        header += "}";
        const std::string bytes =
            gguf_number<uint64_t>(header.size()) + header + std::string(4 * end, 'x');
        CAPTURE(header);
        taken += good ? 1 : 0;
        check(bytes, good, ranges, 8 + header.size(),
              [](const std::vector<uint8_t> &file, const std::string &name) {
                  Checkpoint parsed;
                  parse_safetensors(file.data(), file.size(), "m.safetensors", nullptr, parsed);
                  const Tensor &tensor = parsed.tensors.at(name);
                  return std::pair<uint64_t, uint64_t>(tensor.offset_bytes, tensor.size_bytes);
              });
    }
    CHECK(taken > 500);
    CHECK(taken < 3500);
}

} // namespace stasis
