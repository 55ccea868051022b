// Small valid snapshots that the fuzzer begins with, and states that continue them.
#pragma once

#include <fcntl.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "disk.h"
#include "format/pages.h"
#include "format/state/token_set.h"
#include "format/writer.h"

namespace stasis::format {

// Which of the states: how far, and whether its last page is another one's.
struct Course {
    uint64_t position = 0;
    bool forked = false; // other tokens and numbers from position 32 on
    bool released = false;
    bool evicted = false;  // the second page, and a part of the first
    bool profiled = false; // some of it under a device profile
    bool hybrid = false;   // a third layer is recurrent, with a checkpoint at 32
    bool uneven = false;   // the second layer has other sizes, and one more shares keys and values
    bool constrained = false; // settings with constraints and a set of tokens
    bool kept = false;        // a host's data, one value of which is another one where forked
};

inline void add_small_pages(State &state, const Course &course) {
    for (uint32_t group = 0; group < 2; ++group) {
        std::vector<Page> &pages = state.pages.emplace_back();
        for (uint64_t index = 0; index < page_count(course.position, 32); ++index) {
            const std::shared_ptr<uint16_t> data = allocate_page(page_elements(state, group));
            std::fill_n(data.get(), page_elements(state, group), uint16_t{0});
            const uint32_t valid = page_valid(course.position, 32, index);
            for (uint32_t i = 0; i < page_elements(state, group); ++i) {
                const uint64_t slot = i / state.head_dim_of(group) % 32;
                const uint64_t at =
                    (index * 32 + slot) * state.head_dim_of(group) + i % state.head_dim_of(group);
                const bool other = course.forked && index >= 1;
                if (slot < valid) { // few enough different ones that a codec makes them smaller
                    data.get()[i] = static_cast<uint16_t>(
                        0x3F80 + (at * at * 7919 + i / 512 + group + other) % 1021 % 60);
                }
            }
            const Digest digest = page_digest({group, index, data.get(), page_rows(state, group),
                                               32, valid, state.head_dim_of(group)});
            const bool needed = page_needed(state.groups[group].window, course.position, 32, index);
            const bool gone = course.evicted && index == 1;
            const bool kept = (needed || !course.released) && !gone;
            pages.push_back({valid, digest, kept ? data.get() : nullptr});
            state.storage.push_back(data);
        }
    }
}

inline void add_small_states(State &state, const Course &course) {
    state.contract.recurrent = 1;
    state.recurrent = {{2}, 1, 2, 4, 8, 3};
    for (const uint64_t position : {uint64_t{32}, course.position}) {
        if (position == 0 || position > course.position ||
            (!state.states.empty() && position == 32)) {
            continue;
        }
        const std::shared_ptr<float[]> data(new float[state.recurrent.numbers()]);
        for (uint64_t i = 0; i < state.recurrent.numbers(); ++i) { // a codec makes them smaller
            data[i] = static_cast<float>((i * i + position + course.forked) % 31) - 15;
        }
        const Digest digest =
            recurrent_state_digest(position, data.get(), state.recurrent.numbers());
        state.states.push_back({position, digest, data.get()});
        state.storage.push_back(data);
    }
}

// Settings under constraints, and some with sets of tokens.
inline void add_constraints(State &state) {
    const auto constraint = std::make_shared<const Constraint>(Constraint{3, "[a-c]{1,9}"});
    state.samplings.push_back(state.samplings[1]);
    state.samplings[0].v3.constraint.value = constraint;
    state.samplings[1].v3.constraint.value = std::make_shared<const Constraint>(Constraint{2, ""});
    state.samplings[2].v3.constraint.value = constraint;
    for (const TokenRuns &runs : {TokenRuns{1, 4}, TokenRuns{0, 1, 3, 5}, TokenRuns{1, 4}}) {
        state.samplings.push_back(state.samplings[2]);
        state.samplings.back().seed = state.samplings.size() / 5; // the last two have another
        state.samplings.back().v3.allowed.value =
            std::make_shared<const std::string>(encode_tokens(runs, 5));
    }
    state.sampling = 4;
}

inline State small_state(const Course &course) {
    State state;
    state.model.architecture = "llama";
    state.model.config = {{"layers", "2"}, {"rope_0", "base 10000"}};
    state.layers = 2;
    state.kv_heads = 1;
    state.head_dim = 16;
    state.hidden_size = 3;
    state.vocabulary = 5;
    state.page_positions = 32;
    state.groups = {{0, {0}}, {8, {1}}};
    state.samplings.resize(2);
    state.samplings[1].bias = {{1, 2.0F}};
    if (course.constrained) {
        add_constraints(state);
    }
    state.capacity = 1000;
    state.pending_system = course.forked ? "another" : "system";
    for (uint64_t i = 0; i < course.position; ++i) {
        TokenEntry entry;
        entry.token = static_cast<uint32_t>((i * i + (course.forked && i >= 32 ? 1 : 0)) % 5);
        entry.source = i % 7 == 3 ? TokenSource::sampled : TokenSource::text;
        entry.sampling = i % 14 == 3 ? 1 : 0;
        state.log.push_back(entry);
    }
    if (course.position > 0) {
        state.token_texts = {{0, "a"}, {1, "bc"}};
        state.hidden = {1, 2, static_cast<uint16_t>(course.position)};
        state.logits = Sha256().bytes(std::vector<float>(5).data(), 5 * sizeof(float)).finish();
        state.top = {{0, 0.0F}, {1, 0.0F}};
    }
    if (course.evicted) { // position 66 and on
        state.evictions = {{65, {{3, 64}}, {5, 6, 7}}, {66, {{0, 1}, {64, 65}}, {8, 9, 10}}};
    }
    if (course.profiled) { // position 66 and on
        state.profile = {"lib 1", {{2, 60, 128}, {65, 1, 128}}, 1};
    }
    if (course.uneven) {
        state.groups[1].kv_heads = 3;
        state.groups[1].head_dim = 8;
    }
    if (course.kept) {
        for (const auto &[name, value] : {std::pair("a", "0123456789"), {"b", ""}, {"c", "xyz"}}) {
            const std::string_view bytes = course.forked && *value == 'x' ? "other" : value;
            const auto *from = reinterpret_cast<const uint8_t *>(bytes.data());
            state.host_data = with_value(state.host_data, name, {{from, bytes.size()}});
        }
    }
    add_small_pages(state, course);
    if (course.hybrid) {
        ++state.layers;
        add_small_states(state, course);
    }
    if (course.uneven) {
        state.sharing = {state.layers++};
    }
    state.model.attention.resize(state.layers);
    state.model.mlp.resize(state.layers);
    state.digest = state_digest(state);
    return state;
}

constexpr char kFuzzPath[] = "/disk/s"; // on the disk in memory

inline void put_file(Disk &disk, const Bytes &bytes) {
    const FileOperations &files = disk.files();
    const File file(files, files.open(kFuzzPath, O_CREAT | O_RDWR, 0600), kFuzzPath);
    file.write(bytes.data(), bytes.size(), 0);
}

// A file of these states, one commit for each.
inline Bytes small_file(const std::vector<Course> &courses, const SaveOptions &options) {
    Disk disk;
    for (const Course &course : courses) {
        save(small_state(course), kFuzzPath, options, disk.files());
    }
    return disk.contents("s");
}

} // namespace stasis::format
