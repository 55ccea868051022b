// Copies pages in batches; see page_staging.h.
#include "runtime/kv/page_staging.h"

#include <vector>

#include "runtime/host/first_error.h"

namespace stasis {

namespace {

constexpr size_t kElementBytes = sizeof(uint16_t);

} // namespace

PageStaging::~PageStaging() {
    if (stage_ != nullptr) {
        memory_.give_back_stage(memory_.user, stage_);
    }
}

void PageStaging::fit(size_t size_bytes) {
    if (memory_.on_host) {
        return;
    }
    finish(); // also before the stage is given back: a failed copy must be reported
    if (stage_ != nullptr && stage_->size_bytes < size_bytes) {
        memory_.give_back_stage(memory_.user, std::exchange(stage_, nullptr));
    }
    if (stage_ == nullptr) {
        stage_ = memory_.take_stage(memory_.user, size_bytes);
    }
    used_bytes_ = 0;
}

size_t PageStaging::take_room(size_t size_bytes) {
    return std::exchange(used_bytes_, used_bytes_ + size_bytes);
}

const uint16_t *PageStaging::read(const PageRef &page, size_t begin, size_t count) {
    if (memory_.on_host) {
        return pool_.numbers(page) + begin;
    }
    const size_t at_bytes = take_room(count * kElementBytes);
    memory_.read(memory_.user, stage_, at_bytes, page.address(), begin * kElementBytes,
                 count * kElementBytes);
    return reinterpret_cast<const uint16_t *>(stage_->data + at_bytes);
}

const uint16_t *PageStaging::read(const PageRef &page) {
    return read(page, 0, pool_.shape_of(page).elements());
}

const uint16_t *PageStaging::read_now(const PageRef &page, size_t begin, size_t count) {
    fit(count * kElementBytes);
    const uint16_t *numbers = read(page, begin, count);
    finish();
    return numbers;
}

const uint16_t *PageStaging::read_now(const PageRef &page) {
    return read_now(page, 0, pool_.shape_of(page).elements());
}

uint16_t *PageStaging::place(const PageRef &page) {
    if (memory_.on_host) {
        return reinterpret_cast<uint16_t *>(page.address());
    }
    return reinterpret_cast<uint16_t *>(stage_->data + take_room(pool_.shape_of(page).bytes()));
}

void PageStaging::write(const PageRef &page, const uint16_t *numbers) {
    if (!memory_.on_host) {
        const auto *from = reinterpret_cast<const uint8_t *>(numbers);
        memory_.write(memory_.user, stage_, static_cast<size_t>(from - stage_->data),
                      page.address(), pool_.shape_of(page).bytes());
    }
}

void PageStaging::finish() {
    if (stage_ != nullptr) {
        memory_.finish(memory_.user, stage_);
    }
}

namespace {

// Pages [begin, end) of those asked for, whose copies are enqueued.
struct Batch {
    PageStaging staging;
    size_t begin = 0, end = 0;
    std::vector<const uint16_t *> numbers = {};

    explicit Batch(const PagePool &pool) : staging(pool) {}

    void start(const PagePool &pool, std::span<const PageRef *const> pages, size_t from) {
        size_t bytes = 0;
        begin = end = from;
        while (end < pages.size() && bytes < pool.memory().batch_bytes) {
            bytes += pool.shape_of(*pages[end++]).bytes();
        }
        numbers.clear();
        if (begin == end) {
            return;
        }
        staging.fit(bytes);
        for (size_t i = begin; i < end; ++i) {
            numbers.push_back(staging.read(*pages[i]));
        }
    }
};

} // namespace

void for_each_page(const PagePool &pool, Threads &threads, std::span<const PageRef *const> pages,
                   const std::function<void(size_t i, const uint16_t *numbers)> &work) {
    Batch batches[2] = {Batch(pool), Batch(pool)};
    batches[0].start(pool, pages, 0);
    // Two batches alternate: one is copied while the other is worked on.
    for (size_t turn = 0; batches[turn % 2].begin < pages.size(); ++turn) {
        Batch &batch = batches[turn % 2];
        batches[(turn + 1) % 2].start(pool, pages, batch.end);
        batch.staging.finish();
        FirstError failed;
        threads.run(batch.end - batch.begin, 1, [&](size_t from, size_t to) {
            failed.guard([&] {
                for (size_t i = from; i < to; ++i) {
                    work(batch.begin + i, batch.numbers[i]);
                }
            });
        });
        failed.rethrow();
    }
}

} // namespace stasis
