// Metadata: what a model's files say of it, by key.

package stasis

// #include <stasis.h>
import "C"

import "unsafe"

// MetadataKind is how a value is given.
type MetadataKind uint32

const (
	MetadataText    MetadataKind = C.STASIS_METADATA_TEXT     // the value itself
	MetadataJSON    MetadataKind = C.STASIS_METADATA_JSON     // a number, boolean, null or array
	MetadataLeftOut MetadataKind = C.STASIS_METADATA_LEFT_OUT // too large: the value says what it is
)

// Metadata is what a model's files say of it under one key.
type Metadata struct {
	Key   string
	Kind  MetadataKind
	Value string // UTF-8
}

func metadataOf(own *C.stasis_metadata) Metadata {
	return Metadata{Key: C.GoString(own.key), Kind: MetadataKind(own.kind),
		Value: string(unsafe.Slice((*byte)(unsafe.Pointer(own.value)), int(own.length)))}
}

// Metadata is that of one key: a GGUF file's own, such as "general.name"; or of a directory the
// name of a JSON file and its members', such as "config.hidden_size". ErrNotFound: there is none.
func (m *Model) Metadata(key string) (Metadata, error) {
	c := brief("metadata")
	name := c.text("the key", key)
	if key == "" {
		name = (*C.char)(c.block(1)) // no file has it, which is for the library to say
	}
	var metadata Metadata
	own := C.stasis_metadata{struct_size: C.sizeof_stasis_metadata}
	err := m.call(c, func(model *C.stasis_model, failure *C.stasis_error) C.stasis_status {
		status := C.stasis_model_get_metadata(model, name, &own, failure)
		if status == C.STASIS_OK {
			metadata = metadataOf(&own) // while the model lives: it owns the texts
		}
		return status
	})
	return metadata, err
}

// AllMetadata is that of all keys, in their order.
func (m *Model) AllMetadata() ([]Metadata, error) {
	var all []Metadata
	own := C.stasis_metadata{struct_size: C.sizeof_stasis_metadata}
	err := m.call(brief("metadata"), func(model *C.stasis_model,
		failure *C.stasis_error) C.stasis_status {
		for {
			status := C.stasis_model_get_metadata_at(model, C.size_t(len(all)), &own, failure)
			if status == C.STASIS_NOT_FOUND {
				return C.STASIS_OK
			}
			if status != C.STASIS_OK {
				return status
			}
			all = append(all, metadataOf(&own))
		}
	})
	return all, err
}
