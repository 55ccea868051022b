// The C library's golden files, made once, and the digests of their continuation.

package stasis_test

import (
	"encoding/json"
	"os"
	"testing"

	stasis "stasis.example/stasis.git/bindings/go"
)

func TestGoldenFilesGoOn(t *testing.T) {
	for _, folder := range []string{"golden/v1/", "golden/constraints/"} {
		goldenFilesGoOn(t, data+folder)
	}
}

func goldenFilesGoOn(t *testing.T, folder string) {
	t.Helper()
	var files []struct {
		Name, Model, Digest, Root string
		Position, Commits         uint64
		Next, Reply               []stasis.Token
		Then                      string `json:"digest_then"`
	}
	ok(t, json.Unmarshal(must(os.ReadFile(folder+"golden.json"))(t), &files))
	equal(t, len(files) > 3, true)
	for _, file := range files {
		path := folder + file.Name
		snapshot := must(stasis.OpenSnapshot(path))(t)
		info := must(snapshot.Info())(t)
		report := must(snapshot.Verify(background, model(t, file.Model), nil))(t)
		equal(t, report.DrawnOtherwise, 0)
		ok(t, snapshot.Close())
		equal(t, info.Root.String(), file.Root)
		equal(t, info.Commits, file.Commits)
		session := must(model(t, file.Model).Load(background, path,
			&stasis.LoadOptions{AcceptOlder: file.Name == "slot.stasis"}))(t)
		equal(t, position(t, session), file.Position)
		equal(t, digest(t, session).String(), file.Digest)
		for _, token := range file.Next {
			equal(t, must(session.Decode())(t), token)
		}
		ok(t, session.AppendMessage(background,
			stasis.Message{Role: "user", Text: "and you?"}, stasis.MessageReply, nil))
		for _, token := range file.Reply {
			equal(t, must(session.Decode())(t), token)
		}
		equal(t, digest(t, session).String(), file.Then)
		ok(t, session.Close())
	}
}

// The eight turns that transformers gave for the same weights, and that the C tests hold to.
func TestRecordedConversations(t *testing.T) {
	for _, name := range []string{llama, gemma} {
		var recorded struct {
			Turns []struct {
				User, Reply string
			}
		}
		ok(t, json.Unmarshal(must(os.ReadFile(data+name+"/conversation.json"))(t), &recorded))
		session := private(t, model(t, name))
		for _, turn := range recorded.Turns {
			ok(t, session.AppendMessage(background,
				stasis.Message{Role: "user", Text: turn.User}, stasis.MessageReply, nil))
			all, _ := generate(t, session, nil)
			equal(t, textOf(all), turn.Reply)
		}
	}
}
