// Edits of snapshots as a fuzzer's input describes them, with the checksums and digests above each
// made right again, so that it reaches the checks behind them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "codec_runs.h"
#include "forgery.h"
#include "format/pages.h"
#include "format/recurrent.h"
#include "format/state/error.h"

namespace stasis::format {

// What to change, and how: seven bytes of the input.
struct Edit {
    uint8_t what, which, index, at_low, at_high, how, value;
    size_t at() const { return at_low | size_t{at_high} << 8; }
};
static_assert(sizeof(Edit) == 7);

// The numbers that lie best: at the edges of types, sizes and of this file.
inline std::vector<uint64_t> telling_numbers(const Bytes &bytes, const Snapshot &snapshot) {
    std::vector<uint64_t> numbers = {0,    1,     2,       3,       7,        8,         16,  31,
                                     32,   33,    63,      64,      65,       255,       256, 257,
                                     4096, 12288, 1 << 15, 1 << 16, 1U << 31, UINT32_MAX};
    numbers.insert(numbers.end(), {1ULL << 40, 1ULL << 63, UINT64_MAX, UINT64_MAX - 63});
    numbers.insert(numbers.end(), {bytes.size(), bytes.size() - 64, snapshot.file_bytes()});
    for (const Section &section : snapshot.sections()) {
        numbers.push_back(section.offset);
        numbers.push_back(section.frame.stored_bytes);
    }
    return numbers;
}

inline void change(Bytes &data, const Edit &edit, const std::vector<uint64_t> &numbers) {
    if (data.empty()) {
        return;
    }
    const size_t at = edit.at() % data.size();
    const size_t count = std::min<size_t>(edit.value, data.size() - at);
    const uint64_t number = numbers[edit.value % numbers.size()];
    const auto from = data.begin() + static_cast<ptrdiff_t>(at);
    const auto put = [&](size_t width) {
        const size_t place = at / width * width;
        std::memcpy(data.data() + place, &number, std::min(width, data.size() - place));
    };
    switch (edit.how % 8) {
    case 0:
        data[at] = edit.value;
        break;
    case 1:
        data[at] ^= edit.value;
        break;
    case 2:
        data[at] = static_cast<uint8_t>(data[at] + edit.value);
        break;
    case 3:
        put(4);
        break;
    case 4:
        put(8);
        break;
    case 5:
        data.erase(from, from + static_cast<ptrdiff_t>(count));
        break;
    case 6:
        data.insert(from, edit.value, 0);
        break;
    default: { // what stands there once more
        const Bytes copy(from, from + static_cast<ptrdiff_t>(count));
        data.insert(data.begin() + static_cast<ptrdiff_t>(at), copy.begin(), copy.end());
    }
    }
}

// Bytes [begin, begin + size) changed, their number kept.
inline void change_in_place(Bytes &bytes, uint64_t begin, uint64_t size, const Edit &edit,
                            const std::vector<uint64_t> &numbers) {
    const auto from = bytes.begin() + static_cast<ptrdiff_t>(begin);
    Bytes part(from, from + static_cast<ptrdiff_t>(size));
    change(part, edit, numbers);
    part.resize(size);
    std::copy(part.begin(), part.end(), from);
}

// The digest in a message behind these words; false if they are not there.
inline bool digest_in(const std::string &message, const std::string &words, Digest &digest) {
    const size_t at = message.find(words);
    if (at == std::string::npos || message.size() < at + words.size() + 64) {
        return false;
    }
    for (size_t i = 0; i < 32; ++i) {
        const std::string pair = message.substr(at + words.size() + 2 * i, 2);
        digest.bytes[i] = static_cast<uint8_t>(std::stoul(pair, nullptr, 16));
    }
    return true;
}

// Numbers of a run, its checksum and the digest of its page.
inline Bytes edited_run(Bytes bytes, const Snapshot &snapshot, const Edit &edit,
                        const std::vector<uint64_t> &numbers) {
    const size_t group = edit.which % 2;
    const uint64_t index = edit.index;
    if (index >= snapshot.state().pages[group].size() || !snapshot.stored(group, index)) {
        return bytes;
    }
    const std::vector<Run> &runs = snapshot.page(group, index).runs;
    const Run &run = runs[edit.which / 2 % runs.size()];
    const uint64_t begin = run.offset + kFrameBytes;
    change_in_place(bytes, begin, run.stored_bytes, edit, numbers);
    const RunShape shape = run_shape(snapshot.state(), group, run.slots);
    FrameBytes frame_bytes;
    std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(run.offset), kFrameBytes,
                frame_bytes.begin());
    Frame frame = decode_frame(frame_bytes, run.offset);
    Coded stored(bytes.begin() + static_cast<ptrdiff_t>(begin),
                 bytes.begin() + static_cast<ptrdiff_t>(begin + run.stored_bytes));
    if (frame.codec == Codec::zstd) {
        FrameCoder coder;
        mend_checksums(shape, stored);
        std::copy(stored.begin(), stored.end(), bytes.begin() + static_cast<ptrdiff_t>(begin));
        const Numbers decoded = decode_run(coder, shape, stored); // Error: as a reader says
        frame.checksum = checksum(decoded.data(), shape.bytes());
    } else {
        frame.checksum = checksum(stored.data(), stored.size());
    }
    frame_bytes = encode_frame(frame);
    std::copy(frame_bytes.begin(), frame_bytes.end(),
              bytes.begin() + static_cast<ptrdiff_t>(run.offset));
    const auto page = allocate_page(page_elements(snapshot.state(), group));
    const PageInto into{group, index, page.get()};
    Digest digest;
    try {
        Snapshot::open("memory", memory_files(bytes))->read({&into, 1});
    } catch (const Error &error) {
        if (digest_in(error.what(), "its digest is ", digest)) {
            return forged_page(bytes, group, index,
                               [&](PageRecord &entry) { entry.digest = digest; });
        }
    }
    return bytes;
}

