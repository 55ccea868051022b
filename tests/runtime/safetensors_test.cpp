// The promises of runtime/model/safetensors.h: the contents of a file, every way in which it can be
// false, and shards.
#include "runtime/model/safetensors.h"

#include <doctest/doctest.h>

#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "tests/data_files.h"
#include "tests/runtime/model_files.h"

namespace stasis {

namespace {

Checkpoint parsed_safetensors(const std::string &bytes) {
    Checkpoint checkpoint;
    // A copy of exactly this size, so that the sanitizer sees a read beyond its end.
    const std::vector<uint8_t> copy(bytes.begin(), bytes.end());
    parse_safetensors(copy.data(), copy.size(), "a.safetensors", nullptr, checkpoint);
    for (auto &[name, tensor] : checkpoint.tensors) {
        REQUIRE(tensor.size_bytes <= copy.size());
        REQUIRE(tensor.offset_bytes <= copy.size() - tensor.size_bytes);
    }
    return checkpoint;
}

std::string with_header(const std::string &header, size_t payload_bytes) {
    std::string size(8, '\0');
    for (size_t i = 0; i < size.size(); ++i) {
        size[i] = static_cast<char>(header.size() >> (8 * i));
    }
    return size + header + std::string(payload_bytes, 'x');
}

std::string entry(const std::string &dtype, const std::string &shape, const std::string &offsets) {
    return "{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

void expect_corrupt(const std::string &header, size_t payload_bytes,
                    const std::vector<std::string> &parts) {
    CAPTURE(header);
    expect_error(Status::corrupt, parts,
                 [&] { parsed_safetensors(with_header(header, payload_bytes)); });
}

const StoredTensors kSmall = {
    {"a", {"BF16", {2, 3}, std::string(12, 'a')}},
    {"b", {"F32", {}, std::string(4, 'b')}},
    {"c", {"F16", {0, 7}, ""}},
    {"d", {"I64", {1}, std::string(8, 'd')}},
};

} // namespace

TEST_CASE("open_checkpoint: types, shapes and bytes arrive as written") {
    const std::string bytes = safetensors_bytes(kSmall);
    Checkpoint checkpoint;
    parse_safetensors(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size(), "f", nullptr,
                      checkpoint);
    REQUIRE(checkpoint.tensors.size() == 3);
    const Tensor &a = checkpoint.tensors.at("a");
    CHECK(a.type == DataType::bf16);
    CHECK(a.shape == std::vector<uint64_t>{2, 3});
    CHECK(a.file == "f");
    CHECK(bytes.substr(a.offset_bytes, a.size_bytes) == std::string(12, 'a'));
    const Tensor &b = checkpoint.tensors.at("b");
    CHECK(b.type == DataType::f32);
    CHECK(b.shape.empty());
    CHECK(bytes.substr(b.offset_bytes, b.size_bytes) == "bbbb");
    CHECK(checkpoint.tensors.at("c").type == DataType::f16);
    CHECK(checkpoint.tensors.at("c").size_bytes == 0);
    CHECK(checkpoint.refused == std::map<std::string, std::string>{{"d", "I64"}});
}

TEST_CASE("open_checkpoint: metadata is allowed, and an empty file of tensors") {
    CHECK(parsed_safetensors(with_header("{\"__metadata__\":{\"format\":\"pt\"}}", 0))
              .tensors.empty());
    CHECK(parsed_safetensors(with_header("{}", 0)).tensors.empty());
}

TEST_CASE("open_checkpoint: every lie of a header is refused") {
    const std::string good = entry("BF16", "[2]", "[0,4]");
    expect_corrupt("[]", 0, {"a.safetensors", "object"});
    expect_corrupt("", 0, {"JSON"});
    expect_corrupt("{\"a\":" + good, 4, {"JSON"});
    expect_corrupt("{\"a\":[]}", 0, {"tensor a", "object"});
    expect_corrupt("{\"a\":{}}", 0, {"tensor a", "data_offsets"});
    expect_corrupt("{\"a\":" + entry("BF16", "[2]", "[4,0]") + "}", 4, {"data_offsets"});
    expect_corrupt("{\"a\":" + entry("BF16", "[2]", "[0,4,4]") + "}", 4, {"offsets"});
    expect_corrupt("{\"a\":" + entry("BF16", "[2]", "[4]") + "}", 4, {"data_offsets"});
    expect_corrupt("{\"a\":" + entry("BF16", "[2]", "[0,8]") + "}", 4, {"payload of 4"});
    expect_corrupt("{\"a\":" + entry("BF16", "[2]", "[-4,0]") + "}", 4, {"non-negative"});
    expect_corrupt("{\"a\":" + entry("BF16", "[2]", "[0,4.0]") + "}", 4, {"non-negative"});
    expect_corrupt("{\"a\":" + entry("BF16", "[2]", "[0,18446744073709551615]") + "}", 4,
                   {"data_offsets"});
    expect_corrupt("{\"a\":" + entry("BF16", "[3]", "[0,4]") + "}", 4, {"6 bytes", "hold 4"});
    expect_corrupt("{\"a\":" + entry("F32", "[2]", "[0,4]") + "}", 4, {"8 bytes"});
    expect_corrupt("{\"a\":" + entry("BF16", "[-2]", "[0,4]") + "}", 4, {"non-negative"});
    expect_corrupt("{\"a\":" + entry("BF16", "[1,1,1,1,1,1,1,1,2]", "[0,4]") + "}", 4,
                   {"dimensions"});
    expect_corrupt("{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,4]}}", 4, {"dtype"});
    expect_corrupt("{\"a\":{\"dtype\":\"BF16\",\"data_offsets\":[0,4]}}", 4, {"shape"});
    // 2^63 elements of 2 bytes: the product wraps to 0.
    expect_corrupt("{\"a\":" + entry("BF16", "[4294967296,2147483648]", "[0,0]") + "}", 0,
                   {"overflow"});
    expect_corrupt("{\"a\":" + good + ",\"a\":" + good + "}", 4, {"\"a\" twice"});
    expect_corrupt("{\"a\":" + good + ",\"b\":" + good + "}", 4, {"tensor b", "begin at byte 4"});
    expect_corrupt("{\"a\":" + good + ",\"b\":" + entry("BF16", "[2]", "[6,10]") + "}", 10,
                   {"tensor b", "begin at byte 4"});
    expect_corrupt("{\"a\":" + entry("BF16", "[2]", "[2,6]") + "}", 6, {"begin at byte 0"});
    expect_corrupt("{\"a\":" + good + "}", 5, {"cover 4 bytes", "has 5"});
    expect_corrupt(std::string(100000, '['), 0, {"deeper"});
    expect_corrupt("{\"a\":1e999}", 0, {"JSON"});
    expect_corrupt("{\"\xFF\":1}", 0, {"JSON"});
}

TEST_CASE("open_checkpoint: a header longer than the file or the limit is refused") {
    std::string bytes = with_header("{}", 0);
    bytes[0] = 3;
    expect_error(Status::corrupt, {"header"}, [&] { parsed_safetensors(bytes); });
    bytes.replace(0, 8, 8, '\xFF');
    expect_error(Status::corrupt, {"header"}, [&] { parsed_safetensors(bytes); });
    expect_error(Status::corrupt, {"8 bytes"}, [&] { parsed_safetensors(""); });
}

TEST_CASE("open_checkpoint: every truncation is refused") {
    const std::string bytes = safetensors_bytes(kSmall);
    CHECK(parsed_safetensors(bytes).tensors.size() == 3);
    for (size_t size = 0; size < bytes.size(); ++size) {
        expect_error(Status::corrupt, {}, [&] { parsed_safetensors(bytes.substr(0, size)); });
    }
    expect_error(Status::corrupt, {}, [&] { parsed_safetensors(bytes + "x"); });
}

TEST_CASE("open_checkpoint: every flipped bit of size and header is refused or harmless") {
    const std::string bytes = safetensors_bytes(kSmall);
    const size_t header_end = bytes.size() - 24;
    size_t refused = 0;
    for (size_t bit = 0; bit < header_end * 8; ++bit) {
        std::string flipped = bytes;
        flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
        try {
            // A change that still parses (another name, another dtype of that size) stays within
            // the file: `parsed_safetensors` checks it.
            parsed_safetensors(flipped);
        } catch (const Error &error) {
            CHECK(error.status() == Status::corrupt);
            ++refused;
        }
    }
    CHECK(refused > header_end * 8 / 2);
}

TEST_CASE("open_checkpoint: a directory without one, and files that are no files") {
    const TemporaryDirectory directory;
    expect_error(Status::not_found, {"model.safetensors", directory.path()},
                 [&] { open_checkpoint(directory.path()); });
    write_bytes(directory.file("model.safetensors"), "");
    expect_error(Status::corrupt, {"8 bytes"}, [&] { open_checkpoint(directory.path()); });
    std::filesystem::remove(directory.file("model.safetensors"));
    std::filesystem::create_directory(directory.file("model.safetensors"));
    expect_error(Status::io, {"regular"}, [&] { open_checkpoint(directory.path()); });
    std::filesystem::remove(directory.file("model.safetensors"));
    REQUIRE(mkfifo(directory.file("model.safetensors").c_str(), 0600) == 0);
    expect_error(Status::io, {"regular"}, [&] { open_checkpoint(directory.path()); });
}

TEST_CASE("open_checkpoint: a file that is written to or cut is noticed") {
    const TemporaryDirectory directory;
    const std::string path = directory.file("model.safetensors");
    const std::string bytes = safetensors_bytes(kSmall);
    const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
    const auto open_old = [&] {
        write_bytes(path, bytes);
        std::filesystem::last_write_time(path, old);
        Checkpoint checkpoint = open_checkpoint(directory.path());
        checkpoint.check_unchanged();
        return checkpoint;
    };
    Checkpoint checkpoint = open_old();
    std::filesystem::resize_file(path, bytes.size() - 1);
    std::filesystem::last_write_time(path, old);
    expect_error(Status::io, {path, "changed"}, [&] { checkpoint.check_unchanged(); });
    checkpoint = open_old();
    write_bytes(path, bytes);
    expect_error(Status::io, {path, "changed"}, [&] { checkpoint.check_unchanged(); });

    checkpoint = open_old();
    std::filesystem::rename(path, directory.file("moved"));
    write_bytes(path, "another file");
    checkpoint.check_unchanged();
    CHECK(stored_bytes(checkpoint.tensors.at("a")) == std::string(12, 'a')); // as it was opened
}

TEST_CASE("open_checkpoint: shards: the index is held to what the files have") {
    const TemporaryDirectory directory;
    const std::string index = directory.file("model.safetensors.index.json");
    write_bytes(directory.file("one"), safetensors_bytes({{"a", kSmall.at("a")}}));
    write_bytes(directory.file("two"), safetensors_bytes({{"b", kSmall.at("b")}}));
    const auto expect = [&](Status status, const std::vector<std::string> &parts,
                            const std::string &text) {
        CAPTURE(text);
        write_bytes(index, text);
        expect_error(status, parts, [&] { open_checkpoint(directory.path()); });
    };
    write_bytes(index, R"({"metadata":{"total_size":16},"weight_map":{"a":"one","b":"two"}})");
    const Checkpoint checkpoint = open_checkpoint(directory.path());
    CHECK(checkpoint.files.size() == 2);
    CHECK(checkpoint.tensors.at("a").file == "one");
    CHECK(checkpoint.tensors.at("b").file == "two");

    expect(Status::corrupt, {"JSON"}, R"({"weight_map":)");
    expect(Status::corrupt, {"weight_map"}, R"({"weight_map":[]})");
    expect(Status::corrupt, {"weight_map"}, R"({})");
    expect(Status::corrupt, {"tensor a", "number"}, R"({"weight_map":{"a":1}})");
    expect(Status::corrupt, {"tensor a", "two"}, R"({"weight_map":{"a":"two","b":"two"}})");
    expect(Status::corrupt, {"tensor c"}, R"({"weight_map":{"a":"one","c":"one"}})");
    expect(Status::corrupt, {"\"a\" twice"}, R"({"weight_map":{"a":"one","a":"two"}})");
    expect(Status::not_found, {"three"}, R"({"weight_map":{"a":"one","b":"three"}})");
    const std::string names[] = {
        "../one", "/etc/passwd",        "..", ".", "", "x/one", "one\\u0000",
        "a\\\\b", std::string(256, 'x')};
    for (const std::string &name : names) {
        expect(Status::corrupt, {"plain file name"}, "{\"weight_map\":{\"a\":\"" + name + "\"}}");
    }
    write_bytes(directory.file("two"), safetensors_bytes({{"a", kSmall.at("a")}}));
    expect(Status::corrupt, {"tensor a", "another file"},
           R"({"weight_map":{"a":"one","b":"two"}})");
}

TEST_CASE("open_checkpoint: published files open") {
    CHECK(open_checkpoint(test_data("zoo/llama-mha-bias-f16-sharded")).files.size() == 3);
    CHECK(open_checkpoint(test_data("recall-gemma3")).tensors.size() == 158);
}

} // namespace stasis
