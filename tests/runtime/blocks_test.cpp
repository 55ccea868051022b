// Floats to blocks: the published quantizer's results bit for bit, and the error that the fits of
// the K types leave beside that of llama.cpp's reference quantizers (tests/data/quant-blocks).
#include "runtime/model/gguf/blocks.h"

#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/kernels/environment.h"
#include "runtime/kernels/quantized.h"
#include "runtime/kernels/table.h"
#include "runtime/model/f16.h"
#include "runtime/model/mxfp4.h"
#include "tests/data_files.h"
#include "tests/runtime/model_files.h"

namespace stasis {

namespace {

std::string from_hex(const std::string &hex) {
    std::string out;
    for (size_t i = 0; i < hex.size(); i += 2) {
        out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    }
    return out;
}

std::vector<float> floats(const nlohmann::json &hex) {
    const std::string bytes = from_hex(hex.get<std::string>());
    std::vector<float> out(bytes.size() / sizeof(float));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
}

std::string encoded(GgufType type, const std::vector<float> &values) {
    const kernels::FloatEnvironment environment;
    const GgufBlock block = gguf_block(type);
    std::string out(values.size() / block.elements * block.size_bytes, '\0');
    encode(type, values.data(), values.size(), reinterpret_cast<uint8_t *>(out.data()));
    return out;
}

GgufType type_of(const std::string &name) {
    for (uint32_t number = 0; number < 64; ++number) {
        if (gguf_type_name(static_cast<GgufType>(number)) == name) {
            return static_cast<GgufType>(number);
        }
    }
    FAIL(name);
    return GgufType::f32;
}

// Root mean square of what the blocks stand for less the values.
double error_of(kernels::Quant quant, GgufType type, const std::vector<float> &values) {
    const kernels::FloatEnvironment environment;
    const std::string blocks = encoded(type, values);
    std::vector<float> found(values.size());
    kernels::find_table("reference")
        ->embed_quantized(quant, reinterpret_cast<const uint8_t *>(blocks.data()), 1.0F,
                          values.size(), found.data());
    double squares = 0;
    for (size_t i = 0; i < values.size(); ++i) {
        const double off = double{found[i]} - double{values[i]};
        squares += off * off;
    }
    return std::sqrt(squares / static_cast<double>(values.size()));
}

const nlohmann::json &published() {
    static const auto json =
        nlohmann::json::parse(read_bytes(test_data("quant-blocks/quantized.json")));
    return json;
}

} // namespace

TEST_CASE("blocks: the published quantizer's, bit for bit") {
    const std::vector<float> values = floats(published()["values"]);
    REQUIRE(values.size() == 64 * 32);
    for (const auto &entry : published()["blocks"].items()) {
        const std::string name = entry.key();
        CAPTURE(name);
        const std::string expected = from_hex(entry.value().get<std::string>());
        const std::string found = encoded(type_of(name), values);
        const size_t block = expected.size() / 64;
        for (size_t row = 0; row < 64; ++row) {
            CAPTURE(row);
            CHECK(found.substr(row * block, block) == expected.substr(row * block, block));
        }
    }
}

TEST_CASE("blocks: the fits leave no more error than the reference quantizers") {
    using kernels::Quant;
    const std::pair<GgufType, Quant> types[] = {
        {GgufType::q4_k, Quant::q4_k},    {GgufType::q5_k, Quant::q5_k},
        {GgufType::q6_k, Quant::q6_k},    {GgufType::q2_k, Quant::q2_k},
        {GgufType::q3_k, Quant::q3_k},    {GgufType::iq4_nl, Quant::iq4_nl},
        {GgufType::iq4_xs, Quant::iq4_xs}};
    for (const auto &[type, quant] : types) {
        const std::string name = gguf_type_name(type);
        for (const auto &entry : published()["errors"].items()) {
            const std::string shape = entry.key();
            const double reference = entry.value()["rmse"][name].get<double>();
            const double found = error_of(quant, type, floats(entry.value()["values"]));
            std::printf("blocks %s %-8s rmse %.6f, %.3f of the reference's\n", name.c_str(),
                        shape.c_str(), found, found / reference);
            CHECK_MESSAGE(found <= 1.02 * reference, (name + " " + shape));
        }
    }
}

TEST_CASE("blocks: values that a fit could stumble over") {
    const kernels::Quant quants[] = {kernels::Quant::q4_k, kernels::Quant::q5_k,
                                     kernels::Quant::q6_k, kernels::Quant::iq4_nl,
                                     kernels::Quant::iq4_xs};
    const GgufType types[] = {GgufType::q4_k, GgufType::q5_k, GgufType::q6_k, GgufType::iq4_nl,
                              GgufType::iq4_xs};
    for (size_t i = 0; i < std::size(types); ++i) {
        CAPTURE(i);
        const auto relative = [&](const std::vector<float> &values, double largest) {
            return error_of(quants[i], types[i], values) / largest;
        };
        std::vector<float> values(256, 0.0F);
        CHECK(relative(values, 1) == 0);
        values.assign(256, 0.5F); // one value only, of either sign
        CHECK(relative(values, 0.5) < 0.001);
        values.assign(256, -0.5F);
        CHECK(relative(values, 0.5) < 0.001);
        values.assign(256, 0.0F);
        values[77] = -8;
        CHECK(relative(values, 8) < 0.01);
        for (size_t k = 0; k < 256; ++k) { // parts of very different sizes
            values[k] = std::ldexp(static_cast<float>(k % 16) - 7.5F, -static_cast<int>(k / 32));
        }
        CHECK(relative(values, 8) < 0.02);
        values.assign(256, 65504.0F);
        values[0] = -65504.0F;
        CHECK(relative(values, 65504) < 0.05);
        values.assign(256, 1e-12F); // scales below what an f16 holds are zero
        CHECK(error_of(quants[i], types[i], values) < 2e-12);
    }
}

TEST_CASE("pack_mxfp4: the values of safetensors' blocks") {
    const kernels::FloatEnvironment environment;
    constexpr double kE2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6}; // OCP Microscaling Formats 1.0
    constexpr size_t kBlocks = 300;
    std::vector<uint8_t> blocks(kBlocks * 16), scales(kBlocks), packed(kBlocks * 17);
    for (size_t i = 0; i < blocks.size(); ++i) {
        blocks[i] = static_cast<uint8_t>(i * 37 + i / 256);
    }
    for (size_t i = 0; i < kBlocks; ++i) {
        scales[i] = static_cast<uint8_t>(2 + i % 250);
    }
    pack_mxfp4(blocks.data(), scales.data(), kBlocks, packed.data());
    std::vector<float> found(kBlocks * 32);
    kernels::find_table("reference")
        ->embed_quantized(kernels::Quant::mxfp4, packed.data(), 1.0F, found.size(), found.data());
    for (size_t i = 0; i < found.size(); ++i) {
        const int four = blocks[i / 2] >> i % 2 * 4 & 15; // the even one is in the low bits
        const double magnitude = std::ldexp(kE2m1[four & 7], scales[i / 32] - 127);
        REQUIRE(double{found[i]} == (four >= 8 ? -magnitude : magnitude));
    }
}

