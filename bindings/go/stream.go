// Saving and loading: to files, and to streams.

package stasis

// #include "bridge.h"
import "C"

import (
	"context"
	"io"
	"unsafe"
)

// A Codec says how keys and values are written.
type Codec uint32

const (
	CodecDefault Codec = C.STASIS_CODEC_DEFAULT // raw; compacting keeps what the file has
	CodecRaw     Codec = C.STASIS_CODEC_RAW     // saved and loaded fastest
	CodecZstd    Codec = C.STASIS_CODEC_ZSTD    // about 0.7 of the size, the same bits
)

// Keep says what a file holds beside tokens and digests.
type Keep uint32

const (
	KeepFull Keep = C.STASIS_KEEP_FULL // keys and values of all positions that the session has
	KeepNone Keep = C.STASIS_KEEP_NONE // none: loading computes them again, and proves them
)

// SaveOptions say how a session is saved; the zero value is the default in every field.
type SaveOptions struct {
	Replace    bool // any existing file, whatever it holds
	IfMatch    bool // only what this session loaded or saved last: else ErrConflict
	FullLogits bool // keep the whole row of logits
	Codec      Codec
	Keep       Keep

	// Progress gets bytes of keys and values; an error ends the call.
	Progress func(done, total uint64) error
}

// LoadOptions say how a session is loaded; the zero value is the default in every field.
type LoadOptions struct {
	NoRecompute bool            // refuse a file without keys and values
	Trusted     bool            // its pages may serve sessions that append the same tokens
	AnyProfile  bool            // also what another profile computed: see SessionInfo.PositionsForeign
	AcceptOlder bool            // also the state before a last commit that is damaged
	SkipKnown   bool            // pages in memory under the file's digests are not read
	Session     *SessionOptions // nil: as saved

	// Progress gets bytes, or positions where it recomputes; an error ends the call.
	Progress func(done, total uint64) error
}

func (c *call) saveOptions(o *SaveOptions) *C.stasis_save_options {
	var given C.stasis_save_options
	C.stasis_save_options_init(&given, C.sizeof_stasis_save_options)
	given.cancel = c.cancel
	if o != nil {
		if o.Replace {
			given.flags |= C.STASIS_SAVE_REPLACE
		}
		if o.IfMatch {
			given.flags |= C.STASIS_SAVE_IF_MATCH
		}
		if o.FullLogits {
			given.flags |= C.STASIS_SAVE_FULL_LOGITS
		}
		given.codec, given.keep = C.uint32_t(o.Codec), C.uint32_t(o.Keep)
		given.progress, given.progress_user = c.progress(o.Progress)
	}
	return &given
}

func (c *call) loadOptions(o *LoadOptions) *C.stasis_load_options {
	var given C.stasis_load_options
	C.stasis_load_options_init(&given, C.sizeof_stasis_load_options)
	given.cancel = c.cancel
	if o != nil {
		if o.NoRecompute {
			given.flags |= C.STASIS_LOAD_NO_RECOMPUTE
		}
		if o.Trusted {
			given.flags |= C.STASIS_LOAD_TRUSTED
		}
		if o.AnyProfile {
			given.flags |= C.STASIS_LOAD_ANY_PROFILE
		}
		if o.AcceptOlder {
			given.flags |= C.STASIS_LOAD_ACCEPT_OLDER
		}
		if o.SkipKnown {
			given.flags |= C.STASIS_LOAD_SKIP_KNOWN
		}
		if session := sessionOptions(o.Session); session != nil {
			given.session = first(array(c, []C.stasis_session_options{*session}))
		}
		given.progress, given.progress_user = c.progress(o.Progress)
	}
	return &given
}

// Save saves the session to a file, whole or not at all. To a file of the session's own past only
// what is new is appended. Options may be nil.
func (s *Session) Save(ctx context.Context, path string, options *SaveOptions) error {
	c := begin(ctx, "save")
	name, given := c.path(path), c.saveOptions(options)
	return s.call(c, func(session *C.stasis_session, failure *C.stasis_error) C.stasis_status {
		return C.stasis_session_save(session, name, given, failure)
	})
}

// Write saves the session to a stream, always whole. Options may be nil.
func (s *Session) Write(ctx context.Context, to io.Writer, options *SaveOptions) error {
	c := begin(ctx, "write")
	given := c.saveOptions(options)
	c.hooks.writer = to
	sink := C.stasis_sink{struct_size: C.sizeof_stasis_sink, user: c.user(),
		write: (*[0]byte)(C.stasis_go_write)}
	return s.call(c, func(session *C.stasis_session, failure *C.stasis_error) C.stasis_status {
		return C.stasis_session_write(session, &sink, given, failure)
	})
}

// Load gives a new session that continues what the file holds, with the same bits and settings.
// Options may be nil.
func (m *Model) Load(ctx context.Context, path string, options *LoadOptions) (*Session, error) {
	c := begin(ctx, "load")
	name := c.path(path)
	return m.load(c, options, func(model *C.stasis_model, given *C.stasis_load_options,
		session **C.stasis_session, failure *C.stasis_error) C.stasis_status {
		return C.stasis_session_load(model, name, given, session, failure)
	})
}

// Read loads from a stream, up to the end of the snapshot and no further. Options may be nil.
func (m *Model) Read(ctx context.Context, from io.Reader, options *LoadOptions) (*Session, error) {
	c := begin(ctx, "read")
	source := c.source(from)
	return m.load(c, options, func(model *C.stasis_model, given *C.stasis_load_options,
		session **C.stasis_session, failure *C.stasis_error) C.stasis_status {
		return C.stasis_session_read(model, source, given, session, failure)
	})
}

func (m *Model) load(c *call, options *LoadOptions,
	load func(*C.stasis_model, *C.stasis_load_options, **C.stasis_session,
		*C.stasis_error) C.stasis_status) (*Session, error) {
	given := c.loadOptions(options)
	var loaded *C.stasis_session
	err := m.call(c, func(model *C.stasis_model, failure *C.stasis_error) C.stasis_status {
		return load(model, given, &loaded, failure)
	})
	if err != nil {
		return nil, err
	}
	return newSession(loaded), nil
}

func (c *call) source(from io.Reader) *C.stasis_source {
	c.hooks.reader = from
	return &C.stasis_source{struct_size: C.sizeof_stasis_source, user: c.user(),
		read: (*[0]byte)(unsafe.Pointer(C.stasis_go_read))}
}
