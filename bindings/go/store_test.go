// Stores: what is got goes on as what was put, no turn is lost, and backends of the host's own.

package stasis_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	stasis "stasis.example/stasis.git/bindings/go"
)

// memory is a backend whose methods can be told to fail. All objects are a minute old.
type memory struct {
	mutex    sync.Mutex
	objects  map[string][]byte
	marks    map[string]string
	count    int
	failing  string // a method
	err      error  // nil: it panics
	released int
}

func newMemory() *memory {
	return &memory{objects: map[string][]byte{}, marks: map[string]string{}}
}

func (m *memory) begin(method string) (func(), error) {
	m.mutex.Lock()
	if m.failing != method {
		return m.mutex.Unlock, nil
	}
	defer m.mutex.Unlock()
	if m.err == nil {
		panic("the memory is broken")
	}
	return nil, m.err
}

func (m *memory) Size(key string) (int64, error) {
	end, err := m.begin("Size")
	if err != nil {
		return 0, err
	}
	defer end()
	if m.objects[key] == nil {
		return 0, fs.ErrNotExist
	}
	return int64(len(m.objects[key])), nil
}

func (m *memory) Read(key string, offset int64, into []byte) error {
	end, err := m.begin("Read")
	if err != nil {
		return err
	}
	defer end()
	if m.objects[key] == nil || offset+int64(len(into)) > int64(len(m.objects[key])) {
		return stasis.ErrNotFound
	}
	copy(into, m.objects[key][offset:])
	return nil
}

func (m *memory) Put(key string, data []byte) error {
	end, err := m.begin("Put")
	if err != nil {
		return err
	}
	defer end()
	if m.objects[key] == nil {
		m.objects[key] = append([]byte{}, data...)
	}
	return nil
}

func (m *memory) GetRoot(key string) ([]byte, string, error) {
	end, err := m.begin("GetRoot")
	if err != nil {
		return nil, "", err
	}
	defer end()
	if m.objects[key] == nil {
		return nil, "", fs.ErrNotExist
	}
	return m.objects[key], m.marks[key], nil
}

func (m *memory) Swap(key, mark string, data []byte) (string, error) {
	end, err := m.begin("Swap")
	if err != nil {
		return "", err
	}
	defer end()
	if m.marks[key] != mark {
		return "", stasis.ErrConflict
	}
	delete(m.marks, key)
	delete(m.objects, key)
	if data == nil {
		return "", nil
	}
	m.count++
	m.objects[key] = append([]byte{}, data...)
	m.marks[key] = strings.Repeat("m", m.count)
	return m.marks[key], nil
}

