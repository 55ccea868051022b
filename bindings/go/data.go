// What a host keeps in a session, and the turns of its log.

package stasis

// #include <stdlib.h>
// #include <stasis.h>
import "C"

import "unsafe"

// DataEntry is a name of a session's data.
type DataEntry struct {
	Name  string // in a file that others wrote not always UTF-8
	Bytes uint64 // of the value
}

// SetData keeps bytes of the host's own under a name, saved with the session; nothing that is
// computed depends on them. The limits are those of stasis_data.h.
func (s *Session) SetData(name string, value []byte) error {
	nothing := [1]byte{} // whose address says that there is a value
	bytes := first(value)
	if len(value) == 0 {
		bytes = &nothing[0]
	}
	return s.setData(name, bytes, len(value))
}

// RemoveData forgets a name; ErrNotFound: it is not there.
func (s *Session) RemoveData(name string) error {
	return s.setData(name, nil, 0)
}

func (s *Session) setData(name string, bytes *byte, length int) error {
	c := brief("set data")
	own := c.name(name)
	return s.call(c, func(session *C.stasis_session, failure *C.stasis_error) C.stasis_status {
		return C.stasis_session_set_data(session, own, unsafe.Pointer(bytes), C.size_t(length),
			failure)
	})
}

// name is a zero-terminated copy, also of an empty name.
func (c *call) name(name string) *C.char {
	if own := c.text("name", name); own != nil {
		return own
	}
	return (*C.char)(c.block(1))
}

// Data returns the bytes under a name; ErrNotFound: it is not there.
func (s *Session) Data(name string) ([]byte, error) {
	var value []byte
	c := brief("data")
	own := c.name(name)
	err := s.call(c, func(session *C.stasis_session,
		failure *C.stasis_error) (status C.stasis_status) {
		value, status = filled(256, func(buffer *byte, capacity C.size_t,
			length *C.size_t) C.stasis_status {
			return C.stasis_session_get_data(session, own, unsafe.Pointer(buffer), capacity,
				length, failure)
		})
		return status
	})
	return value, err
}

// Data returns the bytes that the session had under a name; ErrNotFound: it was not there.
func (s *Snapshot) Data(name string) ([]byte, error) {
	var value []byte
	c := brief("snapshot data")
	own := c.name(name)
	err := s.call(c, func(snapshot *C.stasis_snapshot,
		failure *C.stasis_error) (status C.stasis_status) {
		value, status = filled(256, func(buffer *byte, capacity C.size_t,
			length *C.size_t) C.stasis_status {
			return C.stasis_snapshot_get_data(snapshot, own, unsafe.Pointer(buffer), capacity,
				length, failure)
		})
		return status
	})
	return value, err
}

// ListData returns the names of the session's data, ascending by their bytes.
func (s *Session) ListData() ([]DataEntry, error) {
	var own []C.stasis_data_entry
	err := s.call(brief("list data"), func(session *C.stasis_session,
		failure *C.stasis_error) (status C.stasis_status) {
		own, status = filled(8, func(buffer *C.stasis_data_entry, capacity C.size_t,
			count *C.size_t) C.stasis_status {
			return C.stasis_session_list_data(session, buffer, C.sizeof_stasis_data_entry, capacity,
				count, failure)
		})
		return status
	})
	return entriesOf(own), err
}

// ListData returns the names of the data that the session had, ascending by their bytes.
func (s *Snapshot) ListData() ([]DataEntry, error) {
	var own []C.stasis_data_entry
	err := s.call(brief("list snapshot data"), func(snapshot *C.stasis_snapshot,
		failure *C.stasis_error) (status C.stasis_status) {
		own, status = filled(8, func(buffer *C.stasis_data_entry, capacity C.size_t,
			count *C.size_t) C.stasis_status {
			return C.stasis_snapshot_list_data(snapshot, buffer, C.sizeof_stasis_data_entry,
				capacity, count, failure)
		})
		return status
	})
	return entriesOf(own), err
}

func entriesOf(own []C.stasis_data_entry) []DataEntry {
	entries := make([]DataEntry, len(own))
	for i := range own {
		entries[i] = DataEntry{Name: C.GoString(&own[i].name[0]), Bytes: uint64(own[i].bytes)}
	}
	return entries
}

// Role says whose turn it is.
type Role uint32

const (
	RoleNone      Role = C.STASIS_ROLE_NONE // nobody's: tokens outside a template's turns
	RoleSystem    Role = C.STASIS_ROLE_SYSTEM
	RoleUser      Role = C.STASIS_ROLE_USER
	RoleAssistant Role = C.STASIS_ROLE_ASSISTANT
	RoleOther     Role = C.STASIS_ROLE_OTHER // such as "tool"
)

// Turn is one turn of a conversation; stasis_data.h says where turns begin and end.
type Turn struct {
	Role       Role
	Source     Source // of its content; SourceTemplate: it has none
	Begin, End uint64 // positions, with what the chat template added
	// Without what the template added at both ends: what Session.Text shows of it.
	ContentBegin, ContentEnd uint64
}

// Turns describes the turns of the log from the one that position `begin` is in.
func (s *Session) Turns(begin uint64) ([]Turn, error) {
	var own []C.stasis_turn
	err := s.call(brief("turns"), func(session *C.stasis_session,
		failure *C.stasis_error) (status C.stasis_status) {
		own, status = filled(16, func(buffer *C.stasis_turn, capacity C.size_t,
			count *C.size_t) C.stasis_status {
			return C.stasis_session_turns(session, C.uint64_t(begin), buffer, C.sizeof_stasis_turn,
				capacity, count, failure)
		})
		return status
	})
	return turnsOf(own), err
}

// Turns describes the turns of the log from the one that position `begin` is in.
func (s *Snapshot) Turns(begin uint64) ([]Turn, error) {
	var own []C.stasis_turn
	err := s.call(brief("snapshot turns"), func(snapshot *C.stasis_snapshot,
		failure *C.stasis_error) (status C.stasis_status) {
		own, status = filled(16, func(buffer *C.stasis_turn, capacity C.size_t,
			count *C.size_t) C.stasis_status {
			return C.stasis_snapshot_turns(snapshot, C.uint64_t(begin), buffer,
				C.sizeof_stasis_turn, capacity, count, failure)
		})
		return status
	})
	return turnsOf(own), err
}

func turnsOf(own []C.stasis_turn) []Turn {
	turns := make([]Turn, len(own))
	for i, turn := range own {
		turns[i] = Turn{
			Role: Role(turn.role), Source: Source(turn.source), Begin: uint64(turn.begin),
			End: uint64(turn.end), ContentBegin: uint64(turn.content_begin),
			ContentEnd: uint64(turn.content_end),
		}
	}
	return turns
}
