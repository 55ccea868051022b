// Messages hashed side by side have the digests that libcrypto gives each of them.
#include "format/state/sha256_lanes.h"

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

namespace stasis {

namespace {

// Messages of the given lengths, each in memory of its own that ends where it does.
struct Messages {
    std::vector<std::string> heads;
    std::vector<std::vector<uint8_t>> bodies;
    std::vector<HashedMessage> views;

    void add(size_t head, size_t body, std::mt19937 &random) {
        std::string &letters = heads.emplace_back(head, 0);
        for (char &letter : letters) {
            letter = static_cast<char>(random());
        }
        std::vector<uint8_t> &bytes = bodies.emplace_back(body);
        for (uint8_t &byte : bytes) {
            byte = static_cast<uint8_t>(random());
        }
    }
    void check() {
        views.clear();
        for (size_t i = 0; i < heads.size(); ++i) {
            views.push_back({heads[i], bodies[i]});
        }
        std::vector<Digest> digests(views.size());
        std::vector<size_t> hashed(views.size(), 0), told(views.size(), 0);
        digest_messages(views, digests.data(), [&](size_t i, size_t bytes) {
            REQUIRE(bytes >= hashed[i]);
            hashed[i] = bytes;
            ++told[i];
        });
        for (size_t i = 0; i < views.size(); ++i) {
            INFO("message " << i << " of " << views.size() << ": head " << heads[i].size()
                            << ", body " << bodies[i].size());
            const Digest alone = Sha256()
                                     .bytes(heads[i].data(), heads[i].size())
                                     .bytes(bodies[i].data(), bodies[i].size())
                                     .finish();
            REQUIRE(digests[i] == alone);
            REQUIRE(hashed[i] == bodies[i].size());
            REQUIRE(told[i] != 0);
        }
    }
};

} // namespace

TEST_CASE("digest_messages: lengths around every edge of a block, one to 35 at a time") {
    std::mt19937 random(1);
    for (const size_t head : {0, 1, 35, 54, 55, 56, 63}) {
        for (size_t body = 0; body < 200; body += 7) {
            Messages messages;
            for (size_t i = 0; i < (body / 7 + head) % 35 + 1; ++i) { // equal ones run in lockstep
                messages.add(head, body + i % 2, random);
            }
            messages.check();
        }
    }
}

TEST_CASE("digest_messages: messages of different lengths take turns") {
    std::mt19937 random(2);
    for (int round = 0; round < 40; ++round) {
        Messages messages;
        const size_t count = 1 + random() % 40;
        for (size_t i = 0; i < count; ++i) {
            const size_t most = random() % 3 == 0 ? 5000 : 130;
            messages.add(random() % 64, random() % most, random);
        }
        messages.check();
    }
}

TEST_CASE("messages_at_a_time: no thread idles, and no more than are hashed together") {
    CHECK(messages_at_a_time(64, 2) == kSha256Lanes);
    CHECK(messages_at_a_time(64, 64) == kSha256Interleaved);
    CHECK(messages_at_a_time(50, 8) == 7);
    CHECK(messages_at_a_time(1, 1) == kSha256Interleaved);
}

TEST_CASE("page_digests: whole and cut pages, in any number, as each alone") {
    std::mt19937 random(3);
    constexpr size_t kRows = 4, kPositions = 8, kHeadDim = 6;
    std::vector<std::vector<uint16_t>> data;
    std::vector<DigestedPage> pages;
    for (size_t i = 0; i < 45; ++i) {
        std::vector<uint16_t> &numbers = data.emplace_back(kRows * kPositions * kHeadDim);
        for (uint16_t &number : numbers) {
            number = static_cast<uint16_t>(random());
        }
    }
    for (size_t i = 0; i < data.size(); ++i) {
        const size_t valid = i % 4 == 1 ? i % kPositions : kPositions;
        pages.push_back({static_cast<uint32_t>(i), i * i, data[i].data(), kRows, kPositions, valid,
                         kHeadDim});
    }
    std::vector<Digest> digests(pages.size());
    page_digests(pages, digests.data());
    for (size_t i = 0; i < pages.size(); ++i) {
        const DigestedPage &page = pages[i];
        Sha256 hash; // FORMAT.md, "Digests"
        hash.text("stasis page").u32(page.group).u64(page.index);
        hash.u32(static_cast<uint32_t>(page.valid));
        for (size_t row = 0; row < kRows; ++row) {
            hash.bytes(page.data + row * kPositions * kHeadDim,
                       page.valid * kHeadDim * sizeof(uint16_t));
        }
        INFO("page " << i);
        CHECK(digests[i] == hash.finish());
        CHECK(digests[i] == page_digest(page));
    }
}

} // namespace stasis