func (m *memory) List(prefix string, visit func(string, int64, time.Duration) bool) error {
	end, err := m.begin("List")
	if err != nil {
		return err
	}
	var keys []string
	for key := range m.objects {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	end()
	sort.Strings(keys)
	for _, key := range keys {
		m.mutex.Lock()
		bytes := int64(len(m.objects[key]))
		m.mutex.Unlock()
		if !visit(key, bytes, time.Minute) {
			break
		}
	}
	return nil
}

func (m *memory) Remove(key string) error {
	end, err := m.begin("Remove")
	if err != nil {
		return err
	}
	defer end()
	delete(m.objects, key)
	return nil
}

func (m *memory) Release() {
	m.released++
}

// locked is the same with a lock.
type locked struct {
	*memory
	lock           sync.RWMutex
	writes, alones int
}

func (l *locked) Lock(collect bool) (func(), error) {
	end, err := l.begin("Lock")
	if err != nil {
		return nil, err
	}
	defer end()
	if collect {
		l.alones++
		l.lock.Lock()
		return l.lock.Unlock, nil
	}
	l.writes++
	l.lock.RLock()
	return l.lock.RUnlock, nil
}

// stores are of each kind.
func stores(t *testing.T) map[string]*stasis.Store {
	all := map[string]*stasis.Store{
		"dir":    must(stasis.OpenStore("dir:"+filepath.Join(t.TempDir(), "store"), nil))(t),
		"sqlite": must(stasis.OpenStore("sqlite:"+filepath.Join(t.TempDir(), "file"), nil))(t),
		"host":   must(stasis.NewStore(&locked{memory: newMemory()}, t.Name()))(t),
	}
	t.Cleanup(func() {
		for _, store := range all {
			store.Close()
		}
	})
	return all
}

func TestStoredSessionsGoOn(t *testing.T) {
	m := model(t, gemma)
	for kind, store := range stores(t) {
		for _, options := range []*stasis.StoreCallOptions{nil, {Codec: stasis.CodecZstd},
			{Keep: stasis.KeepNone}, {FullLogits: true}} {
			session := sessionOf(t, m, someTokens(100, 1))
			ok(t, session.SetConstraint(background,
				&stasis.Constraint{Kind: stasis.Regex, Text: "[a-z ]+"}))
			put := must(store.Put(background, session, kind, options))(t)
			equal(t, put.State, digest(t, session))
			got := must(store.Get(background, m, kind, nil))(t)
			equal(t, digest(t, got), digest(t, session))
			for i := 0; i < 5; i++ {
				equal(t, must(got.Decode())(t), must(session.Decode())(t))
			}
			equal(t, digest(t, got), digest(t, session))
			equal(t, must(store.Put(background, got, kind, nil))(t).Sequence, put.Sequence+1)
			ok(t, store.Remove(background, kind))
			got.Close()
		}
	}
}

func TestConflictSaysWhatIsThere(t *testing.T) {
	m := model(t, plain)
	for _, store := range stores(t) {
		first := sessionOf(t, m, someTokens(70, 1))
		must(store.Put(background, first, "s", nil))(t)
		second := must(store.Get(background, m, "s", nil))(t)
		fork := must(second.Fork())(t)
		ok(t, first.Append(background, someTokens(1, 2), nil))
		newer := must(store.Put(background, first, "s", nil))(t)
		for _, late := range []*stasis.Session{second, fork, sessionOf(t, m, someTokens(3, 1))} {
			_, err := store.Put(background, late, "s", nil)
			refused(t, err, stasis.ErrConflict, "session 's'")
			var conflict *stasis.ConflictError
			equal(t, errors.As(err, &conflict), true)
			equal(t, conflict.Root, newer.Root)
			equal(t, conflict.State, digest(t, first))
			var whole *stasis.Error
			equal(t, errors.As(err, &whole) && whole.Op == "put", true)
		}
		got := must(store.Get(background, m, "s", nil))(t)
		equal(t, digest(t, got), digest(t, first))
		got.Close()
		must(store.Put(background, second, "s", &stasis.StoreCallOptions{Overwrite: true}))(t)
		ok(t, store.Remove(background, "s"))
		_, err := store.Put(background, second, "s", nil)
		var conflict *stasis.ConflictError
		equal(t, errors.As(err, &conflict) && conflict.Root == stasis.Digest{}, true)
		refused(t, store.Remove(background, "s"), stasis.ErrNotFound)
		_, err = store.Get(background, m, "s", nil)
		refused(t, err, stasis.ErrNotFound, "'s'")
		second.Close()
		fork.Close()
	}
}

func TestStoreForksListsAndCollects(t *testing.T) {
	m := model(t, plain)
	for _, store := range stores(t) {
		session := sessionOf(t, m, someTokens(150, 1))
		put := must(store.Put(background, session, "a", nil))(t)
		shared := must(store.Put(background, sessionOf(t, m, someTokens(150, 1)), "b", nil))(t)
		equal(t, put.BytesShared == 0 && shared.BytesShared > shared.BytesWritten, true)
		equal(t, shared.BytesWritten < put.BytesWritten, true)
		ok(t, store.Fork(background, "a", "c", nil))
		refused(t, store.Fork(background, "a", "c", nil), stasis.ErrConflict)
		ok(t, store.Fork(background, "a", "c", &stasis.StoreCallOptions{Overwrite: true}))
		names := map[string]bool{}
		for _, each := range must(store.List(background))(t) {
			names[each.Name] = true
			equal(t, each.State, digest(t, session))
			equal(t, each.Model, must(m.Info())(t).Model)
			equal(t, each.Damage == "" && each.Position == 150 && each.Bytes > 0, true)
		}
		equal(t, len(names) == 3 && names["a"] && names["b"] && names["c"], true)
		refused(t, errorOf(store.List(done())), stasis.ErrCancelled)
		for name := range names {
			ok(t, store.Remove(background, name))
		}
		removed := uint64(0)
		collected := must(store.Collect(background, &stasis.StoreCallOptions{
			Progress: func(done, _ uint64) error { removed = done; return nil }}))(t)
		equal(t, collected.RemovedObjects, collected.Objects)
		equal(t, collected.RemovedBytes, collected.Bytes)
		equal(t, removed > 0, true)
		equal(t, collected.Bytes > 0 && collected.Sessions == 0, true)
	}
}

func errorOf[T any](_ T, err error) error {
	return err
}

func TestStoresAndFiles(t *testing.T) {
	m := model(t, plain)
	session := sessionOf(t, m, someTokens(100, 1))
	path := filepath.Join(t.TempDir(), "a")
	ok(t, session.Save(background, path, nil))
	for _, store := range stores(t) {
		imported := must(store.Import(background, path, "a", nil))(t)
		equal(t, imported.State, digest(t, session))
		_, err := store.Import(background, path, "a", nil)
		var conflict *stasis.ConflictError
		equal(t, errors.As(err, &conflict) && conflict.Root == imported.Root, true)
		out := filepath.Join(t.TempDir(), "out")
		refused(t, store.Export(done(), "a", out, nil), stasis.ErrCancelled)
		ok(t, store.Export(background, "a", out, nil))
		refused(t, store.Export(background, "a", out, nil), stasis.ErrInvalidArgument)
		again := must(m.Load(background, out, nil))(t)
		equal(t, digest(t, again), digest(t, session))
		again.Close()
		_, err = store.Import(background, path+"nowhere", "b", nil)
		equal(t, errors.Is(err, fs.ErrNotExist), true)
		err = store.Export(background, "b", out+"2", nil)
		equal(t, errors.Is(err, stasis.ErrNotFound) && !errors.Is(err, fs.ErrNotExist), true)

		snapshot := must(store.Snapshot(background, "a"))(t)
		store.Close()
		equal(t, must(snapshot.Info())(t).Digest, digest(t, session))
		report := must(snapshot.Verify(background, m, nil))(t)
		equal(t, report.Verified, true)
		snapshot.Close()
		_, err = store.List(background)
		equal(t, errors.Is(err, os.ErrClosed), true)
	}
}

func TestStoresThatAreNone(t *testing.T) {
	folder := t.TempDir()
	_, err := stasis.OpenStore("ftp:x", nil)
	refused(t, err, stasis.ErrUnsupported, "'ftp'")
	_, err = stasis.OpenStore("dir:"+folder+"/a", &stasis.StoreOptions{Existing: true})
	equal(t, errors.Is(err, fs.ErrNotExist), true)
	_, err = stasis.OpenStore("dir:a\x00b", nil)
	refused(t, err, stasis.ErrInvalidArgument, "zero byte")
	_, err = stasis.NewStore(newMemory(), "")
	refused(t, err, stasis.ErrInvalidArgument)
	store := must(stasis.OpenStore("dir:"+folder, nil))(t)
	session := private(t, model(t, plain))
	for _, name := range []string{"", strings.Repeat("x", 256), "a\x00b"} {
		_, err = store.Put(background, session, name, nil)
		refused(t, err, stasis.ErrInvalidArgument)
	}
	_, err = store.Collect(background, &stasis.StoreCallOptions{Grace: -1})
	refused(t, err, stasis.ErrInvalidArgument, "Grace")
	closed := must(session.Fork())(t)
	closed.Close()
	_, err = store.Put(background, closed, "a", nil)
	equal(t, errors.Is(err, os.ErrClosed), true)
	store.Close()
	store.Close()
}

func TestNoTurnIsLost(t *testing.T) {
	m := model(t, plain)
	for _, store := range stores(t) {
		must(store.Put(background, sessionOf(t, m, someTokens(40, 1)), "s", nil))(t)
		var group sync.WaitGroup
		for g := 0; g < 4; g++ {
			group.Add(1)
			go func(own stasis.Token, store *stasis.Store) {
				defer group.Done()
				for turns := 0; turns < 4; {
					session, err := store.Get(background, m, "s", nil)
					if err == nil {
						err = session.Append(background, []stasis.Token{own}, nil)
					}
					if err == nil {
						_, err = store.Put(background, session, "s", nil)
						session.Close()
					}
					if err == nil {
						turns++
					} else if !errors.Is(err, stasis.ErrConflict) {
						t.Error(err)
						return
					}
				}
			}(stasis.Token(g+10), store)
		}
		group.Wait()
		got := must(store.Get(background, m, "s", nil))(t)
		tokens, _, err := got.Tokens(40)
		ok(t, err)
		counts := map[stasis.Token]int{}
		for _, token := range tokens {
			counts[token]++
		}
		for g := stasis.Token(10); g < 14; g++ {
			equal(t, counts[g], 4)
		}
		got.Close()
	}
}

func TestBackendsErrorsComeBack(t *testing.T) {
	m := model(t, plain)
	own := errors.New("the memory is full")
	session := sessionOf(t, m, someTokens(300, 1))
	for method, call := range map[string]func(*stasis.Store) error{
		"Put":     func(s *stasis.Store) error { return errorOf(s.Put(background, session, "b", nil)) },
		"Swap":    func(s *stasis.Store) error { return errorOf(s.Put(background, session, "b", nil)) },
		"GetRoot": func(s *stasis.Store) error { return errorOf(s.Get(background, m, "a", nil)) },
		"Read":    func(s *stasis.Store) error { return errorOf(s.Get(background, m, "a", nil)) },
		"List":    func(s *stasis.Store) error { return errorOf(s.Collect(background, nil)) },
		"Remove":  func(s *stasis.Store) error { return errorOf(s.Collect(background, nil)) },
		"Lock":    func(s *stasis.Store) error { return s.Fork(background, "a", "b", nil) },
	} {
		backend := &locked{memory: newMemory()}
		store := must(stasis.NewStore(backend, t.Name()+method))(t)
		must(store.Put(background, session, "a", nil))(t)
		must(store.Put(background, sessionOf(t, m, someTokens(90, 5)), "gone", nil))(t)
		ok(t, store.Remove(background, "gone"))

		backend.failing, backend.err = method, own
		err := call(store)
		refused(t, err, stasis.ErrIO, "the backend's")
		equal(t, errors.Is(err, own), true)
		backend.err = stasis.ErrTimeout
		refused(t, call(store), stasis.ErrTimeout)
		backend.err = context.Canceled
		err = call(store)
		refused(t, err, stasis.ErrCancelled)
		equal(t, errors.Is(err, context.Canceled), true)
		backend.err = nil
		func() {
			defer func() { equal(t, recover() == "the memory is broken", true) }()
			t.Error(method, call(store))
		}()

		backend.failing = ""
		got := must(store.Get(background, m, "a", nil))(t)
		equal(t, digest(t, got), digest(t, session))
		got.Close()
		snapshot := must(store.Snapshot(background, "a"))(t)
		backend.failing, backend.err = "Read", own
		_, err = snapshot.Verify(background, m, nil)
		refused(t, err, stasis.ErrIO)
		equal(t, errors.Is(err, own), true)
		store.Close()
		equal(t, backend.released, 0) // the snapshot may read
		snapshot.Close()
		equal(t, backend.released, 1)
		equal(t, backend.writes > 0, true)
		equal(t, backend.lock.TryLock(), true) // all locks were given back
	}
}

func TestWithoutLocksAgesDecide(t *testing.T) {
	backend := newMemory()
	store := must(stasis.NewStore(backend, t.Name()))(t)
	defer store.Close()
	must(store.Put(background, sessionOf(t, model(t, plain), someTokens(90, 1)), "a", nil))(t)
	ok(t, store.Remove(background, "a"))
	for _, grace := range []time.Duration{0, 61 * time.Second} {
		options := &stasis.StoreCallOptions{Grace: grace}
		equal(t, must(store.Collect(background, options))(t).RemovedObjects, 0)
	}
	options := &stasis.StoreCallOptions{Grace: 59 * time.Second}
	equal(t, must(store.Collect(background, options))(t).RemovedObjects > 0, true)
}
