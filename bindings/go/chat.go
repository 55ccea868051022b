// Chat: conversations in JSON, see stasis_chat.h.

package stasis

// #include "bridge.h"
import "C"

import (
	"context"
	"unsafe"
)

// ChatFlags, zero or more of them.
type ChatFlags uint32

// ChatReply ends with the prompt for a reply.
const ChatReply ChatFlags = C.STASIS_CHAT_REPLY

// RenderChat renders a conversation in JSON, with its tools and switches (stasis_chat.h), through
// the template in the model's own files.
func (m *Model) RenderChat(conversation string, flags ChatFlags) (string, error) {
	var text []byte
	bytes := []byte(conversation)
	err := m.call(brief("render chat"), func(model *C.stasis_model,
		failure *C.stasis_error) (status C.stasis_status) {
		text, status = filled(2*len(bytes)+1024, func(buffer *byte, capacity C.size_t,
			length *C.size_t) C.stasis_status {
			return C.stasis_model_render_chat(model, (*C.char)(unsafe.Pointer(first(bytes))),
				C.size_t(len(bytes)), C.uint32_t(flags), (*C.char)(unsafe.Pointer(buffer)),
				capacity, length, failure)
		})
		return status
	})
	return string(text), err
}

// AppendChat appends what the log lacks of a conversation in JSON, rendered by the model's own
// template, and returns the session's position. If the log differs from the rendering, nothing is
// appended: the error is ErrConflict, and the position that of the first difference. After Rewind
// to it, the same call appends. Options may be nil.
func (s *Session) AppendChat(ctx context.Context, conversation string, flags ChatFlags,
	options *RunOptions) (uint64, error) {
	c := begin(ctx, "append chat")
	given := c.runOptions(options)
	bytes := []byte(conversation)
	var position C.uint64_t
	err := s.call(c, func(session *C.stasis_session, failure *C.stasis_error) C.stasis_status {
		return C.stasis_session_append_chat(session, (*C.char)(unsafe.Pointer(first(bytes))),
			C.size_t(len(bytes)), C.uint32_t(flags), &position, given, failure)
	})
	return uint64(position), err
}

// ChatTokens gives what AppendChat appends, and appends nothing. The position is the first one that
// the log lacks or has otherwise, where the tokens follow: after Rewind to it AppendChat, and a
// scheduler, take the conversation.
func (s *Session) ChatTokens(conversation string, flags ChatFlags) ([]Token, uint64, error) {
	var tokens []Token
	var position C.uint64_t
	bytes := []byte(conversation)
	err := s.call(brief("chat tokens"), func(session *C.stasis_session,
		failure *C.stasis_error) (status C.stasis_status) {
		tokens, status = filled(256, func(buffer *Token, capacity C.size_t,
			count *C.size_t) C.stasis_status {
			return C.stasis_session_chat_tokens(session, (*C.char)(unsafe.Pointer(first(bytes))),
				C.size_t(len(bytes)), C.uint32_t(flags), &position,
				(*C.stasis_token)(unsafe.Pointer(buffer)), capacity, count, failure)
		})
		return status
	})
	return tokens, uint64(position), err
}

// Reply gives what follows the last generation prompt as a message in JSON: content, thoughts and
// tool calls. The conversation, which may be empty, tells the tools' types. Until the reply has
// ended, or is complete, what may still become a call is held back.
func (s *Session) Reply(conversation string, complete bool) (string, error) {
	var text []byte
	var flags C.uint32_t
	if complete {
		flags = C.STASIS_REPLY_COMPLETE
	}
	bytes := []byte(conversation)
	err := s.call(brief("reply"), func(session *C.stasis_session,
		failure *C.stasis_error) (status C.stasis_status) {
		text, status = filled(1024, func(buffer *byte, capacity C.size_t,
			length *C.size_t) C.stasis_status {
			return C.stasis_session_reply(session, (*C.char)(unsafe.Pointer(first(bytes))),
				C.size_t(len(bytes)), flags, (*C.char)(unsafe.Pointer(buffer)), capacity, length,
				failure)
		})
		return status
	})
	return string(text), err
}
