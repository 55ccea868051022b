// Pages that are not in the host's memory: fetched while the batch before them is written, at most
// two batches held at a time, and files equal to those of pages in memory.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "format/constants.h"
#include "format/pages.h"
#include "format/reader.h"
#include "format/writer.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

// Records what happened to the fetched pages of a state.
struct Fetched {
    uint64_t pages = 0;
    uint64_t held = 0, held_most = 0;     // at a time
    uint64_t waiting = 0, ahead_most = 0; // asked for and not waited for
    uint64_t fail_at = UINT64_MAX;        // the one that cannot be
};

// Nothing is there before it is waited for.
FetchedPages begin(const std::shared_ptr<State> &source, Fetched &fetched,
                   const std::vector<PageName> &names) {
    const auto numbers = std::shared_ptr<std::vector<std::vector<uint16_t>>>(
        new std::vector<std::vector<uint16_t>>, [&fetched](auto *all) {
            fetched.held -= all->size();
            delete all;
        });
    FetchedPages pages;
    for (const PageName &name : names) {
        numbers->emplace_back(page_elements(*source, name.group), uint16_t{0x5A5A});
        pages.numbers.push_back(numbers->back().data());
    }
    fetched.held += names.size();
    fetched.held_most = std::max(fetched.held_most, fetched.held);
    fetched.waiting += names.size();
    fetched.ahead_most = std::max(fetched.ahead_most, fetched.waiting);
    pages.wait = [source, &fetched, numbers, names] {
        for (size_t at = 0; at < names.size(); ++at) {
            const auto [group, index] = names[at];
            if (fetched.pages++ == fetched.fail_at) {
                fail(Status::device, "page %llu of group %zu is lost",
                     static_cast<unsigned long long>(index), group);
            }
            const Page &page = source->pages[group][index];
            const size_t row = size_t{source->page_positions} * source->head_dim_of(group);
            for (size_t i = 0; i < page_elements(*source, group); ++i) {
                const bool used = i % row / source->head_dim_of(group) < page.valid;
                (*numbers)[at][i] = used ? page.data[i] : uint16_t{0xFFFF};
            }
        }
        fetched.waiting -= names.size();
    };
    return pages;
}

// The same state with its pages in another memory; their unused slots may hold anything.
State far_state(State state, Fetched &fetched) {
    auto source = std::make_shared<State>(state);
    for (std::vector<Page> &pages : state.pages) {
        for (Page &page : pages) {
            page.far = page.data != nullptr;
            page.data = nullptr;
        }
    }
    state.storage.clear();
    state.fetch = [source, &fetched](std::span<const PageName> names) {
        return begin(source, fetched, {names.begin(), names.end()});
    };
    return state;
}

uint64_t kept_pages(const State &state) {
    uint64_t count = 0;
    for (const std::vector<Page> &pages : state.pages) {
        count += static_cast<uint64_t>(std::count_if(pages.begin(), pages.end(),
                                                     [](const Page &page) { return page.kept(); }));
    }
    return count;
}

} // namespace

TEST_CASE("save: far pages give the file that pages in memory give, each fetched once") {
    for (const uint64_t position : {0, 1, 32, 90, 150}) {
        const State state = sample_state({.position = position});
        for (const Keep keep : {Keep::full, Keep::none}) {
            for (const Codec codec : {Codec::raw, Codec::zstd}) {
                CAPTURE(position);
                SaveOptions options;
                options.keep = keep;
                options.codec = codec;
                Fetched fetched;
                const State far = far_state(state, fetched);
                CHECK(saved(far, options) == saved(state, options));
                CHECK(fetched.pages == kept_pages(state));
            }
        }
    }
}

TEST_CASE("save: of far pages a commit fetches what the file lacks, and where the logs part") {
    const ScratchFolder folder;
    const Shape shapes[] = {{.position = 90},
                            {.position = 150},
                            {.position = 170, .seed = 2, .common = 140},
                            {.position = 100}};
    // If the file has a part of a page, the page is fetched twice: to find what is shared, and to
    // write the rest. Some pages of the last group had been released.
    const uint64_t fetches[] = {3 + 2, 2 + 1 + 1 + 2, 2 + 1 + 2 + 1, 1 + 3};
    for (size_t i = 0; i < 4; ++i) {
        CAPTURE(i);
        const State state = sample_state(shapes[i]);
        Fetched fetched;
        save(far_state(state, fetched), folder.path("far"), {});
        save(state, folder.path("near"), {});
        CHECK(read_bytes(folder.path("far")) == read_bytes(folder.path("near")));
        CHECK(fetched.pages == fetches[i]);
        check_same(state, load(folder.path("far"), {}));
    }
}

TEST_CASE("save: of far pages one batch is worked on and the next one on its way") {
    const State state =
        sample_state({.position = 2500, .kv_heads = 8, .head_dim = 128, .page_positions = 64});
    uint64_t page_bytes = UINT64_MAX;
    for (size_t group = 0; group < state.groups.size(); ++group) {
        page_bytes = std::min<uint64_t>(page_bytes, page_elements(state, group) * 2);
    }
    for (const Codec codec : {Codec::raw, Codec::zstd}) {
        SaveOptions options;
        options.codec = codec;
        Fetched fetched;
        const State far = far_state(state, fetched);
        const ScratchFolder folder;
        save(far, folder.path("s"), options);
        const uint64_t batch_pages = kBatchBytes / page_bytes + 1;
        CHECK(fetched.pages > 2 * batch_pages);
        CHECK(fetched.held_most <= 2 * batch_pages);
        CHECK(fetched.ahead_most > batch_pages); // the next one was asked for before
        CHECK(fetched.held == 0);
        check_same(state, load(folder.path("s"), {}));
    }
}

TEST_CASE("save: a far page that cannot be fetched leaves the file as it was") {
    const ScratchFolder folder;
    const State shorter = sample_state({.position = 90}), longer = sample_state({.position = 150});
    for (const State *state : {&shorter, &longer}) {
        const bool before = std::filesystem::exists(folder.path("s"));
        const Bytes bytes = before ? read_bytes(folder.path("s")) : Bytes();
        for (uint64_t n = 0; n < 4; ++n) {
            Fetched fetched;
            fetched.fail_at = n;
            try {
                save(far_state(*state, fetched), folder.path("s"), {});
                FAIL("saved without a page");
            } catch (const Error &error) {
                CHECK(error.status() == Status::device);
            }
            CHECK(folder.names().size() == (before ? 1 : 0));
            CHECK((!before || read_bytes(folder.path("s")) == bytes));
        }
        save(*state, folder.path("s"), {});
    }
}

TEST_CASE("save: what a save says of the file holds no way to pages") {
    const ScratchFolder folder;
    Fetched fetched;
    const auto contents =
        save(far_state(sample_state({}), fetched), folder.path("s"), SaveOptions());
    CHECK(contents->state.fetch == nullptr);
    CHECK(kept_pages(contents->state) == 0);
}