TEST_CASE("blocks: f16 to nearest even, both ways") {
    const kernels::FloatEnvironment environment;
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
        const auto half = static_cast<uint16_t>(bits);
        if ((half & 0x7C00U) == 0x7C00U) {
            continue;
        }
        const float value = f16_to_f32(half);
        CHECK(f32_to_f16(value) == half);
        const float next = f16_to_f32(static_cast<uint16_t>(half + 1));
        if (std::isfinite(next)) { // halfway goes to the even one
            const float middle = static_cast<float>((double{value} + double{next}) / 2);
            CHECK(f32_to_f16(middle) == half + (half & 1U));
        }
    }
    CHECK(f32_to_f16(std::nextafter(kF16Overflow, 0.0F)) == 0x7BFF);
    CHECK(f32_to_f16(kF16Overflow) == 0x7C00);
    CHECK(f32_to_f16(-std::numeric_limits<float>::infinity()) == 0xFC00);
    CHECK((f32_to_f16(std::numeric_limits<float>::quiet_NaN()) & 0x7FFF) > 0x7C00);
}

TEST_CASE("blocks: files and kernels mean the same sizes") {
    using kernels::Quant;
    const std::pair<GgufType, Quant> types[] = {
        {GgufType::q8_0, Quant::q8_0},     {GgufType::q4_0, Quant::q4_0},
        {GgufType::q4_1, Quant::q4_1},     {GgufType::q5_0, Quant::q5_0},
        {GgufType::q5_1, Quant::q5_1},     {GgufType::q4_k, Quant::q4_k},
        {GgufType::q5_k, Quant::q5_k},     {GgufType::q6_k, Quant::q6_k},
        {GgufType::q2_k, Quant::q2_k},     {GgufType::q3_k, Quant::q3_k},
        {GgufType::iq4_nl, Quant::iq4_nl}, {GgufType::iq4_xs, Quant::iq4_xs},
        {GgufType::mxfp4, Quant::mxfp4}};
    for (const auto &[type, quant] : types) {
        const std::string name = gguf_type_name(type);
        CAPTURE(name);
        CHECK(gguf_block(type).elements == kernels::quant_block(quant).elements);
        CHECK(gguf_block(type).size_bytes == kernels::quant_block(quant).bytes);
    }
}

} // namespace stasis
