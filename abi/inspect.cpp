// Snapshots without a model: description, elements and comparison; see stasis_snapshot.h. Must not
// know sessions.
#include <cstring>
#include <optional>

#include "abi/data.h"
#include "abi/handles.h"
#include "abi/message.h"
#include "abi/options.h"
#include "abi/stream.h"
#include "abi/tokens.h"
#include "abi/turns.h"
#include "format/compare.h"
#include "format/constants.h"
#include "format/dead.h"
#include "format/element_json.h"
#include "format/pages.h"
#include "format/reader.h"

namespace stasis::abi {

namespace {

// Runs the body with the opened file while its busy flag is set.
template <typename Body>
stasis_status with(const stasis_snapshot *snapshot, stasis_error *error,
                   const Body &body) noexcept {
    return enter(error, [&] {
        require(snapshot, "snapshot");
        const Busy busy(snapshot->busy, "snapshot");
        body(*snapshot->snapshot);
    });
}

static_assert(STASIS_NOWHERE == format::kNowhere);

void write_difference(const format::Difference &from, stasis_difference *difference) {
    stasis_difference to{};
    to.equal = from.equal ? 1 : 0;
    to.element = from.element;
    to.layer = from.layer;
    to.head = from.head;
    to.position = from.position;
    write_message(from.message, to.message, sizeof to.message);
    write_struct(to, difference, "difference");
}

// Fills in the codec and the sizes of the keys and values that the file keeps. A run is compressed
// if it takes fewer bytes than its numbers.
void sum_up_runs(const format::Snapshot &snapshot, stasis_snapshot_info &info) {
    const State &state = snapshot.state();
    info.codec = STASIS_CODEC_RAW;
    for (size_t group = 0; group < state.pages.size(); ++group) {
        for (uint64_t index = 0; index < state.pages[group].size(); ++index) {
            for (const format::Run &run : snapshot.page(group, index).runs) {
                info.kv_bytes += format::page_stored_bytes(state, group, run.used);
                info.kv_stored_bytes += run.stored_bytes;
                if (run.stored_bytes < format::page_stored_bytes(state, group, run.slots)) {
                    info.codec = STASIS_CODEC_ZSTD;
                }
            }
        }
    }
}

} // namespace

} // namespace stasis::abi

using namespace stasis::abi;
using stasis::format::Snapshot;

stasis_status stasis_snapshot_open(const char *path, stasis_snapshot **snapshot,
                                   stasis_error *error) {
    return enter(error, [&] {
        require_path(path, "path");
        require(snapshot, "snapshot");
        auto handle = std::make_unique<stasis_snapshot>();
        handle->snapshot = Snapshot::open(path);
        *snapshot = handle.release();
    });
}

stasis_status stasis_snapshot_open_source(const stasis_source *source, stasis_snapshot **snapshot,
                                          stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require(snapshot, "snapshot");
        HostSource host(caller, source);
        auto handle = std::make_unique<stasis_snapshot>();
        handle->snapshot = Snapshot::open_source(host.source());
        *snapshot = handle.release();
    });
}

void stasis_snapshot_close(stasis_snapshot *snapshot) {
    delete snapshot;
}

stasis_status stasis_snapshot_get_info(const stasis_snapshot *snapshot, stasis_snapshot_info *info,
                                       stasis_error *error) {
    return with(snapshot, error, [&](const Snapshot &own) {
        require(info, "info");
        const stasis::State &state = own.state();
        stasis_snapshot_info to{};
        to.format = own.format();
        to.contract[0] = state.contract.core;
        to.contract[1] = state.contract.kv;
        to.contract[2] = state.contract.sampling;
        to.page_positions = state.page_positions;
        to.position = state.log.size();
        to.file_bytes = own.file_bytes();
        to.digest = to_abi(state.digest);
        to.root = to_abi(own.root().digest);
        to.model = to_abi(state.model.model);
        to.flags = own.slot_damaged() ? STASIS_SNAPSHOT_DAMAGED_ROOT : 0;
        to.keep = own.keep() == stasis::format::Keep::none ? STASIS_KEEP_NONE : STASIS_KEEP_FULL;
        to.commits = own.root().sequence;
        to.positions_foreign = state.profile.foreign;

        static_assert(sizeof to.profile == stasis::format::kProfileIdMax + 1 &&
                      sizeof to.profile == sizeof(stasis_model_info::profile));
        write_field(state.profile.id, to.profile, sizeof to.profile);
        to.dead_bytes = stasis::format::dead_bytes(own);
        to.older = own.older() ? 1 : 0;
        sum_up_runs(own, to);
        write_struct(to, info, "info");
    });
}

stasis_status stasis_snapshot_element(const stasis_snapshot *snapshot, uint32_t element, char *json,
                                      size_t capacity, size_t *length, stasis_error *error) {
    return with(snapshot, error, [&](const Snapshot &own) {
        // Builds the element twice: first without memory, for its length, then into the caller's
        // buffer.
        require(length, "length");
        const size_t needed = stasis::format::element_json(own, element, {});
        require_room(needed, capacity, length, "the buffer");
        require_array(json, needed, "the buffer");
        try { // reads the file again; after a failure no part of the text stays
            stasis::format::element_json(own, element, {json, needed});
        } catch (...) {
            std::memset(json, 0, needed);
            *length = 0;
            throw;
        }
    });
}

stasis_status stasis_snapshot_tokens(const stasis_snapshot *snapshot, uint64_t begin,
                                     stasis_token *tokens, uint8_t *sources, size_t capacity,
                                     size_t *count, stasis_error *error) {
    return with(snapshot, error, [&](const Snapshot &own) {
        write_tokens(own.state().log.size(), begin, tokens, sources, capacity, count,
                     [&](uint64_t position) { return own.state().log[position]; });
    });
}

stasis_status stasis_snapshot_turns(const stasis_snapshot *snapshot, uint64_t begin,
                                    stasis_turn *turns, size_t stride, size_t capacity,
                                    size_t *count, stasis_error *error) {
    return with(snapshot, error, [&](const Snapshot &own) {
        const std::vector<stasis::TokenEntry> &log = own.state().log;
        write_turns(log.size(), begin, turns, stride, capacity, count,
                    [&](uint64_t position) { return log[position]; });
    });
}

stasis_status stasis_snapshot_get_data(const stasis_snapshot *snapshot, const char *name,
                                       void *bytes, size_t capacity, size_t *length,
                                       stasis_error *error) {
    return with(snapshot, error, [&](const Snapshot &own) {
        copy_value(own.state().host_data, name, bytes, capacity, length);
    });
}

stasis_status stasis_snapshot_list_data(const stasis_snapshot *snapshot, stasis_data_entry *entries,
                                        size_t stride, size_t capacity, size_t *count,
                                        stasis_error *error) {
    return with(snapshot, error, [&](const Snapshot &own) {
        list_names(own.state().host_data, entries, stride, capacity, count);
    });
}

stasis_status stasis_snapshot_compare(const stasis_snapshot *a, const stasis_snapshot *b,
                                      stasis_difference *difference, stasis_error *error) {
    return enter(error, [&] {
        require(a, "a");
        require(b, "b");
        require_struct(difference, "difference");
        // A comparison of a snapshot with itself must not be busy with itself.
        const Busy first(a->busy, "snapshot");
        std::optional<Busy> second;
        if (a != b) {
            second.emplace(b->busy, "snapshot");
        }
        write_difference(stasis::format::compare(*a->snapshot, *b->snapshot, stasis::Watch()),
                         difference);
    });
}
