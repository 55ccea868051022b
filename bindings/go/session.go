// Sessions: creating them, and what changes their log.

package stasis

// #include "bridge.h"
//
// static void free_session(void *session) { stasis_session_free(session); }
import "C"

import (
	"context"
	"runtime"
	"time"
	"unsafe"
)

// WindowRetainNone keeps nothing beyond the windows of local layers.
const WindowRetainNone uint64 = C.STASIS_WINDOW_RETAIN_NONE

// Domains: sessions of the same number share pages, those of DomainPrivate with their forks only.
const (
	DomainCommon  uint64 = 0
	DomainPrivate uint64 = C.STASIS_DOMAIN_PRIVATE
)

// Tracking is the detail in which a session accumulates attention.
type Tracking uint32

const (
	TrackNothing Tracking = 0
	TrackTotal   Tracking = C.STASIS_TRACK_TOTAL   // of all layers and heads together
	TrackByHead  Tracking = C.STASIS_TRACK_BY_HEAD // of each layer and query head
)

// SessionOptions say how a session is created; the zero value is the default in every field.
type SessionOptions struct {
	Capacity       uint64 // positions it may reach; 0: the model's context
	Reserve        uint64 // positions whose memory is taken at once
	WindowRetain   uint64 // positions kept beyond windows, for rewind; 0: one window
	TrackAttention Tracking
	Domain         uint64
}

// RunOptions accompany calls that compute tokens; the zero value is the default.
type RunOptions struct {
	Chunk int // positions computed together, without influence on results; 0: chosen
	// Timeout ends the call with ErrTimeout, as if it had never been made; 0: no limit. A context's
	// deadline does the same with ErrCancelled.
	Timeout time.Duration

	// Progress gets positions of this call; an error ends it.
	Progress func(done, total uint64) error
	// Logits gets those of every appended position, ascending; the slice lives until it returns.
	Logits func(position uint64, logits []float32) error
}

// A Session is one timeline of tokens. It serves one caller at a time.
type Session struct {
	handle
}

func newSession(session *C.stasis_session) *Session {
	s := &Session{handle{pointer: unsafe.Pointer(session),
		free: func(session unsafe.Pointer) { C.free_session(session) }}}
	runtime.SetFinalizer(s, (*Session).Close)
	return s
}

// NewSession creates an empty session. Options may be nil.
func (m *Model) NewSession(options *SessionOptions) (*Session, error) {
	c := brief("create session")
	var created *C.stasis_session
	err := m.call(c, func(model *C.stasis_model, failure *C.stasis_error) C.stasis_status {
		return C.stasis_session_create(model, sessionOptions(options), &created, failure)
	})
	if err != nil {
		return nil, err
	}
	return newSession(created), nil
}

// Close releases the session as soon as no call uses it. It returns nil.
func (s *Session) Close() error {
	runtime.SetFinalizer(s, nil)
	s.close()
	return nil
}

func (s *Session) call(c *call,
	body func(session *C.stasis_session, failure *C.stasis_error) C.stasis_status) error {
	defer runtime.KeepAlive(s)
	return s.use(c, func(object unsafe.Pointer, failure *C.stasis_error) C.stasis_status {
		return body((*C.stasis_session)(object), failure)
	})
}

func sessionOptions(o *SessionOptions) *C.stasis_session_options {
	if o == nil {
		return nil
	}
	var given C.stasis_session_options
	C.stasis_session_options_init(&given, C.sizeof_stasis_session_options)
	given.capacity = C.uint64_t(o.Capacity)
	given.reserve = C.uint64_t(o.Reserve)
	given.window_retain = C.uint64_t(o.WindowRetain)
	given.track_attention = C.uint32_t(o.TrackAttention)
	given.domain = C.uint64_t(o.Domain)
	return &given
}

func (c *call) runOptions(o *RunOptions) *C.stasis_run_options {
	var given C.stasis_run_options
	C.stasis_run_options_init(&given, C.sizeof_stasis_run_options)
	given.cancel = c.cancel
	if o != nil {
		given.chunk = c.count("Chunk", o.Chunk)
		given.timeout_ms = c.milliseconds(o.Timeout)
		given.progress, given.progress_user = c.progress(o.Progress)
		if o.Logits != nil {
			c.hooks.logits = o.Logits
			given.logits, given.logits_user = C.stasis_logits_fn(C.stasis_go_logits), c.user()
		}
	}
	return &given
}

// Append appends all of the tokens or, on any failure, none. Options may be nil.
func (s *Session) Append(ctx context.Context, tokens []Token, options *RunOptions) error {
	c := begin(ctx, "append")
	given := c.runOptions(options)
	return s.call(c, func(session *C.stasis_session, failure *C.stasis_error) C.stasis_status {
		return C.stasis_session_append(session, tokenArray(tokens), C.size_t(len(tokens)), given,
			failure)
	})
}

// MessageFlags, zero or more of them.
type MessageFlags uint32

// MessageReply follows the message with the prompt for a reply.
const MessageReply MessageFlags = C.STASIS_MESSAGE_REPLY

// AppendMessage renders one turn through the chat template and appends it. Options may be nil.
func (s *Session) AppendMessage(ctx context.Context, message Message, flags MessageFlags,
	options *RunOptions) error {
	c := begin(ctx, "append message")
	given := c.runOptions(options)
	role, text := c.role(message.Role), []byte(message.Text)
	return s.call(c, func(session *C.stasis_session, failure *C.stasis_error) C.stasis_status {
		return C.stasis_session_append_message(session, role,
			(*C.char)(unsafe.Pointer(first(text))), C.size_t(len(text)), C.uint32_t(flags),
			given, failure)
	})
}

// Fork gives a second session with the same state and settings. It copies no page.
func (s *Session) Fork() (*Session, error) {
	c := brief("fork")
	var child *C.stasis_session
	err := s.call(c, func(session *C.stasis_session, failure *C.stasis_error) C.stasis_status {
		return C.stasis_session_fork(session, &child, failure)
	})
	if err != nil {
		return nil, err
	}
	return newSession(child), nil
}

// RewindFlags, zero or more of them.
type RewindFlags uint32

// RewindRecompute reaches below the rewind floor: local layers are computed again from the log.
const RewindRecompute RewindFlags = C.STASIS_REWIND_RECOMPUTE

// Rewind goes back to a position: what came after has never been. Options may be nil.
func (s *Session) Rewind(ctx context.Context, position uint64, flags RewindFlags,
	options *RunOptions) error {
	c := begin(ctx, "rewind")
	given := c.runOptions(options)
	return s.call(c, func(session *C.stasis_session, failure *C.stasis_error) C.stasis_status {
		return C.stasis_session_rewind(session, C.uint64_t(position), C.uint32_t(flags), given,
			failure)
	})
}

// Evict hides positions [begin, end) from every token that comes.
func (s *Session) Evict(begin, end uint64) error {
	c := brief("evict")
	return s.call(c, func(session *C.stasis_session, failure *C.stasis_error) C.stasis_status {
		return C.stasis_session_evict(session, C.uint64_t(begin), C.uint64_t(end), failure)
	})
}