// Numbers of a recurrent state, its checksum and its digest.
inline Bytes edited_state(Bytes bytes, const Snapshot &snapshot, const Edit &edit,
                          const std::vector<uint64_t> &numbers) {
    const size_t index = edit.index % snapshot.state().states.size();
    const StateRef ref = snapshot.layout().states[index];
    if (ref.offset == 0) {
        return bytes;
    }
    const uint64_t begin = ref.offset + kFrameBytes;
    change_in_place(bytes, begin, ref.stored_bytes, edit, numbers);
    const size_t count = snapshot.state().recurrent.numbers();
    FrameBytes frame_bytes;
    std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(ref.offset), kFrameBytes,
                frame_bytes.begin());
    Frame frame = decode_frame(frame_bytes, ref.offset);
    std::vector<float> found(count);
    if (frame.codec == Codec::zstd) {
        FrameCoder coder;
        const auto upper = bytes.begin() + static_cast<ptrdiff_t>(begin + 2 * count);
        Coded coded(upper, bytes.begin() + static_cast<ptrdiff_t>(begin + ref.stored_bytes));
        mend_checksums(halves_shape(count), coded);
        std::copy(coded.begin(), coded.end(), upper);
        decode_state_piece(coder, count, 0, bytes.data() + begin, ref.stored_bytes, found.data());
    } else {
        std::memcpy(found.data(), bytes.data() + begin, ref.stored_bytes);
    }
    frame.checksum = checksum(found.data(), count * sizeof(float));
    frame_bytes = encode_frame(frame);
    std::copy(frame_bytes.begin(), frame_bytes.end(),
              bytes.begin() + static_cast<ptrdiff_t>(ref.offset));
    return forged(bytes, [&](State &state, Layout &) {
        RecurrentState &each = state.states[index];
        each.digest = recurrent_state_digest(each.position, found.data(), count);
    });
}

inline Bytes edited_node(const Bytes &bytes, const Snapshot &snapshot, const Edit &edit,
                         const std::vector<uint64_t> &numbers) {
    const Trees &trees = snapshot.trees();
    const size_t group = edit.which / 4 % 2;
    const TreeKind kind = edit.which % 4 == 0   ? TreeKind::log
                          : edit.which % 4 == 1 ? TreeKind::texts
                          : edit.which % 8 == 3 && !trees.settings.levels.empty()
                              ? TreeKind::settings
                              : TreeKind::pages;
    const StoredTree &tree = kind == TreeKind::log        ? trees.log
                             : kind == TreeKind::texts    ? trees.texts
                             : kind == TreeKind::settings ? trees.settings
                                                          : trees.pages[group];
    if (tree.levels.empty()) {
        return bytes;
    }
    const size_t level = edit.which / 8 % tree.levels.size();
    return forged_node(bytes, kind, group, level, edit.index % tree.levels[level].size(),
                       [&](Bytes &node) { change(node, edit, numbers); });
}

// The index of a host's data, of any length.
inline Bytes edited_index(const Bytes &bytes, const Snapshot &snapshot, const Edit &edit,
                          const std::vector<uint64_t> &numbers) {
    const SectionRef ref = snapshot.layout().host_data;
    const auto begin = bytes.begin() + static_cast<ptrdiff_t>(ref.offset + kFrameBytes);
    Bytes index(begin, begin + static_cast<ptrdiff_t>(ref.bytes));
    change(index, edit, numbers);
    Bytes more;
    append_section(more, SectionKind::host_data, index);
    Layout layout = snapshot.layout();
    layout.host_data = {snapshot.root().manifest_offset, index.size(),
                        Sha256().bytes(index.data(), index.size()).finish()};
    return with_manifest(bytes, snapshot, more, build_manifest(snapshot.state(), layout));
}

