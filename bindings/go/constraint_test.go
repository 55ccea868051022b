// Constraints: replies are texts of them, in files too; masks of the host's own; refusals.

package stasis_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"regexp"
	"testing"

	stasis "stasis.example/stasis.git/bindings/go"
)

const person = `{"type": "object", "properties": {"name": {"type": "string", "maxLength": 8},
	"age": {"type": "integer", "minimum": 0, "maximum": 120}}, "required": ["name", "age"],
	"additionalProperties": false}`

func replyUnder(t testing.TB, session *stasis.Session, constraint *stasis.Constraint) string {
	t.Helper()
	ok(t, session.SetConstraint(background, constraint))
	text := ""
	_, err := session.Generate(background, &stasis.GenerateOptions{TokensMax: 100},
		func(generated stasis.Generated) error {
			text += generated.Text
			return nil
		})
	ok(t, err)
	return text
}

func TestConstraint(t *testing.T) {
	session := asked(t, llama)
	text := replyUnder(t, session, &stasis.Constraint{Kind: stasis.JSONSchema, Text: person})
	var found struct {
		Name string
		Age  int
	}
	ok(t, json.Unmarshal([]byte(text), &found))
	if found.Age < 0 || found.Age > 120 || len(found.Name) > 8 {
		t.Errorf("%s does not fit the schema", text)
	}
	ok(t, session.AppendMessage(background, stasis.Message{Role: "user", Text: question},
		stasis.MessageReply, nil))
	matched := regexp.MustCompile(`^(yes|no), [a-z]{2,9}[.!]$`)
	text = replyUnder(t, session,
		&stasis.Constraint{Kind: stasis.Regex, Text: "(yes|no), [a-z]{2,9}[.!]"})
	equal(t, matched.MatchString(text), true)

	// A file continues under its constraint, and is verified under both.
	file := filepath.Join(t.TempDir(), "a.stasis")
	ok(t, session.Save(background, file, nil))
	snapshot := must(stasis.OpenSnapshot(file))(t)
	defer snapshot.Close()
	report := must(snapshot.Verify(background, model(t, llama), nil))(t)
	equal(t, report.DrawnOtherwise, 0)
	loaded := must(model(t, llama).Load(background, file, nil))(t)
	defer loaded.Close()
	for _, each := range []*stasis.Session{session, loaded} {
		ok(t, each.AppendMessage(background, stasis.Message{Role: "user", Text: "again"},
			stasis.MessageReply, nil))
	}
	first, second := must(session.Decode())(t), must(loaded.Decode())(t)
	equal(t, first, second)
	ok(t, session.SetConstraint(background, nil))
}

func TestConstraintRefusals(t *testing.T) {
	session := asked(t, llama)
	refused(t, session.SetConstraint(background,
		&stasis.Constraint{Kind: stasis.JSONSchema, Text: `{"multipleOf": 3}`}),
		stasis.ErrUnsupported, "multipleOf", "byte 0")
	refused(t, session.SetConstraint(background,
		&stasis.Constraint{Kind: stasis.Regex, Text: "a("}), stasis.ErrInvalidArgument, "byte 1")
	done, cancel := context.WithCancel(background)
	cancel()
	refused(t, session.SetConstraint(done, &stasis.Constraint{Kind: stasis.JSON}),
		stasis.ErrCancelled)
}

func TestAllowed(t *testing.T) {
	session := asked(t, llama)
	bits := make([]uint32, 1024/32)
	bits[3] = 1 << 7
	ok(t, session.SetAllowed(bits))
	equal(t, must(session.Decode())(t), 3*32+7)
	ok(t, session.SetAllowed(bits))
	ok(t, session.SetConstraint(background, &stasis.Constraint{Kind: stasis.JSON}))
	bits[3] = 0
	refused(t, session.SetAllowed(bits), stasis.ErrInvalidArgument, "none")
	refused(t, session.SetAllowed(bits[:3]), stasis.ErrInvalidArgument, "32")
	ok(t, session.SetAllowed(nil))
}
