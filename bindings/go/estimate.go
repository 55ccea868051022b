// Memory: of models before they are opened, and of sessions before they are computed.

package stasis

// #include <stasis.h>
import "C"

import "context"

// SessionMemory is what a session takes, in bytes. Sessions that share pages take less.
type SessionMemory struct {
	PagePositions       int
	KV                  uint64 // of its pages between calls
	KVMost              uint64 // never more on the way there
	Position            uint64 // keys and values of one position in all layers
	GlobalPosition      uint64 // of it in layers without a window, which keep growing
	States, StateMemory uint64 // recurrent states, and their bytes
	Log                 uint64 // tokens and tables of pages
	Tracking            uint64 // sums of attention
	Fixed               uint64 // whatever its length
}

// Total is all that the session takes between calls.
func (m SessionMemory) Total() uint64 {
	return m.KV + m.StateMemory + m.Log + m.Tracking + m.Fixed
}

func sessionMemoryOf(own *C.stasis_session_memory) SessionMemory {
	return SessionMemory{
		PagePositions: int(own.page_positions),
		KV:            uint64(own.kv_bytes), KVMost: uint64(own.kv_most_bytes),
		Position: uint64(own.position_bytes), GlobalPosition: uint64(own.global_position_bytes),
		States: uint64(own.states), StateMemory: uint64(own.state_bytes),
		Log: uint64(own.log_bytes), Tracking: uint64(own.tracking_bytes),
		Fixed: uint64(own.fixed_bytes),
	}
}

// SessionMemory is what a session of these options takes when it has so many positions. Nothing is
// computed. Options may be nil.
func (m *Model) SessionMemory(options *SessionOptions, positions uint64) (SessionMemory, error) {
	given := sessionOptions(options)
	own := C.stasis_session_memory{struct_size: C.sizeof_stasis_session_memory}
	err := m.call(brief("session memory"), func(model *C.stasis_model,
		failure *C.stasis_error) C.stasis_status {
		return C.stasis_model_session_memory(model, given, C.uint64_t(positions), &own, failure)
	})
	return sessionMemoryOf(&own), err
}

// ModelEstimate describes a model that is not open; sizes are in bytes.
type ModelEstimate struct {
	Architecture               string
	Layers, Hidden, Vocabulary int
	Context                    uint64
	Parameters                 uint64 // numbers in the model's tensors
	WeightTypes                string
	WeightBytes, MTPBytes      uint64
	Files                      uint64 // all files of weights
	Mapped                     uint64 // weights used in mapped files
	Allocated                  uint64 // copies of weights, which opening takes and keeps
	Heap                       uint64 // norms and biases
	Workspace                  uint64 // of a call that computes 512 positions
	Session                    SessionMemory
}

// Estimate says what Open would take of memory, and then a session of so many positions, from the
// headers of the model's files, in milliseconds. Both options may be nil.
func Estimate(path string, options *ModelOptions, session *SessionOptions,
	positions uint64) (ModelEstimate, error) {
	c := begin(context.Background(), "estimate")
	name := c.path(path)
	given := c.modelOptions(options)
	sessions := sessionOptions(session)
	own := C.stasis_estimate{struct_size: C.sizeof_stasis_estimate}
	memory := C.stasis_session_memory{struct_size: C.sizeof_stasis_session_memory}
	err := c.run(func(failure *C.stasis_error) C.stasis_status {
		return C.stasis_model_estimate(name, given, sessions, C.uint64_t(positions), &own, &memory,
			failure)
	})
	if err != nil {
		return ModelEstimate{}, err
	}
	return ModelEstimate{
		Architecture: C.GoString(&own.architecture[0]),
		Layers:       int(own.layers), Hidden: int(own.hidden), Vocabulary: int(own.vocabulary),
		Context: uint64(own.context), Parameters: uint64(own.parameters),
		WeightTypes: C.GoString(&own.weight_types[0]),
		WeightBytes: uint64(own.weight_bytes), MTPBytes: uint64(own.mtp_bytes),
		Files: uint64(own.file_bytes), Mapped: uint64(own.mapped_bytes),
		Allocated: uint64(own.allocated_bytes), Heap: uint64(own.heap_bytes),
		Workspace: uint64(own.workspace_bytes), Session: sessionMemoryOf(&memory),
	}, nil
}
