// Snapshots: what a file holds, without its model.

package stasis

// #include "bridge.h"
//
// static void close_snapshot(void *snapshot) { stasis_snapshot_close(snapshot); }
import "C"

import (
	"context"
	"encoding/json"
	"io"
	"runtime"
	"unsafe"
)

// A Snapshot is an opened file, read-only. It serves one caller at a time.
type Snapshot struct {
	handle
}

func newSnapshot(snapshot *C.stasis_snapshot) *Snapshot {
	s := &Snapshot{handle{pointer: unsafe.Pointer(snapshot),
		free: func(snapshot unsafe.Pointer) { C.close_snapshot(snapshot) }}}
	runtime.SetFinalizer(s, (*Snapshot).Close)
	return s
}

// OpenSnapshot opens a file for inspection.
func OpenSnapshot(path string) (*Snapshot, error) {
	c := brief("open snapshot")
	name := c.path(path)
	var opened *C.stasis_snapshot
	err := c.run(func(failure *C.stasis_error) C.stasis_status {
		return C.stasis_snapshot_open(name, &opened, failure)
	})
	if err != nil {
		return nil, err
	}
	return newSnapshot(opened), nil
}

// ReadSnapshot opens one from a stream, up to its end and no further; it stays in memory.
func ReadSnapshot(ctx context.Context, from io.Reader) (*Snapshot, error) {
	c := begin(ctx, "read snapshot")
	source := c.source(from)
	var opened *C.stasis_snapshot
	err := c.run(func(failure *C.stasis_error) C.stasis_status {
		return C.stasis_snapshot_open_source(source, &opened, failure)
	})
	if err != nil {
		return nil, err
	}
	return newSnapshot(opened), nil
}

// Close releases the snapshot as soon as no call uses it. It returns nil.
func (s *Snapshot) Close() error {
	runtime.SetFinalizer(s, nil)
	s.close()
	return nil
}

func (s *Snapshot) call(c *call,
	body func(snapshot *C.stasis_snapshot, failure *C.stasis_error) C.stasis_status) error {
	defer runtime.KeepAlive(s)
	return s.use(c, func(object unsafe.Pointer, failure *C.stasis_error) C.stasis_status {
		return body((*C.stasis_snapshot)(object), failure)
	})
}

// SnapshotInfo describes a file's state.
type SnapshotInfo struct {
	Format        int
	Contract      [3]uint32
	PagePositions int
	Position      uint64
	FileBytes     uint64 // of the state and all commits before it
	Digest        Digest // of the state, as Session.Digest
	Root          Digest // of the file: who keeps it can prove the file
	Model         Digest
	DamagedRoot   bool // a root slot cannot be read: torn by a crash, or see Older
	Keep          Keep
	Codec         Codec  // CodecZstd if any keys and values are
	Commits       uint64 // saves to this file
	KVBytes       uint64
	KVStoredBytes uint64 // what they take in the file
	Profile       string // as of ModelInfo
	// As of SessionInfo.
	PositionsForeign uint64
	DeadBytes        uint64 // of FileBytes, those that this state does not refer to
	Older            bool   // the last commit is damaged, and this is the state before it
}

// Info describes the file's state.
func (s *Snapshot) Info() (SnapshotInfo, error) {
	own := C.stasis_snapshot_info{struct_size: C.sizeof_stasis_snapshot_info}
	err := s.call(brief("snapshot info"), func(snapshot *C.stasis_snapshot,
		failure *C.stasis_error) C.stasis_status {
		return C.stasis_snapshot_get_info(snapshot, &own, failure)
	})
	return SnapshotInfo{
		Format: int(own.format), Contract: contractOf(&own.contract),
		PagePositions: int(own.page_positions), Position: uint64(own.position),
		FileBytes: uint64(own.file_bytes), Digest: digestOf(&own.digest),
		Root: digestOf(&own.root), Model: digestOf(&own.model),
		DamagedRoot: own.flags&C.STASIS_SNAPSHOT_DAMAGED_ROOT != 0, Keep: Keep(own.keep),
		Codec: Codec(own.codec), Commits: uint64(own.commits), KVBytes: uint64(own.kv_bytes),
		KVStoredBytes: uint64(own.kv_stored_bytes), Profile: C.GoString(&own.profile[0]),
		PositionsForeign: uint64(own.positions_foreign), DeadBytes: uint64(own.dead_bytes),
		Older: own.older != 0,
	}, err
}

// An Element is one of the twelve that make up a session's state.
type Element uint32

const (
	ElementKVCache Element = 1 + iota
	ElementEmbeddings
	ElementPosition
	ElementTokens
	ElementMask
	ElementConfig
	ElementNorms
	ElementAttention
	ElementLogits
	ElementTokenizer
	ElementFormat
	ElementSources
)

// Element describes one of them as a JSON object.
func (s *Snapshot) Element(element Element) (json.RawMessage, error) {
	var text []byte
	err := s.call(brief("element"), func(snapshot *C.stasis_snapshot,
		failure *C.stasis_error) (status C.stasis_status) {
		text, status = filled(4096, func(buffer *byte, capacity C.size_t,
			length *C.size_t) C.stasis_status {
			return C.stasis_snapshot_element(snapshot, C.uint32_t(element),
				(*C.char)(unsafe.Pointer(buffer)), capacity, length, failure)
		})
		return status
	})
	return text, err
}

// Tokens gives those from `begin` to the end, and their sources.
func (s *Snapshot) Tokens(begin uint64) ([]Token, []Source, error) {
	var tokens []Token
	var sources []Source
	err := s.call(brief("snapshot tokens"), func(snapshot *C.stasis_snapshot,
		failure *C.stasis_error) (status C.stasis_status) {
		tokens, sources, status = tokensAndSources(func(tokens *C.stasis_token, sources *C.uint8_t,
			capacity C.size_t, count *C.size_t) C.stasis_status {
			return C.stasis_snapshot_tokens(snapshot, C.uint64_t(begin), tokens, sources,
				capacity, count, failure)
		})
		return status
	})
	return tokens, sources, err
}

// Compact puts a new file in the place of `path` that holds its state and nothing else. Only Codec
// and Progress of the options, which may be nil, apply.
func Compact(ctx context.Context, path string, options *SaveOptions) error {
	c := begin(ctx, "compact")
	name, given := c.path(path), c.saveOptions(options)
	return c.run(func(failure *C.stasis_error) C.stasis_status {
		return C.stasis_snapshot_compact(name, given, failure)
	})
}
