// The Big 8 + 4 as JSON, and the spans of a log.
#include <doctest/doctest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "format/element_json.h"
#include "format/spans.h"
#include "format/texts.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;
using nlohmann::json;

namespace {

const Shape kElementShape{.position = 150};

json element(const Bytes &bytes, uint32_t number) {
    return json::parse(element_text(*Snapshot::open("memory", memory_files(bytes)), number));
}

json element(uint32_t number) {
    static const Bytes bytes = saved(sample_state(kElementShape));
    return element(bytes, number);
}

} // namespace

TEST_CASE("element_json: each of the twelve names itself, others are refused") {
    for (uint32_t number = 1; number <= 12; ++number) {
        CHECK(element(number)["element"] == number);
        CHECK(element(number)["name"] == element_name(static_cast<Element>(number)));
    }
    CHECK_THROWS_AS(element(0), Error);
    CHECK_THROWS_AS(element(13), Error);
}

TEST_CASE("element_json: elements of an empty session") {
    const Bytes bytes = saved(sample_state({.position = 0}));
    for (uint32_t number = 1; number <= 12; ++number) {
        CHECK(element(bytes, number)["element"] == number);
    }
    CHECK(element(bytes, 4)["tokens"] == 0);
    CHECK(element(bytes, 12)["spans"].empty());
}

TEST_CASE("element_json: 1: pages stored and released, by group") {
    const json cache = element(1);
    const json &local = cache["groups"][1];
    CHECK(local["window"] == 40);
    CHECK(local["layers"] == json::array({1}));
    CHECK(local["pages"] == 5);
    CHECK(local["released"] == 3);
    CHECK(local["stored"] == 2);
    CHECK(local["first_position"] == 96);
    CHECK(local["bytes"] == (32 + 22) * 1 * 2 * 2 * 4 * 2);
    CHECK(cache["groups"][0]["first_position"] == 0);
    CHECK(cache["groups"][0]["bytes"] == 150 * 2 * 2 * 2 * 4 * 2);
    CHECK(cache["bytes"] == 54 * 32 + 150 * 64);
}

TEST_CASE("element_json: 2, 3, 5, 6, 7, 8, 10: identity and settings") {
    const State state = sample_state(kElementShape);
    CHECK(element(2)["digest"] == to_hex(state.model.embeddings));
    CHECK(element(2)["config"] == json{{"embedding_scale", "1"}});
    CHECK(element(3)["position"] == 150);
    CHECK(element(3)["rope"] == json{{"rope_0", "base 10000"}});
    CHECK(element(3)["layer_windows"] == json::array({0, 40, 0}));
    CHECK(element(5)["rule"] == "causal");
    CHECK(element(5)["layer_windows"] == json::array({0, 40, 0}));
    CHECK(element(5)["evicted"] == json::array());
    CHECK(element(6)["config"].size() == state.model.config.size());
    CHECK(element(6)["capacity"] == 1150);
    CHECK(element(6)["tracking"] == 2);
    CHECK(element(6)["sampling"] == 1);
    CHECK(element(6)["samplings"][1]["seed"] == 0xFEDCBA9876543210);
    CHECK(element(6)["samplings"][1]["temperature"].get<float>() == 0.7F);
    CHECK(element(6)["samplings"][1]["bias"][0]["bias"].is_null());
    CHECK(element(6)["samplings"][1]["bias"][2]["bias"] == 2.5);
    CHECK(element(7)["digest"] == to_hex(state.model.norms));
    CHECK(element(7)["config"] == json{{"norm_eps", "1e-06"}});
    CHECK(element(8)["attention"][2] == to_hex(state.model.attention[2]));
    CHECK(element(8)["mlp"][1] == to_hex(state.model.mlp[1]));
    CHECK(element(8)["head"] == to_hex(state.model.head));
    CHECK(element(10)["digest"] == to_hex(state.model.tokenizer));
    CHECK(element(10)["type"] == "sentencepiece-bpe");
    CHECK(element(10)["rules"]["bos"] == "2");
    CHECK(element(10)["chat_template"] == "gemma");
}

