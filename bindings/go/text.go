// Text: between text, tokens and whole conversations.

package stasis

// #include <stasis.h>
import "C"

import "unsafe"

// TokenizeFlags, zero or more of them.
type TokenizeFlags uint32

const (
	TokenizeBOS     TokenizeFlags = C.STASIS_TOKENIZE_BOS     // begin with the bos token
	TokenizeSpecial TokenizeFlags = C.STASIS_TOKENIZE_SPECIAL // markers become special tokens
)

// DetokenizeFlags, zero or more of them.
type DetokenizeFlags uint32

const (
	DetokenizeSpecial DetokenizeFlags = C.STASIS_DETOKENIZE_SPECIAL // special tokens as markers
	DetokenizeMiddle  DetokenizeFlags = C.STASIS_DETOKENIZE_MIDDLE  // keep a leading space
	DetokenizePiece   DetokenizeFlags = C.STASIS_DETOKENIZE_PIECE   // as the vocabulary spells it
)

// A Message is a turn of a conversation.
type Message struct {
	Role string // "system", "user", "assistant", or what else the template knows
	Text string
}

// RenderFlags, zero or more of them.
type RenderFlags uint32

// RenderReply ends with the prompt for a reply.
const RenderReply RenderFlags = C.STASIS_RENDER_REPLY

// filled reads what has a size that only the library knows: into a buffer that grows until it is
// large enough.
func filled[T any](guess int, read func(buffer *T, capacity C.size_t,
	count *C.size_t) C.stasis_status) ([]T, C.stasis_status) {
	buffer := make([]T, guess)
	for {
		var count C.size_t
		status := read(first(buffer), C.size_t(len(buffer)), &count)
		if status == C.STASIS_OK {
			return buffer[:count], status
		} else if status != C.STASIS_BUFFER_TOO_SMALL {
			return nil, status
		}
		buffer = make([]T, count)
	}
}

// Tokenize makes tokens of a text.
func (m *Model) Tokenize(text string, flags TokenizeFlags) ([]Token, error) {
	var tokens []Token
	c := brief("tokenize")
	bytes := []byte(text)
	err := m.call(c, func(model *C.stasis_model,
		failure *C.stasis_error) (status C.stasis_status) {
		tokens, status = filled(len(text)/2+8, func(buffer *Token, capacity C.size_t,
			count *C.size_t) C.stasis_status {
			return C.stasis_model_tokenize(model, (*C.char)(unsafe.Pointer(first(bytes))),
				C.size_t(len(bytes)), C.uint32_t(flags), (*C.stasis_token)(buffer), capacity,
				count, failure)
		})
		return status
	})
	return tokens, err
}

// Detokenize makes text of tokens; it may begin or end within a UTF-8 character.
func (m *Model) Detokenize(tokens []Token, flags DetokenizeFlags) (string, error) {
	var text []byte
	err := m.call(brief("detokenize"), func(model *C.stasis_model,
		failure *C.stasis_error) (status C.stasis_status) {
		text, status = filled(8*len(tokens)+8, func(buffer *byte, capacity C.size_t,
			length *C.size_t) C.stasis_status {
			return C.stasis_model_detokenize(model, tokenArray(tokens), C.size_t(len(tokens)),
				C.uint32_t(flags), (*C.char)(unsafe.Pointer(buffer)), capacity, length, failure)
		})
		return status
	})
	return string(text), err
}

// Render puts a whole conversation through the model's chat template.
func (m *Model) Render(messages []Message, flags RenderFlags) (string, error) {
	c := brief("render")
	given := make([]C.stasis_message, len(messages))
	for i, message := range messages {
		given[i].struct_size = C.sizeof_stasis_message
		given[i].role = c.role(message.Role)
		given[i].text = (*C.char)(unsafe.Pointer(first(array(c, []byte(message.Text)))))
		given[i].length = C.size_t(len(message.Text))
	}
	var text []byte
	err := m.call(c, func(model *C.stasis_model,
		failure *C.stasis_error) (status C.stasis_status) {
		text, status = filled(1024, func(buffer *byte, capacity C.size_t,
			length *C.size_t) C.stasis_status {
			return C.stasis_model_render(model, first(given), C.sizeof_stasis_message,
				C.size_t(len(given)), C.uint32_t(flags), (*C.char)(unsafe.Pointer(buffer)),
				capacity, length, failure)
		})
		return status
	})
	return string(text), err
}

// role is never nil: an empty role is the template's to refuse.
func (c *call) role(role string) *C.char {
	if role == "" {
		return (*C.char)(c.block(1))
	}
	return c.text("the role", role)
}

func tokenArray(tokens []Token) *C.stasis_token {
	return (*C.stasis_token)(unsafe.Pointer(first(tokens)))
}
