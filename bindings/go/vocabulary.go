// Vocabularies: what the tokens of a model are.

package stasis

// #include <stasis.h>
import "C"

// TokenKind is what a token is.
type TokenKind uint32

const (
	TokenNormal  TokenKind = C.STASIS_TOKEN_NORMAL  // stands for its text
	TokenUnknown TokenKind = C.STASIS_TOKEN_UNKNOWN // what the vocabulary has no token for
	TokenSpecial TokenKind = C.STASIS_TOKEN_SPECIAL // marks structure; no plain text becomes it
	TokenUnused  TokenKind = C.STASIS_TOKEN_UNUSED  // the tokenizer has no text for it
	TokenByte    TokenKind = C.STASIS_TOKEN_BYTE    // one byte, spelled <0x0A>
)

// TokenInfo describes a token of the vocabulary.
type TokenInfo struct {
	Piece  string // as the vocabulary spells it; not always UTF-8
	Kind   TokenKind
	Ends   bool    // it ends replies
	Scored bool    // the vocabulary gives it a score
	Score  float32 // finite; 0 without Scored
}

// TokenInfo describes one token.
func (m *Model) TokenInfo(token Token) (TokenInfo, error) {
	infos, err := m.tokenInfos(token, 1)
	if err != nil {
		return TokenInfo{}, err
	}
	return infos[0], nil
}

// Vocabulary describes all tokens, by their numbers.
func (m *Model) Vocabulary() ([]TokenInfo, error) {
	info, err := m.Info()
	if err != nil {
		return nil, err
	}
	return m.tokenInfos(0, info.Vocabulary)
}

func (m *Model) tokenInfos(begin Token, count int) ([]TokenInfo, error) {
	infos := make([]TokenInfo, 0, count)
	own := C.stasis_token_info{struct_size: C.sizeof_stasis_token_info}
	err := m.call(brief("token info"), func(model *C.stasis_model,
		failure *C.stasis_error) C.stasis_status {
		for i := 0; i < count; i++ {
			token := C.stasis_token(begin) + C.stasis_token(i)
			status := C.stasis_model_get_token(model, token, &own, failure)
			if status != C.STASIS_OK {
				return status
			}
			// While the model lives: it owns the piece.
			infos = append(infos, TokenInfo{
				Piece:  C.GoStringN(own.piece, C.int(own.length)),
				Kind:   TokenKind(own.kind),
				Ends:   own.flags&C.STASIS_TOKEN_ENDS != 0,
				Scored: own.flags&C.STASIS_TOKEN_SCORED != 0,
				Score:  float32(own.score),
			})
		}
		return C.STASIS_OK
	})
	return infos, err
}
