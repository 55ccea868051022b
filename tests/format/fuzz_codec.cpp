// libFuzzer target: a coded run edited as the input says, its checksums mended, must decode to
// something or be refused; and numbers made of the input must come back as they were.
#include "codec_runs.h"

#include <cstdlib>

#include "format/state/error.h"

using namespace stasis;
using namespace stasis::format;

namespace {

// With and without centres; three frames, so that the table matters.
const RunShape kShapes[] = {{2, 4, 16}, {2, 16, 16}, {3, 16, 4100}};

void decode_edited(FrameCoder &coder, const RunShape &shape, const uint8_t *data, size_t size) {
    static const Coded bases[] = {encode_run(coder, kShapes[0], like_keys(kShapes[0], 1)),
                                  encode_run(coder, kShapes[1], like_keys(kShapes[1], 1)),
                                  encode_run(coder, kShapes[2], like_keys(kShapes[2], 1))};
    Coded run = bases[&shape - kShapes];
    // Edits of four bytes each: place, what to do, with which byte.
    for (; size >= 4; data += 4, size -= 4) {
        uint8_t &byte = run[(data[0] | data[1] << 8) % run.size()];
        byte = data[2] % 2 == 0 ? data[3] : static_cast<uint8_t>(byte ^ data[3]);
    }
    mend_checksums(shape, run);
    try {
        decode_run(coder, shape, run);
    } catch (const Error &error) {
        if (error.status() != Status::corrupt) {
            std::abort();
        }
    }
}

// The input becomes a coded run as it is, after a table of one frame that divides it as it says.
void decode_given(FrameCoder &coder, const RunShape &shape, const uint8_t *data, size_t size) {
    if (size < 4) {
        return;
    }
    const auto rest = static_cast<uint32_t>(size - 4);
    const uint32_t centres = std::min<uint32_t>(data[0] | data[1] << 8, rest);
    const uint32_t exponents = std::min<uint32_t>(data[2] | data[3] << 8, rest - centres);
    const uint32_t entry[4] = {centres, exponents, rest - centres - exponents, 0};
    Coded run(sizeof entry + rest);
    std::memcpy(run.data(), entry, sizeof entry);
    std::memcpy(run.data() + sizeof entry, data + 4, rest);
    mend_checksums(shape, run);
    try {
        decode_run(coder, shape, run);
    } catch (const Error &error) {
        if (error.status() != Status::corrupt) {
            std::abort();
        }
    }
}

void there_and_back(FrameCoder &coder, const uint8_t *data, size_t size) {
    const RunShape shape{1 + size_t{data[0]} % 4, 1 + size_t{data[1]} % 40,
                         std::max<size_t>(size / 64, 1)};
    Numbers numbers(shape.numbers());
    for (size_t i = 0; i < numbers.size() * sizeof(uint16_t); ++i) {
        reinterpret_cast<uint8_t *>(numbers.data())[i] = data[i % size];
    }
    if (decode_run(coder, shape, encode_run(coder, shape, numbers)) != numbers) {
        std::abort();
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static FrameCoder coder;
    if (size < 3) {
        return 0;
    }
    const uint8_t what = data[0];
    switch (what % 3) {
    case 0:
        decode_edited(coder, kShapes[what / 3 % 3], data + 1, size - 1);
        break;
    case 1:
        decode_given(coder, kShapes[what / 3 % 2], data + 1, size - 1);
        break;
    default:
        there_and_back(coder, data + 1, size - 1);
    }
    return 0;
}
