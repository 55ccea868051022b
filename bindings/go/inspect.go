// Reading a session's state without changing it.

package stasis

// #include "bridge.h"
import "C"

import "unsafe"

// SessionInfo reports a session's position and contents.
type SessionInfo struct {
	Window           int    // of local layers; 0: the model has none
	Position         uint64 // tokens in the log; the next takes this position
	Capacity         uint64
	RewindFloor      uint64 // lowest position that Rewind reaches without recomputing
	WindowRetain     uint64
	WindowBegin      uint64 // from this position on windows have released nothing
	PagesOwn         uint64
	PagesShared      uint64
	KVBytes          uint64 // of both
	PendingBytes     uint64 // system text that waits for the first user turn
	PositionsEvicted uint64
	TokensReused     uint64 // positions taken from existing pages
	States           uint64 // recurrent states that it holds: the last, and checkpoints
	// Some below this one were computed under another profile, and cannot be verified; 0: none.
	PositionsForeign uint64
	// Loaded with AcceptOlder from a file whose last commit is damaged, and not saved since.
	Older bool
}

// Info reports the session's position and contents.
func (s *Session) Info() (SessionInfo, error) {
	own := C.stasis_session_info{struct_size: C.sizeof_stasis_session_info}
	err := s.call(brief("session info"), func(session *C.stasis_session,
		failure *C.stasis_error) C.stasis_status {
		return C.stasis_session_get_info(session, &own, failure)
	})
	return SessionInfo{
		Window: int(own.window), Position: uint64(own.position), Capacity: uint64(own.capacity),
		RewindFloor: uint64(own.rewind_floor), WindowRetain: uint64(own.window_retain),
		WindowBegin: uint64(own.window_begin), PagesOwn: uint64(own.pages_own),
		PagesShared: uint64(own.pages_shared), KVBytes: uint64(own.kv_bytes),
		PendingBytes:     uint64(own.pending_bytes),
		PositionsEvicted: uint64(own.positions_evicted), TokensReused: uint64(own.tokens_reused),
		PositionsForeign: uint64(own.positions_foreign), Older: own.older != 0,
		States: uint64(own.states),
	}, err
}

// A Source says where a token came from.
type Source uint8

const (
	SourcePrompt   Source = C.STASIS_SOURCE_PROMPT   // given as a token by the caller
	SourceTemplate Source = C.STASIS_SOURCE_TEMPLATE // added by the chat template
	SourceText     Source = C.STASIS_SOURCE_TEXT     // text of a message
	SourceSampled  Source = C.STASIS_SOURCE_SAMPLED  // drawn
)

// Tokens gives those from `begin` to the end, and their sources.
func (s *Session) Tokens(begin uint64) ([]Token, []Source, error) {
	var tokens []Token
	var sources []Source
	err := s.call(brief("tokens"), func(session *C.stasis_session,
		failure *C.stasis_error) (status C.stasis_status) {
		tokens, sources, status = tokensAndSources(func(tokens *C.stasis_token, sources *C.uint8_t,
			capacity C.size_t, count *C.size_t) C.stasis_status {
			return C.stasis_session_tokens(session, C.uint64_t(begin), tokens, sources, capacity,
				count, failure)
		})
		return status
	})
	return tokens, sources, err
}

// tokensAndSources reads both arrays, as one call gives them.
func tokensAndSources(read func(tokens *C.stasis_token, sources *C.uint8_t, capacity C.size_t,
	count *C.size_t) C.stasis_status) ([]Token, []Source, C.stasis_status) {
	var sources []Source
	tokens, status := filled(256, func(buffer *Token, capacity C.size_t,
		count *C.size_t) C.stasis_status {
		sources = make([]Source, capacity)
		return read((*C.stasis_token)(buffer), (*C.uint8_t)(first(sources)), capacity, count)
	})
	if status != C.STASIS_OK {
		return nil, nil, status
	}
	return tokens, sources[:len(tokens)], status
}

// Text gives that of positions [begin, end) without special tokens; an incomplete last character is
// left out.
func (s *Session) Text(begin, end uint64) (string, error) {
	var text []byte
	err := s.call(brief("text"), func(session *C.stasis_session,
		failure *C.stasis_error) (status C.stasis_status) {
		text, status = filled(1024, func(buffer *byte, capacity C.size_t,
			length *C.size_t) C.stasis_status {
			return C.stasis_session_text(session, C.uint64_t(begin), C.uint64_t(end),
				(*C.char)(unsafe.Pointer(buffer)), capacity, length, failure)
		})
		return status
	})
	return string(text), err
}

// Digest returns the digest of the state: sessions with equal digests continue with the same bits.
func (s *Session) Digest() (Digest, error) {
	var own C.stasis_digest
	err := s.call(brief("digest"), func(session *C.stasis_session,
		failure *C.stasis_error) C.stasis_status {
		return C.stasis_session_digest(session, &own, failure)
	})
	return digestOf(&own), err
}

// KV copies keys and values of positions [begin, end) of a layer, bf16, each
// [end - begin][KVHeads][HeadDim].
func (s *Session) KV(layer int, begin, end uint64) (keys, values []uint16, err error) {
	c := brief("kv")
	number := c.count("layer", layer)
	err = s.call(c, func(session *C.stasis_session,
		failure *C.stasis_error) (status C.stasis_status) {
		keys, status = filled(0, func(buffer *uint16, capacity C.size_t,
			count *C.size_t) C.stasis_status {
			values = make([]uint16, capacity)
			return C.stasis_session_kv(session, number, C.uint64_t(begin), C.uint64_t(end),
				(*C.uint16_t)(buffer), (*C.uint16_t)(first(values)), capacity, count, failure)
		})
		return status
	})
	if err != nil {
		return nil, nil, err
	}
	return keys, values, nil
}

// AttentionFlags, zero or more of them.
type AttentionFlags uint32

// AttentionByHead asks for [Layers][Heads][Position] in the place of [Position].
const AttentionByHead AttentionFlags = C.STASIS_ATTENTION_BY_HEAD

// Attention returns the accumulated attention of each position, if the session tracks it.
func (s *Session) Attention(flags AttentionFlags) ([]float64, error) {
	var weights []float64
	err := s.call(brief("attention"), func(session *C.stasis_session,
		failure *C.stasis_error) (status C.stasis_status) {
		weights, status = filled(0, func(buffer *float64, capacity C.size_t,
			count *C.size_t) C.stasis_status {
			return C.stasis_session_attention(session, C.uint32_t(flags), (*C.double)(buffer),
				capacity, count, failure)
		})
		return status
	})
	return weights, err
}
