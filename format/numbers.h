// The fields of the manifest that hold the numbers of kSessionNumbers, found by their names in the
// schema.
#pragma once

#include <cassert>
#include <cstring>

#include "format/state/state.h"
#include "manifest_generated.h"

namespace stasis::format {

// Returns the id of a number's field. The schema must have a field of this name and type.
template <class T> flatbuffers::voffset_t field_of(const SessionNumber<T> &number) {
    const flatbuffers::TypeTable &table = *manifest::ManifestTypeTable();
    size_t field = 0;
    while (field < table.num_elems && std::strcmp(table.names[field], number.name) != 0) {
        ++field;
    }
    assert(field < table.num_elems);
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    assert(table.type_codes[field].base_type ==
           (sizeof(T) == 8 ? flatbuffers::ET_ULONG : flatbuffers::ET_UINT));
    return flatbuffers::FieldIndexToOffset(static_cast<flatbuffers::voffset_t>(field));
}

template <class T> T read_number(const manifest::Manifest &from, const SessionNumber<T> &number) {
    // A generated class is this one, without members of its own.
    const auto &fields = reinterpret_cast<const flatbuffers::Table &>(from);
    return fields.GetField<T>(field_of(number), 0);
}

} // namespace stasis::format
