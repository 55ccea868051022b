// The trace of a session's KV cache, by polling.

package stasis

// #include "bridge.h"
import "C"

// A TraceKind says what happened. Pages: who starts with none and applies these events in their
// order has the session's table of pages. Operations, of the whole session, follow their pages.
type TraceKind uint32

const (
	TraceHeld     TraceKind = C.STASIS_TRACE_HELD     // had already
	TraceTaken    TraceKind = C.STASIS_TRACE_TAKEN    // a page of its own
	TraceShared   TraceKind = C.STASIS_TRACE_SHARED   // a page that already holds these tokens
	TraceCopied   TraceKind = C.STASIS_TRACE_COPIED   // its own copy in the place of a shared one
	TraceFilled   TraceKind = C.STASIS_TRACE_FILLED   // all positions computed, digest available
	TraceReleased TraceKind = C.STASIS_TRACE_RELEASED // it has the page no more
	TraceRead     TraceKind = C.STASIS_TRACE_READ     // a pass is about to read pages in a row
	TraceAppend   TraceKind = C.STASIS_TRACE_APPEND
	TraceUndone   TraceKind = C.STASIS_TRACE_UNDONE
	TraceRewind   TraceKind = C.STASIS_TRACE_REWIND
	TraceEvict    TraceKind = C.STASIS_TRACE_EVICT
	TraceFork     TraceKind = C.STASIS_TRACE_FORK
	TraceSave     TraceKind = C.STASIS_TRACE_SAVE
	TraceLoad     TraceKind = C.STASIS_TRACE_LOAD
)

// TraceAllGroups is the group of an operation.
const TraceAllGroups = C.STASIS_TRACE_ALL_GROUPS

// A TraceEvent happened to a page of a group of layers, or to the session as a whole.
type TraceEvent struct {
	Kind       TraceKind
	Group      uint32 // TraceAllGroups: an operation
	Window     int    // of the group's layers; 0: they see everything
	Begin, End uint64 // positions
	Bytes      uint64
	Digest     Digest // of a full page, or of the state that was saved or loaded; else zero
}

// TraceOptions say how much is traced.
type TraceOptions struct {
	Events int  // that can wait to be taken; their memory is taken at once
	Reads  bool // report reads too
}

// SetTrace records what happens to the KV cache from now on, beginning with the session's pages,
// for TakeTrace; nil ends it.
func (s *Session) SetTrace(options *TraceOptions) error {
	c := brief("set trace")
	var given *C.stasis_trace_options
	if options != nil {
		given = &C.stasis_trace_options{}
		C.stasis_trace_options_init(given, C.sizeof_stasis_trace_options)
		given.queue_events = C.uint64_t(c.count("Events", options.Events))
		if options.Reads {
			given.flags = C.STASIS_TRACE_READS
		}
	}
	return s.call(c, func(session *C.stasis_session,
		failure *C.stasis_error) C.stasis_status {
		return C.stasis_session_set_trace(session, given, failure)
	})
}

// TakeTrace removes the events that wait, oldest first, and at most `most`. The number of events
// lost because the queue was full is reported after all that waited have been taken.
func (s *Session) TakeTrace(most int) (events []TraceEvent, lost uint64, err error) {
	c := brief("take trace")
	own := make([]C.stasis_trace_event, int(c.count("most", most)))
	var count C.size_t
	var missed C.uint64_t
	err = s.call(c, func(session *C.stasis_session,
		failure *C.stasis_error) C.stasis_status {
		return C.stasis_session_take_trace(session, first(own), C.sizeof_stasis_trace_event,
			C.size_t(len(own)), &count, &missed, failure)
	})
	for i := range own[:count] {
		event := &own[i]
		events = append(events, TraceEvent{
			Kind: TraceKind(event.kind), Group: uint32(event.group), Window: int(event.window),
			Begin: uint64(event.begin), End: uint64(event.end), Bytes: uint64(event.bytes),
			Digest: digestOf(&event.digest),
		})
	}
	return events, uint64(missed), err
}
