// What a host keeps in a session, and the turns of its log.

package stasis_test

import (
	"bytes"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	stasis "stasis.example/stasis.git/bindings/go"
)

func TestData(t *testing.T) {
	m := model(t, plain)
	session := sessionOf(t, m, someTokens(20, 1))
	before := digest(t, session)
	equal(t, len(must(session.ListData())(t)), 0)
	large := bytes.Repeat([]byte("0123456789"), 30000)
	ok(t, session.SetData("title", []byte("About k")))
	ok(t, session.SetData("user", nil))
	ok(t, session.SetData("\u00e9", large))
	equal(t, digest(t, session), before)
	child := must(session.Fork())(t)
	defer child.Close()
	ok(t, child.SetData("title", []byte("Another")))
	ok(t, child.RemoveData("user"))
	_, err := child.Data("user")
	refused(t, err, stasis.ErrNotFound, "user")

	ok(t, session.Rewind(background, 0, 0, nil))
	expected := []stasis.DataEntry{{Name: "title", Bytes: 7}, {Name: "user"},
		{Name: "\u00e9", Bytes: uint64(len(large))}}
	equal(t, reflect.DeepEqual(must(session.ListData())(t), expected), true)
	path := filepath.Join(t.TempDir(), "s")
	ok(t, session.Save(background, path, nil))
	snapshot := must(stasis.OpenSnapshot(path))(t)
	defer snapshot.Close()
	equal(t, reflect.DeepEqual(must(snapshot.ListData())(t), expected), true)
	equal(t, bytes.Equal(must(snapshot.Data("\u00e9"))(t), large), true)
	_, err = snapshot.Data("nothing")
	refused(t, err, stasis.ErrNotFound)
	loaded := must(m.Load(background, path, nil))(t)
	defer loaded.Close()
	equal(t, string(must(loaded.Data("title"))(t)), "About k")
	equal(t, len(must(loaded.Data("user"))(t)), 0)
	equal(t, bytes.Equal(must(loaded.Data("\u00e9"))(t), large), true)
}

func TestDataThatIsRefused(t *testing.T) {
	session := private(t, model(t, plain))
	ok(t, session.SetData("a", []byte("b")))
	for _, name := range []string{"", strings.Repeat("n", 256), "a\x00b", "\xff"} {
		refused(t, session.SetData(name, []byte("x")), stasis.ErrInvalidArgument)
	}
	refused(t, session.SetData("a", make([]byte, 1<<24+1)), stasis.ErrUnsupported, "16777216")
	refused(t, session.RemoveData("b"), stasis.ErrNotFound)
	refused(t, session.RemoveData(""), stasis.ErrInvalidArgument)
	equal(t, must(session.ListData())(t)[0], stasis.DataEntry{Name: "a", Bytes: 1})
}

func TestTurns(t *testing.T) {
	session := asked(t, llama)
	generate(t, session, nil)
	turns := must(session.Turns(0))(t)
	equal(t, len(turns), 2)
	equal(t, turns[0].Role, stasis.RoleUser)
	equal(t, turns[0].Source, stasis.SourceText)
	equal(t, turns[1].Role, stasis.RoleAssistant)
	equal(t, turns[1].Source, stasis.SourceSampled)
	equal(t, turns[0].Begin, 0)
	equal(t, turns[0].End, turns[1].Begin)
	equal(t, turns[1].End, position(t, session))
	text := must(session.Text(turns[0].ContentBegin, turns[0].ContentEnd))(t)
	equal(t, strings.Contains(text, "What is k?"), true)
	equal(t, must(session.Turns(turns[1].Begin))(t)[0], turns[1])
	_, err := session.Turns(turns[1].End + 1)
	refused(t, err, stasis.ErrInvalidArgument, "begin")

	path := filepath.Join(t.TempDir(), "s")
	ok(t, session.Save(background, path, nil))
	snapshot := must(stasis.OpenSnapshot(path))(t)
	defer snapshot.Close()
	equal(t, reflect.DeepEqual(must(snapshot.Turns(0))(t), turns), true)
	bare := must(sessionOf(t, model(t, plain), someTokens(3, 1)).Turns(0))(t)
	equal(t, len(bare), 1)
	equal(t, bare[0], stasis.Turn{End: 3, ContentEnd: 3})
}