TEST_CASE("element_json: 4: tokens, their sources and text, broken characters replaced") {
    State state = sample_state({.position = 3});
    state.log[0].token = 0;
    state.log[1].token = 3;
    state.log[2].token = 4;                            // its text is not kept
    state.token_texts = {{0, "\xF0\x9F"}, {3, " t3"}}; // half a character
    seal(state);
    const json buffer = element(saved(state), 4);
    CHECK(buffer["tokens"] == 3);
    CHECK(buffer["text"] == "\xEF\xBF\xBD t3");
    CHECK(buffer["sources"] == json{{"prompt", 3}, {"template", 0}, {"text", 0}, {"sampled", 0}});
    json sources = element(4)["sources"];
    uint64_t sum = 0;
    for (const auto &count : sources) {
        sum += count.get<uint64_t>();
    }
    CHECK(sum == 150);
    CHECK(sources["sampled"] > 0);
}

TEST_CASE("element_json: 9: the best logits with their texts, infinities as null") {
    State state = sample_state(kElementShape);
    state.top.back().second = -std::numeric_limits<float>::infinity();
    const json logits = element(saved(state), 9);
    CHECK(logits["hidden"] == 10);
    CHECK(logits["digest"] == to_hex(state.logits));
    CHECK(logits["row"] == false);
    REQUIRE(logits["top"].size() == state.top.size());
    CHECK(logits["top"][0]["token"] == state.top[0].first);
    CHECK(logits["top"][0]["logit"].get<float>() == state.top[0].second);
    CHECK(logits["top"][state.top.size() - 1]["logit"].is_null());
    const std::vector<float> row = sample_row(kElementShape);
    CHECK(element(saved(sample_state(kElementShape), {.logits_row = row}), 9)["row"] == true);
}

TEST_CASE("element_json: 11: versions, geometry and sections") {
    const json format = element(11);
    CHECK(format["format"] == 1);
    CHECK(format["contract"] == json{{"core", 4}, {"kv", 5}, {"sampling", 6}});
    CHECK(format["page_positions"] == 32);
    CHECK(format["dtype"] == "bf16");
    CHECK(format["commit"] == 1);
    // Identity, 5 + 2 pages, nodes, hidden state, manifest: back to back.
    REQUIRE(format["sections"].size() == 1 + 5 + 2 + 3);
    CHECK(format["sections"][0]["name"] == "identity");
    CHECK(format["sections"][0]["offset"] == 12288);
    CHECK(format["sections"][1]["name"] == "run");
    CHECK(format["sections"][1]["stored"] == 32 * 2 * 2 * 2 * 4 * 2);
    CHECK(format["sections"][8]["name"] == "nodes");
    CHECK(format["sections"][9]["name"] == "hidden");
    CHECK(format["sections"][10]["name"] == "manifest");
    CHECK(format["sections"][10]["codec"] == "raw");
    CHECK(format["sections"][10]["xxh3"].get<std::string>().size() == 32);
}

TEST_CASE(
    "element_json: 12: spans cover the log without gap, and break at turns, sources and settings") {
    const State state = sample_state(kElementShape);
    const json meta = element(12);
    CHECK(meta["pending_system"] == "Answer briefly.");
    uint64_t next = 0;
    for (const json &span : meta["spans"]) {
        CHECK(span["begin"] == next);
        CHECK(span["tokens"] == span["end"].get<uint64_t>() - next);
        next = span["end"];
        CHECK(span["sampling"].is_null() == (span["source"] != "sampled"));
    }
    CHECK(next == 150);
    const json &second = meta["spans"][1]; // 0-4 bare, 5-9 text of the user, 10 begins a turn
    CHECK(second["begin"] == 5);
    CHECK(second["end"] == 10);
    CHECK(second["source"] == "text");
    CHECK(second["role"] == "user");
    CHECK(second["turn_start"] == false);
    std::string text;
    for (uint64_t i = 5; i < 10; ++i) {
        text += token_text(state.token_texts, state.log[i].token);
    }
    CHECK(second["text"] == text);
    CHECK(meta["spans"][2]["turn_start"] == true);
    CHECK(meta["spans"][2]["source"] == "template");
    CHECK(meta["spans"][3]["source"] == "sampled");
    CHECK(meta["spans"][3]["sampling"] == 0);

    std::vector<TokenEntry> log(3);
    CHECK(span_from(log, 0).end == 3);
    log[1].turn = TokenEntry::kTurnStart; // two turns of the same kind in a row
    CHECK(span_from(log, 0).end == 1);
    CHECK(span_from(log, 1).end == 3);
    log[2].source = TokenSource::text;
    CHECK(span_from(log, 1).end == 2);
    CHECK(span_from(log, 2).end == 3);
}
