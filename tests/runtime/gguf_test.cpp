// The promises of runtime/model/gguf/gguf.h: the contents of a file, every way in which it can be
// false, files split over several, and the published vocabularies.
#include "runtime/model/gguf/gguf.h"

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <functional>

#include "tests/data_files.h"
#include "tests/runtime/gguf_writer.h"
#include "tests/runtime/model_files.h"

namespace stasis {

namespace {

using Type = GgufValueType;

// Parses a copy of exactly this size, so that the sanitizer sees a read beyond its end, and looks
// up every value in every way.
GgufFile parsed_gguf(const std::string &bytes) {
    const std::vector<uint8_t> copy(bytes.begin(), bytes.end());
    GgufFile gguf = parse_gguf(copy.data(), copy.size(), "a.gguf");
    for (auto &[name, tensor] : gguf.tensors) {
        REQUIRE(tensor.size_bytes <= copy.size());
        REQUIRE(tensor.offset_bytes <= copy.size() - tensor.size_bytes);
    }
    gguf.metadata.clear();
    return gguf;
}

void expect_corrupt(const GgufWriter &writer, const std::vector<std::string> &parts) {
    expect_error(Status::corrupt, parts, [&] { parsed_gguf(writer.bytes()); });
}

GgufWriter tensor_of(GgufType type, const std::vector<uint64_t> &shape, uint64_t offset,
                     size_t data_bytes) {
    GgufWriter writer;
    writer.info("w", type, shape, offset);
    writer.data = std::string(data_bytes, 'x');
    return writer;
}

GgufWriter small_gguf() {
    GgufWriter writer;
    writer.text("general.architecture", "llama").integer("llama.block_count", 2);
    writer.pair("a.f64", Type::f64, gguf_number(0.25)).pair("a.f32", Type::f32, gguf_number(0.5F));
    writer.pair("a.i8", Type::i8, gguf_number(int8_t{-3}));
    writer.pair("a.u64", Type::u64, gguf_number(uint64_t{1} << 40));
    writer.boolean("a.true", true).texts("a.texts", {"x", "", "yz"});
    writer.array<int32_t>("a.i32s", Type::i32, {-1, 2}).array<float>("a.f32s", Type::f32, {1.5F});
    writer.pair(
        "a.nested", Type::array,
        gguf_array(Type::array, 2,
                   gguf_array(Type::u8, 2, "ab") + gguf_array(Type::string, 1, gguf_text("c"))));
    writer.tensor("w", GgufType::f32, {2, 3}, std::string(24, 'w'));
    writer.tensor("q", GgufType::q8_0, {64, 2}, std::string(136, 'q'));
    writer.tensor("odd", GgufType{21}, {256}, std::string(136, 'o'));
    return writer;
}

} // namespace

TEST_CASE("GgufFile: values and tensors arrive as written, in both versions") {
    for (const uint32_t version : {2U, 3U}) {
        GgufWriter writer = small_gguf();
        writer.version = version;
        const std::string bytes = writer.bytes();
        const GgufFile gguf =
            parse_gguf(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size(), "f");
        CHECK(gguf.version == version);
        CHECK(gguf.text("general.architecture") == "llama");
        CHECK(gguf.integer("llama.block_count") == 2);
        CHECK(gguf.number("a.f64") == 0.25);
        CHECK(gguf.number("a.f32") == 0.5);
        CHECK(gguf.integer("a.u64") == uint64_t{1} << 40);
        CHECK(gguf.boolean("a.true") == true);
        CHECK(gguf.texts("a.texts") == std::vector<std::string_view>{"x", "", "yz"});
        CHECK(gguf.integers("a.i32s") == std::vector<int64_t>{-1, 2});
        CHECK(gguf.numbers("a.f32s") == std::vector<float>{1.5F});
        CHECK(gguf.metadata.at("a.nested").count == 2);
        CHECK_FALSE(gguf.integer("a.absent"));
        CHECK_FALSE(gguf.texts("a.absent"));
        const GgufTensor &w = gguf.tensor("w");
        CHECK(w.shape == std::vector<uint64_t>{2, 3});
        CHECK(w.offset_bytes % 32 == 0);
        CHECK(bytes.substr(w.offset_bytes, w.size_bytes) == std::string(24, 'w'));
        CHECK(gguf.tensor("q").size_bytes == 136);
        CHECK(bytes[gguf.tensor("q").offset_bytes] == 'q');
        // A type outside the list is refused where its data is wanted, and not before.
        expect_error(Status::unsupported, {"tensor odd", "IQ3_S"}, [&] { gguf.tensor("odd"); });
        expect_error(Status::corrupt, {"no tensor v"}, [&] { gguf.tensor("v"); });
    }
}

TEST_CASE("GgufFile: a value of another kind is refused by key and type") {
    const std::string bytes = small_gguf().bytes();
    const GgufFile gguf =
        parse_gguf(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size(), "f.gguf");
    const auto refused = [&](const std::vector<std::string> &parts,
                             const std::function<void()> &call) {
        expect_error(Status::corrupt, parts, call);
    };
    refused({"f.gguf", "a.f32", "an integer", "FLOAT32"}, [&] { gguf.integer("a.f32"); });
    refused({"a.i8", "-3"}, [&] { gguf.integer("a.i8"); });
    refused({"a.i8", "FLOAT64", "INT8"}, [&] { gguf.number("a.i8"); });
    refused({"a.i8", "BOOL"}, [&] { gguf.boolean("a.i8"); });
    refused({"a.i8", "STRING"}, [&] { gguf.text("a.i8"); });
    refused({"a.texts", "array of STRING"}, [&] { gguf.integers("a.texts"); });
    refused({"a.i32s", "array of FLOAT32", "array of INT32"}, [&] { gguf.numbers("a.i32s"); });
    refused({"a.nested", "array of ARRAY"}, [&] { gguf.texts("a.nested"); });
    refused({"a.i8", "array of STRING", "INT8"}, [&] { gguf.texts("a.i8"); });
    GgufWriter bad;
    bad.text("t", "a\xFF");
    const std::string bad_bytes = bad.bytes();
    const GgufFile bad_gguf =
        parse_gguf(reinterpret_cast<const uint8_t *>(bad_bytes.data()), bad_bytes.size(), "f");
    refused({"t", "UTF-8"}, [&] { bad_gguf.text("t"); });
}

TEST_CASE("GgufFile: headers that lie") {
    CHECK(parsed_gguf(GgufWriter().bytes()).tensors.empty());
    const auto with_version = [](uint32_t version) {
        GgufWriter writer;
        writer.version = version;
        return writer.bytes();
    };
    expect_error(Status::corrupt, {"a.gguf", "GGUF"}, [] { parsed_gguf(""); });
    expect_error(Status::corrupt, {"no GGUF file"},
                 [] { parsed_gguf("GGML" + std::string(20, '\0')); });
    expect_error(Status::unsupported, {"version 1"}, [&] { parsed_gguf(with_version(1)); });
    expect_error(Status::unsupported, {"version 4"}, [&] { parsed_gguf(with_version(4)); });
    expect_error(Status::unsupported, {"version 0"}, [&] { parsed_gguf(with_version(0)); });
    expect_error(Status::unsupported, {"big-endian"}, [&] { parsed_gguf(with_version(3U << 24)); });
    GgufWriter writer = small_gguf();
    writer.pair_count = uint64_t{1} << 60;
    expect_corrupt(writer, {"metadata values", "fit"});
    writer = small_gguf();
    writer.tensor_count = UINT64_MAX;
    expect_corrupt(writer, {"tensors", "fit"});
    writer = small_gguf();
    writer.tensor_count += 1; // reads the data as an entry
    expect_corrupt(writer, {"a.gguf"});
}

TEST_CASE("GgufFile: metadata that lies") {
    const auto value = [](Type type, const std::string &bytes) {
        return GgufWriter().pair("k.v", type, bytes);
    };
    expect_corrupt(GgufWriter().integer("", 1), {"key is empty"});
    expect_corrupt(GgufWriter().integer("a b", 1), {"ASCII"});
    expect_corrupt(GgufWriter().integer("a\xC3\xA9", 1), {"ASCII"});
    expect_corrupt(GgufWriter().integer(std::string(65536, 'k'), 1), {"too long"});
    CHECK_NOTHROW(parsed_gguf(GgufWriter().integer(std::string(65535, 'k'), 1).bytes()));
    expect_corrupt(GgufWriter().integer("k.v", 1).integer("k.v", 1), {"k.v", "twice"});
    expect_corrupt(value(Type{13}, "abcdefgh"), {"k.v", "unknown type of value 13"});
    expect_corrupt(value(Type::boolean, "\2"), {"k.v", "boolean"});
    expect_corrupt(value(Type::array, gguf_array(Type::boolean, 2, "\1\3")), {"k.v", "boolean"});
    expect_corrupt(value(Type::array, gguf_array(Type{99}, 1, "x")), {"k.v", "value 99"});
    expect_corrupt(value(Type::string, gguf_number(uint64_t{5}) + "four"), {"5 bytes", "4 are"});
    expect_corrupt(value(Type::string, gguf_number(UINT64_MAX) + "four"), {"4 are left"});
    expect_corrupt(value(Type::array, gguf_array(Type::u8, 5, "four")), {"k.v", "beyond"});
    // 2^62 of four bytes: the product wraps to 0.
    expect_corrupt(value(Type::array, gguf_array(Type::u32, uint64_t{1} << 62, "")),
                   {"k.v", "beyond"});
    expect_corrupt(value(Type::array, gguf_array(Type::boolean, uint64_t{1} << 62, "")), {"left"});
    expect_corrupt(value(Type::array, gguf_array(Type::string, UINT64_MAX, gguf_text("a"))),
                   {"are left"});
    expect_corrupt(value(Type::array, gguf_array(Type::array, UINT64_MAX, "")), {"are left"});
    std::string nested = gguf_array(Type::u8, 1, "x");
    for (int depth = 1; depth < 4; ++depth) {
        nested = gguf_array(Type::array, 1, nested);
    }
    CHECK_NOTHROW(parsed_gguf(value(Type::array, nested).bytes()));
    expect_corrupt(value(Type::array, gguf_array(Type::array, 1, nested)), {"nested deeper"});
    std::string bottomless;
    for (int depth = 0; depth < 100000; ++depth) {
        bottomless += gguf_number(uint32_t{9}) + gguf_number(uint64_t{1});
    }
    expect_corrupt(value(Type::array, bottomless), {"nested deeper"});
}

TEST_CASE("GgufFile: alignments that cannot be") {
    const auto aligned = [](uint32_t alignment) {
        GgufWriter writer;
        writer.alignment = alignment == 0 ? 1 : alignment;
        writer.integer("general.alignment", alignment);
        writer.tensor("w", GgufType::f32, {1}, "1234").tensor("v", GgufType::f32, {1}, "5678");
        return writer;
    };
    for (const uint32_t alignment : {8U, 16U, 64U, 4096U}) {
        CHECK(parsed_gguf(aligned(alignment).bytes()).tensor("v").offset_bytes % alignment == 0);
    }
    for (const uint32_t alignment : {0U, 1U, 4U, 24U, 48U}) {
        expect_corrupt(aligned(alignment), {"general.alignment", "power of two"});
    }
    GgufWriter text;
    expect_corrupt(text.text("general.alignment", "32"), {"general.alignment", "an integer"});
    GgufWriter huge; // larger than the file: nothing is left for data
    huge.integer("general.alignment", 1U << 31).info("w", GgufType::f32, {1}, 0);
    expect_corrupt(huge, {"tensor w", "beyond"});
}

TEST_CASE("GgufFile: tensors that lie") {
    const auto q4 = GgufType::q4_0, f32 = GgufType::f32;
    CHECK(parsed_gguf(tensor_of(f32, {4, 2}, 0, 32).bytes()).tensor("w").size_bytes == 32);
    expect_corrupt(tensor_of(f32, {4, 2}, 0, 31), {"tensor w", "32 bytes", "beyond"});
    expect_corrupt(tensor_of(f32, {4}, 32, 47), {"tensor w", "offset 32", "beyond"});
    expect_corrupt(tensor_of(f32, {4}, 64, 47), {"beyond"});
    expect_corrupt(tensor_of(f32, {4}, 16, 64), {"offset 16", "alignment 32"});
    expect_corrupt(tensor_of(f32, {4}, ~uint64_t{31}, 64), {"beyond"});
    expect_corrupt(tensor_of(f32, {}, 0, 64), {"0 dimensions"});
    expect_corrupt(tensor_of(f32, {1, 1, 1, 1, 1}, 0, 64), {"5 dimensions"});
    expect_corrupt(tensor_of(f32, {4, 0}, 0, 64), {"tensor w", "dimensions is 0"});
    expect_corrupt(tensor_of(GgufType{16}, {0}, 0, 64), {"dimensions is 0"});
    expect_corrupt(tensor_of(f32, {uint64_t{1} << 32, uint64_t{1} << 32}, 0, 64), {"overflows"});
    expect_corrupt(tensor_of(f32, {uint64_t{1} << 62}, 0, 64), {"bytes overflows"});
    expect_corrupt(tensor_of(f32, {UINT64_MAX}, 0, 64), {"overflows"});
    expect_corrupt(tensor_of(q4, {33}, 0, 64), {"rows of 33", "blocks of 32", "Q4_0"});
    expect_corrupt(tensor_of(q4, {16, 2}, 0, 64), {"rows of 16"}); // 32 elements, but no whole row
    expect_corrupt(tensor_of(GgufType::q6_k, {128}, 0, 256), {"blocks of 256", "Q6_K"});
    expect_corrupt(tensor_of(f32, {8}, 0, 96).info("v", f32, {4}, 0), {"v", "w", "overlap"});
    expect_corrupt(tensor_of(f32, {9}, 0, 96).info("v", f32, {4}, 32), {"v", "w", "overlap"});
    CHECK_NOTHROW(parsed_gguf(tensor_of(f32, {8}, 0, 96).info("v", f32, {4}, 32).bytes()));
    expect_corrupt(tensor_of(GgufType{16}, {8}, 0, 96).info("v", f32, {4}, 0), {"overlap"});
    expect_corrupt(tensor_of(f32, {4}, 0, 96).info("a", GgufType{16}, {8}, 0), {"overlap"});
    expect_corrupt(tensor_of(f32, {8}, 0, 96).info("w", f32, {4}, 32), {"tensor w", "twice"});
    GgufWriter nameless, nul, bytes, longer, exact;
    expect_corrupt(nameless.tensor("", f32, {1}, "1234"), {"name is empty"});
    expect_corrupt(nul.tensor(std::string("a\0b", 3), f32, {1}, "1234"), {"no text"});
    expect_corrupt(bytes.tensor("\xFF", f32, {1}, "1234"), {"no text"});
    expect_corrupt(longer.tensor(std::string(65, 'n'), f32, {1}, "1234"), {"64 bytes"});
    CHECK_NOTHROW(parsed_gguf(exact.tensor(std::string(64, 'n'), f32, {1}, "1234").bytes()));
}

TEST_CASE("GgufFile: block sizes are the published ones, other types are known by name") {
    struct Case {
        uint32_t number;
        const char *name;
        uint32_t elements, size_bytes;
    };
    // gguf-py's GGML_QUANT_SIZES.
    static constexpr Case kCases[] = {
        {0, "F32", 1, 4},       {1, "F16", 1, 2},       {30, "BF16", 1, 2},
        {2, "Q4_0", 32, 18},    {3, "Q4_1", 32, 20},    {6, "Q5_0", 32, 22},
        {7, "Q5_1", 32, 24},    {8, "Q8_0", 32, 34},    {12, "Q4_K", 256, 144},
        {13, "Q5_K", 256, 176}, {14, "Q6_K", 256, 210}, {10, "Q2_K", 256, 84},
        {11, "Q3_K", 256, 110}, {20, "IQ4_NL", 32, 18}, {23, "IQ4_XS", 256, 136},
        {39, "MXFP4", 32, 17}};
    for (const Case &c : kCases) {
        CAPTURE(c.name);
        const GgufType type{c.number};
        CHECK(gguf_type_name(type) == c.name);
        CHECK(gguf_block(type).elements == c.elements);
        CHECK(gguf_block(type).size_bytes == c.size_bytes);
        const uint64_t size = uint64_t{3} * c.size_bytes;
        const std::string file = tensor_of(type, {c.elements, 3}, 0, size).bytes();
        CHECK(parsed_gguf(file).tensor("w").size_bytes == size);
        expect_error(Status::corrupt, {"beyond"},
                     [&] { parsed_gguf(file.substr(0, file.size() - 1)); });
    }
    for (const auto &[number, name] : {std::pair(9, "Q8_1"),
                                       {16, "IQ2_XXS"},
                                       {18, "IQ3_XXS"},
                                       {21, "IQ3_S"},
                                       {24, "I8"},
                                       {29, "IQ1_M"},
                                       {34, "TQ1_0"},
                                       {40, "NVFP4"},
                                       {4, "Q4_2"},
                                       {77, "type 77"}}) {
        const GgufType type{static_cast<uint32_t>(number)};
        CHECK(gguf_type_name(type) == name);
        CHECK(gguf_block(type).elements == 0);
        const GgufFile gguf = parsed_gguf(tensor_of(type, {256}, 0, 32).bytes());
        expect_error(Status::unsupported, {"tensor w", "a.gguf", name}, [&] { gguf.tensor("w"); });
    }
}

TEST_CASE("GgufFile: every truncation is refused, every flipped bit refused or harmless") {
    const std::string bytes = small_gguf().bytes();
    for (size_t size = 0; size < bytes.size() - 136; ++size) { // before the tensor of unknown size
        expect_error(Status::corrupt, {}, [&] { parsed_gguf(bytes.substr(0, size)); });
    }
    size_t refused = 0;
    for (size_t bit = 0; bit < (bytes.size() - 320) * 8; ++bit) {
        std::string flipped = bytes;
        flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
        try {
            parsed_gguf(flipped);
        } catch (const Error &error) {
            CHECK((error.status() == Status::corrupt || error.status() == Status::unsupported));
            ++refused;
        }
    }
    CHECK(refused > 2000);
}

namespace {

GgufWriter split_part(uint16_t number, uint16_t count, int32_t tensors) {
    GgufWriter writer;
    writer.pair("split.no", Type::u16, gguf_number(number));
    writer.pair("split.count", Type::u16, gguf_number(count));
    writer.pair("split.tensors.count", Type::i32, gguf_number(tensors));
    writer.tensor("w" + std::to_string(number), GgufType::f32, {1}, "000" + std::to_string(number));
    return writer;
}

} // namespace

TEST_CASE("GgufFile: files on disk, whole and split") {
    const TemporaryDirectory directory;
    write_bytes(directory.file("a.gguf"), small_gguf().bytes());
    const GgufFile whole = open_gguf(directory.file("a.gguf"));
    CHECK(whole.tensors.size() == 3);
    CHECK(whole.names == std::vector<std::string>{"a.gguf"});
    whole.check_unchanged();
    write_bytes(directory.file("a.gguf"), "GGUF");
    expect_error(Status::io, {"a.gguf", "changed"}, [&] { whole.check_unchanged(); });
    expect_error(Status::not_found, {"b.gguf"}, [&] { open_gguf(directory.file("b.gguf")); });
    expect_error(Status::io, {"regular"}, [&] { open_gguf(directory.path()); });

    const auto name = [&](int number) {
        return directory.file("m-0000" + std::to_string(number) + "-of-00003.gguf");
    };
    const auto write = [&](int number, const GgufWriter &writer) {
        write_bytes(name(number), writer.bytes());
    };
    for (int i = 0; i < 3; ++i) {
        write(i + 1, split_part(static_cast<uint16_t>(i), 3, 3));
    }
    const GgufFile split = open_gguf(name(1));
    CHECK(split.tensors.size() == 3);
    CHECK(split.names[2] == "m-00003-of-00003.gguf");
    for (size_t i = 0; i < 3; ++i) {
        const GgufTensor &tensor = split.tensor("w" + std::to_string(i));
        CHECK(tensor.file == i);
        char data[4];
        split.files[i]->read(data, sizeof data, tensor.offset_bytes);
        CHECK(std::string(data, 4) == "000" + std::to_string(i));
    }
    split.check_unchanged();
    const auto refused = [&](const std::vector<std::string> &parts) {
        expect_error(Status::corrupt, parts, [&] { open_gguf(name(1)); });
    };
    expect_error(Status::corrupt, {"file 2 of 3", "-00001-of-00003.gguf"},
                 [&] { open_gguf(name(2)); });
    write_bytes(directory.file("renamed.gguf"), split_part(0, 3, 3).bytes());
    expect_error(Status::corrupt, {"renamed.gguf", "-00001-of-00003.gguf"},
                 [&] { open_gguf(directory.file("renamed.gguf")); });
    write(3, split_part(1, 3, 3));
    refused({"m-00003", "file 2 of 3", "expected 3 of 3"});
    write(3, split_part(2, 4, 3));
    refused({"m-00003", "file 3 of 4"});
    write(3, split_part(2, 3, 3).tensor("w1", GgufType::f32, {1}, "1234"));
    refused({"tensor w1", "m-00003", "another file"});
    write(3, split_part(2, 3, 3).tensor("more", GgufType::f32, {1}, "1234"));
    refused({"split.tensors.count", "3", "4"});
    write(1, split_part(3, 3, 3));
    refused({"split.no 3", "split.count 3"});
    write(1, split_part(1, 3, 3)); // named as the first
    refused({"m-00001", "file 2 of 3"});
    write(1, split_part(0, 3, 3));
    std::filesystem::remove(name(2));
    expect_error(Status::not_found, {"m-00002-of-00003.gguf"}, [&] { open_gguf(name(1)); });
}

TEST_CASE("GgufFile: of a file only its beginning is read, wherever that ends, and no more than "
          "256 MiB") {
    const TemporaryDirectory directory;
    const std::string path = directory.file("long.gguf");
    for (const size_t around : {size_t{1} << 20, size_t{2} << 20, size_t{5} << 20}) {
        for (const size_t text_bytes : {around - 200, around - 100, around - 1, around}) {
            CAPTURE(text_bytes);
            GgufWriter writer;
            writer.text("long", std::string(text_bytes, 'l')).text("last", "z");
            writer.tensor("w", GgufType::f32, {1}, "1234");
            write_bytes(path, writer.bytes());
            const GgufFile gguf = open_gguf(path);
            CHECK(gguf.text("long") == std::string(text_bytes, 'l'));
            CHECK(gguf.text("last") == "z");
            char data[4];
            gguf.files[0]->read(data, sizeof data, gguf.tensor("w").offset_bytes);
            CHECK(std::string(data, 4) == "1234");
        }
    }
    // A text of 1 GiB, all of it there, but for most a hole.
    std::string bytes = GgufWriter().text("long", std::string(16, 'l')).bytes();
    const uint64_t length = uint64_t{1} << 30;
    std::memcpy(bytes.data() + bytes.find("llll") - sizeof length, &length, sizeof length);
    write_bytes(path, bytes);
    std::filesystem::resize_file(path, length + 4096);
    expect_error(Status::corrupt, {"long.gguf", "268435456"}, [&] { open_gguf(path); });
}

TEST_CASE("GgufFile: the published vocabularies") {
    struct Case {
        const char *name, *model;
        size_t tokens;
    };
    static constexpr Case kCases[] = {
        {"deepseek-coder", "gpt2", 32256}, {"gpt-2", "gpt2", 50257},  {"llama-bpe", "gpt2", 128256},
        {"llama-spm", "llama", 32000},     {"phi-3", "llama", 32064}, {"qwen2", "gpt2", 151936},
        {"starcoder", "gpt2", 49152}};
    for (const Case &c : kCases) {
        const std::string path =
            shared_data("tokenizers/ggml-vocab-" + std::string(c.name) + ".gguf");
        if (path.empty()) {
            STASIS_SKIP("tokenizers/ggml-vocab-*.gguf are not beside the clone");
        }
        CAPTURE(c.name);
        const GgufFile gguf = open_gguf(path);
        CHECK(gguf.version == 3);
        CHECK(gguf.tensors.empty());
        CHECK(gguf.text("tokenizer.ggml.model") == c.model);
        CHECK(gguf.texts("tokenizer.ggml.tokens")->size() == c.tokens);
        CHECK(gguf.integers("tokenizer.ggml.token_type")->size() == c.tokens);
        CHECK(gguf.integer("tokenizer.ggml.eos_token_id") < c.tokens);
    }
}

} // namespace stasis