// A frame with any field changed, its own checksum right.
inline void edit_frame(Bytes &bytes, const Snapshot &snapshot, const Edit &edit,
                       const std::vector<uint64_t> &numbers) {
    const std::vector<Section> sections = snapshot.sections();
    const uint64_t offset = sections[edit.which % sections.size()].offset;
    constexpr size_t kSumAt = 56;
    change_in_place(bytes, offset, kSumAt, edit, numbers);
    const uint64_t sum = checksum64(bytes.data() + offset, kSumAt);
    std::memcpy(bytes.data() + offset + kSumAt, &sum, sizeof sum);
}

// A root with any field changed; features are under its digest, which is made right.
inline void edit_root(Bytes &bytes, const Snapshot &snapshot, const Edit &edit,
                      const std::vector<uint64_t> &numbers) {
    const uint64_t slot = snapshot.slot();
    change_in_place(bytes, slot, 7 * sizeof(uint64_t), edit, numbers);
    uint64_t fields[7];
    std::memcpy(fields, bytes.data() + slot, sizeof fields);
    Root root{fields[0], fields[1], fields[2], fields[3], fields[4], fields[5], fields[6], {}};
    const Root &old = snapshot.root();
    root.digest =
        root_digest(root, bytes.data() + old.manifest_offset + kFrameBytes, old.manifest_bytes);
    write_block(bytes, slot, encode_slot(root));
}

// The file with one edit. Error if it could not be read before, or a run would not decode.
inline Bytes edited(Bytes bytes, const Edit &edit) {
    const auto snapshot = Snapshot::open("memory", memory_files(bytes));
    const std::vector<uint64_t> numbers = telling_numbers(bytes, *snapshot);
    const Root &root = snapshot->root();
    const auto in_section = [&](SectionRef Layout::*which, SectionKind kind) {
        return forged_section(bytes, which, kind, [&](uint8_t *data) {
            const uint64_t size = (snapshot->layout().*which).bytes;
            Bytes part(data, data + size);
            change_in_place(part, 0, size, edit, numbers);
            std::copy(part.begin(), part.end(), data);
        });
    };
    switch (edit.what % 10) {
    case 0:
    case 1: {
        const uint8_t *begin = bytes.data() + root.manifest_offset + kFrameBytes;
        Bytes manifest(begin, begin + root.manifest_bytes);
        change(manifest, edit, numbers);
        return with_manifest(bytes, *snapshot, {}, manifest);
    }
    case 2:
        return in_section(&Layout::identity, SectionKind::identity);
    case 3:
        if ((edit.which & 0x40) != 0 && snapshot->state().host_data != nullptr) {
            return edited_index(bytes, *snapshot, edit, numbers);
        }
        return snapshot->state().hidden.empty() ? bytes
                                                : in_section(&Layout::hidden, SectionKind::hidden);
    case 4:
    case 5:
        return edited_node(bytes, *snapshot, edit, numbers);
    case 6:
        if ((edit.which & 0x40) != 0 && !snapshot->state().states.empty()) {
            return edited_state(std::move(bytes), *snapshot, edit, numbers);
        }
        return edited_run(std::move(bytes), *snapshot, edit, numbers);
    case 7:
        edit_frame(bytes, *snapshot, edit, numbers);
        return bytes;
    case 8:
        edit_root(bytes, *snapshot, edit, numbers);
        return bytes;
    default:
        if (edit.which % 2 == 0) {
            change_in_place(bytes, 0, kBlockBytes - sizeof(Checksum), edit, numbers);
            const Checksum sum = checksum(bytes.data(), kBlockBytes - sizeof sum);
            std::memcpy(bytes.data() + kBlockBytes - sizeof sum, &sum, sizeof sum);
        } else {
            change(bytes, edit, numbers); // with nothing made right
        }
        return bytes;
    }
}

// Whether the file opens. Where only the state digest is wrong, as after most changes of what it
// covers, it is made right.
inline bool opens_when_mended(Bytes &bytes) {
    Digest found, right;
    try {
        Snapshot::open("memory", memory_files(bytes));
        return true;
    } catch (const Error &error) {
        if (!digest_in(error.what(), "state digest is ", found) ||
            !digest_in(error.what(), "the state's parts give ", right)) {
            return false;
        }
    }
    // It stands in the manifest, the last section.
    const CurrentRoot current = find_root(Input(bytes));
    const Root &root = current.root;
    const auto begin = bytes.begin() + static_cast<ptrdiff_t>(root.manifest_offset);
    const auto at = std::search(begin, bytes.end(), found.bytes.begin(), found.bytes.end());
    if (at == bytes.end() || root.file_bytes != bytes.size()) {
        return false;
    }
    std::copy(right.bytes.begin(), right.bytes.end(), at);
    reframe(bytes, root.manifest_offset, SectionKind::manifest, root.manifest_bytes);
    write_root(bytes, root, current.slot);
    return true;
}

// The stream form of the same state.
inline Bytes as_stream(Bytes bytes) {
    Root root = find_root(Input(bytes)).root;
    const uint64_t end = root.file_bytes;
    root.file_bytes += kTrailerBytes;
    return with_trailer(std::move(bytes), end, root);
}

} // namespace stasis::format
