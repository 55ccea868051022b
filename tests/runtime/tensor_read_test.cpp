// Tensors whose files have the values in another order than row after row.
#include <cstring>

#include "runtime/model/mxfp4.h"
#include "tests/runtime/model_files.h"

namespace stasis {

namespace {

// A file of values 0, 1, 2, ...
template <typename Value> std::string counting_values(size_t count) {
    std::string bytes;
    for (size_t i = 0; i < count; ++i) {
        const auto value = static_cast<Value>(i);
        bytes.append(reinterpret_cast<const char *>(&value), sizeof value);
    }
    return bytes;
}

// Compares every range of the rows of a tensor with the values that its steps say.
template <typename Value> void check_row_ranges(const Tensor &tensor) {
    const size_t columns = tensor.shape.size() == 1 ? 1 : tensor.shape[1];
    const size_t count = tensor.size_bytes / sizeof(Value);
    for (size_t begin = 0; begin < count; ++begin) {
        for (size_t end = begin; end <= count; ++end) {
            std::vector<Value> values(end - begin);
            tensor.read(values.data(), values.size() * sizeof(Value), begin * sizeof(Value));
            for (size_t i = begin; i < end; ++i) {
                const size_t row = i / columns, column = i % columns;
                REQUIRE(values[i - begin] == tensor.offset_bytes / sizeof(Value) +
                                                 row * tensor.row_step +
                                                 column * tensor.column_step);
            }
        }
    }
}

template <typename Value> void check_stepped(DataType type) {
    const TemporaryDirectory folder;
    write_bytes(folder.file("counting"), counting_values<Value>(200));
    ModelFile file(folder.file("counting"));
    const auto tensor = [&](const std::vector<uint64_t> &shape, uint64_t first, uint64_t row_step,
                            uint64_t column_step) {
        uint64_t values = 1;
        for (const uint64_t dimension : shape) {
            values *= dimension;
        }
        return Tensor{
            type,     shape,      first * sizeof(Value), values * sizeof(Value), "counting", &file,
            row_step, column_step};
    };
    check_row_ranges<Value>(tensor({5, 7}, 30, 1, 5));  // by column
    check_row_ranges<Value>(tensor({5, 7}, 31, 2, 10)); // the second of two in turn
    check_row_ranges<Value>(tensor({9}, 3, 2, 0));
    check_row_ranges<Value>(tensor({1, 6}, 0, 1, 1));
    const Tensor past = tensor({5, 7}, 140, 2, 10);
    std::vector<Value> values(35);
    expect_error(Status::io, {"counting"}, [&] { past.read(values.data(), past.size_bytes, 0); });
}

} // namespace

// Three rows of two blocks, every third row from the second on.
TEST_CASE("Tensor::read: any bytes of blocks whose scales are apart") {
    const TemporaryDirectory folder;
    const size_t rows = 9, blocks = 2;
    std::string bits, scales = "#####"; // which begin somewhere
    for (size_t i = 0; i < rows * blocks * 16; ++i) {
        bits += static_cast<char>(i * 37);
    }
    for (size_t i = 0; i < rows * blocks; ++i) {
        scales += static_cast<char>(100 + i);
    }
    write_bytes(folder.file("bits"), bits);
    write_bytes(folder.file("scales"), scales);
    ModelFile bits_file(folder.file("bits")), scales_file(folder.file("scales"));
    std::string expected;
    for (const size_t row : {1, 4, 7}) {
        for (size_t block = row * blocks; block < (row + 1) * blocks; ++block) {
            std::string packed(17, '\0');
            pack_mxfp4(reinterpret_cast<const uint8_t *>(bits.data()) + block * 16,
                       reinterpret_cast<const uint8_t *>(scales.data()) + 5 + block, 1,
                       reinterpret_cast<uint8_t *>(packed.data()));
            expected += packed;
        }
    }
    const Tensor tensor{DataType::mxfp4, {3, 64}, blocks * 16, 3 * blocks * 17, "bits",
                        &bits_file,      3,       0,           &scales_file,    5 + blocks};
    CHECK(tensor.populated(1, 0) == nullptr);
    for (size_t begin = 0; begin < expected.size(); ++begin) {
        for (size_t end = begin; end <= expected.size(); ++end) {
            std::string found(end - begin, '\0');
            tensor.read(found.data(), found.size(), begin);
            REQUIRE(found == expected.substr(begin, end - begin));
        }
    }
}

TEST_CASE("Tensor::read: any range of a matrix by column is what its rows hold") {
    check_stepped<uint16_t>(DataType::bf16);
    check_stepped<uint32_t>(DataType::f32);
}

} // namespace stasis
