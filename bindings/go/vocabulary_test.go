// Vocabularies: pieces, kinds and scores of tokens; how the library was built.

package stasis_test

import (
	"fmt"
	"strings"
	"testing"

	stasis "stasis.example/stasis.git/bindings/go"
)

func TestVocabulary(t *testing.T) {
	m := model(t, "recall-gemma3")
	info := must(m.Info())(t)
	tokens := must(m.Vocabulary())(t)
	equal(t, len(tokens), info.Vocabulary)
	kinds := map[stasis.TokenKind]int{}
	ends, negative := 0, 0
	for i, token := range tokens {
		piece := must(m.Detokenize([]stasis.Token{stasis.Token(i)}, stasis.DetokenizePiece))(t)
		equal(t, token.Piece, piece)
		kinds[token.Kind]++
		if token.Ends {
			ends++
		}
		if token.Scored && token.Score < 0 {
			negative++
		}
	}
	equal(t, kinds[stasis.TokenByte], 256)
	equal(t, kinds[stasis.TokenUnknown], 1)
	equal(t, kinds[stasis.TokenSpecial] >= 4, true)
	equal(t, ends, len(info.EndTokens))
	equal(t, negative > 50, true)
	equal(t, must(m.TokenInfo(7))(t), tokens[7])

	_, err := m.TokenInfo(stasis.Token(info.Vocabulary))
	refused(t, err, stasis.ErrInvalidArgument, "vocabulary")
	_, err = model(t, embedding).Vocabulary()
	refused(t, err, stasis.ErrUnsupported, "tokenizer")
}

func TestBuild(t *testing.T) {
	v := stasis.Version()
	begin := fmt.Sprintf("%d.%d.%d (", v>>16, v>>8&255, v&255)
	equal(t, strings.HasPrefix(stasis.Build(), begin), true)
}
