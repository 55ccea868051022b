//! Stores: what is got goes on as what was put, no turn is lost, and backends of the host's own.
mod fixture;
use fixture::*;
use stasis::*;
use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// What a method of the memory does in place of its work.
#[derive(Clone, Copy, PartialEq)]
enum Broken {
    Error,
    Timeout,
    Panic,
}

#[derive(Default)]
struct Contents {
    objects: BTreeMap<String, (Vec<u8>, String)>,
    marks: usize,
    broken: Option<(&'static str, Broken)>,
    wrong_mark: bool,
    locked: usize,
    alone: usize,
}

/// A backend in memory. All objects are a minute old.
#[derive(Clone, Default)]
struct Memory {
    contents: Arc<Mutex<Contents>>,
    held: Arc<()>, // by each lock
    locks: bool,
}

impl Memory {
    fn locked() -> Memory {
        Memory { locks: true, ..Default::default() }
    }

    fn set(&self, broken: Option<(&'static str, Broken)>) {
        self.contents.lock().unwrap().broken = broken;
    }

    fn begin(&self, method: &str) -> io::Result<MutexGuard<'_, Contents>> {
        let contents = self.contents.lock().unwrap();
        match contents.broken {
            Some((broken, how)) if broken == method => {
                drop(contents);
                match how {
                    Broken::Error => Err(io::Error::new(io::ErrorKind::Other, "of the memory")),
                    Broken::Timeout => Err(io::ErrorKind::TimedOut.into()),
                    Broken::Panic => panic!("the memory is broken"),
                }
            }
            _ => Ok(contents),
        }
    }
}

impl Backend for Memory {
    fn size(&self, key: &str) -> io::Result<Option<u64>> {
        Ok(self.begin("size")?.objects.get(key).map(|(data, _)| data.len() as u64))
    }

    fn read(&self, key: &str, offset: u64, buffer: &mut [u8]) -> io::Result<bool> {
        let contents = self.begin("read")?;
        let begin = offset as usize;
        let part = contents
            .objects
            .get(key)
            .and_then(|(data, _)| data.get(begin..begin + buffer.len()))
            .map(|part| buffer.copy_from_slice(part));
        Ok(part.is_some())
    }

    fn put(&self, key: &str, data: &[u8]) -> io::Result<()> {
        let mut contents = self.begin("put")?;
        contents.objects.entry(key.into()).or_insert_with(|| (data.to_vec(), String::new()));
        Ok(())
    }

    fn get_root(&self, key: &str) -> io::Result<Option<(Vec<u8>, String)>> {
        Ok(self.begin("get_root")?.objects.get(key).cloned())
    }

    fn swap(&self, key: &str, mark: Option<&str>, data: &[u8]) -> io::Result<Option<String>> {
        let mut contents = self.begin("swap")?;
        if contents.objects.get(key).map(|(_, mark)| mark.as_str()) != mark {
            return Ok(None);
        }
        contents.marks += 1;
        let made =
            if contents.wrong_mark { String::new() } else { format!("mark {}", contents.marks) };
        contents.objects.insert(key.into(), (data.to_vec(), made.clone()));
        Ok(Some(made))
    }

    fn remove_root(&self, key: &str, mark: &str) -> io::Result<bool> {
        let mut contents = self.begin("swap")?;
        let there = contents.objects.get(key).map_or(false, |(_, own)| own == mark);
        if there {
            contents.objects.remove(key);
        }
        Ok(there)
    }

    fn list(&self, prefix: &str, visit: VisitFn<'_>) -> io::Result<()> {
        let listed: Vec<(String, u64)> = self
            .begin("list")?
            .objects
            .iter()
            .filter(|(key, _)| key.starts_with(prefix))
            .map(|(key, (data, _))| (key.clone(), data.len() as u64))
            .collect();
        for (key, bytes) in listed {
            if !visit(&key, bytes, Duration::from_secs(60)) {
                break;
            }
        }
        Ok(())
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        self.begin("remove")?.objects.remove(key);
        Ok(())
    }

    fn locks(&self) -> bool {
        self.locks
    }

    fn lock(&self, collect: bool) -> io::Result<Box<dyn Any + Send>> {
        let mut contents = self.begin("lock")?;
        contents.locked += 1;
        contents.alone += usize::from(collect);
        Ok(Box::new(Arc::clone(&self.held)))
    }
}

/// Stores of each kind, and the folder that they are in.
fn stores() -> (Folder, Vec<Store>) {
    let folder = Folder::new();
    let uri = |scheme: &str, name: &str| format!("{scheme}:{}", folder.file(name).display());
    let stores = vec![
        Store::open(&uri("dir", "d"), Default::default()).unwrap(),
        Store::open(&uri("sqlite", "s"), Default::default()).unwrap(),
        Store::over(Memory::locked(), &uri("memory", "m")).unwrap(),
    ];
    (folder, stores)
}

fn overwrite<'a>() -> StoreCallOptions<'a> {
    StoreCallOptions { overwrite: true, ..Default::default() }
}

fn put(store: &Store, session: &mut Session, name: &str) -> Result<StoreResult> {
    store.put(session, name, Default::default())
}

fn get(store: &Store, model: &Model, name: &str) -> Session {
    store.get(model, name, Default::default()).unwrap()
}

#[test]
fn what_is_got_goes_on() {
    let model = gemma();
    let (_folder, stores) = stores();
    for store in &stores {
        for (codec, keep) in
            [(Codec::Raw, Keep::Full), (Codec::Zstd, Keep::Full), (Codec::Default, Keep::None)]
        {
            let mut session = asked(&model);
            session.set_constraint(Constraint::Regex("k is [0-9]+\\."), None).unwrap();
            let full_logits = keep == Keep::Full;
            let options = StoreCallOptions { codec, keep, full_logits, ..Default::default() };
            let done = store.put(&mut session, "talk", options).unwrap();
            assert_eq!((done.state, done.bytes_shared), (session.digest().unwrap(), 0));
            let mut got = get(store, &model, "talk");
            assert_eq!(got.digest().unwrap(), session.digest().unwrap());
            for _ in 0..5 {
                assert_eq!(got.decode().unwrap(), session.decode().unwrap());
            }
            assert_eq!(got.digest().unwrap(), session.digest().unwrap());
            assert_eq!(put(store, &mut got, "talk").unwrap().sequence, done.sequence + 1);
            store.remove("talk", Default::default()).unwrap();
            store.collect(Default::default()).unwrap();
        }
    }
}

#[test]
fn a_conflict_says_what_is_there() {
    let model = tiny();
    let (_folder, stores) = stores();
    for store in &stores {
        let mut first = session_of(&model, &some_tokens(70, 1));
        put(store, &mut first, "s").unwrap();
        let mut second = get(store, &model, "s");
        let mut fork = second.fork().unwrap();
        first.append(&[5], Default::default()).unwrap();
        let newer = put(store, &mut first, "s").unwrap();
        let mut stranger = session_of(&model, &some_tokens(3, 1));
        for late in [&mut second, &mut fork, &mut stranger] {
            let error = put(store, late, "s").unwrap_err();
            assert_eq!((error.status(), error.root()), (Status::Conflict, Some(newer.root)));
            assert_eq!(error.state(), Some(first.digest().unwrap()));
            assert!(error.message().contains("session 's'"), "{error}");
        }
        assert_eq!(get(store, &model, "s").digest().unwrap(), first.digest().unwrap());
        assert_eq!(store.put(&mut second, "s", overwrite()).unwrap().sequence, 3);
        assert_eq!(get(store, &model, "s").digest().unwrap(), second.digest().unwrap());
        store.remove("s", Default::default()).unwrap();
        let error = put(store, &mut second, "s").unwrap_err();
        assert_eq!((error.status(), error.root(), error.state()), (Status::Conflict, None, None));
        assert_eq!(status(store.remove("s", Default::default())), Status::NotFound);
        assert_eq!(status(store.get(&model, "s", Default::default())), Status::NotFound);
    }
}

#[test]
fn lists_forks_files_and_collection() {
    let model = tiny();
    let (folder, stores) = stores();
    let mut session = session_of(&model, &some_tokens(150, 1));
    let file = folder.file("a.stasis");
    session.save(&file, Default::default()).unwrap();
    for (number, store) in stores.into_iter().enumerate() {
        let done = store.import(&file, "a", Default::default()).unwrap();
        assert_eq!(done.state, session.digest().unwrap());
        let error = store.import(&file, "a", Default::default()).unwrap_err();
        assert_eq!((error.status(), error.root()), (Status::Conflict, Some(done.root)));
        let alike = put(&store, &mut session_of(&model, &some_tokens(150, 1)), "b").unwrap();
        assert!(alike.bytes_shared > alike.bytes_written);
        store.fork("a", "c", Default::default()).unwrap();
        assert_eq!(status(store.fork("a", "c", Default::default())), Status::Conflict);
        store.fork("a", "c", overwrite()).unwrap();
        let mut listed = store.list(Default::default()).unwrap();
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        let names: Vec<&str> = listed.iter().map(|each| each.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        for each in &listed {
            assert_eq!((each.state, each.position), (session.digest().unwrap(), 150));
            assert_eq!(each.model, model.info().unwrap().model);
            assert!(each.damage.is_none() && each.bytes > 0);
        }
        let out = folder.file(&format!("out{number}"));
        store.export("b", &out, Default::default()).unwrap();
        let loaded = Session::load(&model, &out, Default::default()).unwrap();
        assert_eq!(loaded.digest().unwrap(), session.digest().unwrap());
        assert_eq!(status(store.export("b", &out, Default::default())), Status::InvalidArgument);

        let cancel = Cancel::new().unwrap();
        cancel.request();
        let options = StoreCallOptions { cancel: Some(&cancel), ..Default::default() };
        assert_eq!(status(store.list(options)), Status::Cancelled);
        let mut stop = |_, _| ControlFlow::Break(());
        let options = StoreCallOptions { progress: Some(&mut stop), ..Default::default() };
        assert_eq!(status(store.put(&mut session, "d", options)), Status::Stopped);

        let snapshot = store.snapshot("b", Default::default()).unwrap();
        for name in ["a", "c"] {
            store.remove(name, Default::default()).unwrap();
        }
        assert_eq!(store.collect(Default::default()).unwrap().sessions, 1);
        drop(store);
        assert_eq!(snapshot.info().unwrap().digest, session.digest().unwrap());
        assert_eq!(snapshot.tokens(0).unwrap(), session.tokens(0).unwrap());
        assert!(snapshot.verify(&model, Default::default()).is_ok());
    }
}

#[test]
fn threads_lose_no_turn() {
    let model = tiny();
    let (_folder, stores) = stores();
    for store in &stores {
        put(store, &mut session_of(&model, &some_tokens(40, 1)), "s").unwrap();
        std::thread::scope(|scope| {
            for own in 10..14 {
                let model = &model;
                scope.spawn(move || {
                    let mut turns = 0;
                    while turns < 4 {
                        let mut session = get(store, model, "s");
                        session.append(&[own], Default::default()).unwrap();
                        match put(store, &mut session, "s") {
                            Ok(_) => turns += 1,
                            Err(error) => assert_eq!(error.status(), Status::Conflict),
                        }
                    }
                });
            }
        });
        let log = get(store, &model, "s").tokens(40).unwrap();
        for own in 10..14 {
            assert_eq!(log.iter().filter(|token| **token == own).count(), 4);
        }
        assert_eq!(log.len(), 16);
    }
}

type Call = fn(&Store, &Model, &mut Session) -> Result<()>;

#[test]
fn what_a_backend_fails_with_comes_back() {
    let model = tiny();
    let mut session = session_of(&model, &some_tokens(300, 1));
    let calls: [(&str, Call); 8] = [
        ("put", |store, _, session| put(store, session, "b").map(drop)),
        ("swap", |store, _, session| put(store, session, "b").map(drop)),
        ("swap", |store, _, _| store.remove("a", Default::default())),
        ("get_root", |store, model, _| store.get(model, "a", Default::default()).map(drop)),
        ("read", |store, model, _| store.get(model, "a", Default::default()).map(drop)),
        ("list", |store, _, _| store.list(Default::default()).map(drop)),
        ("remove", |store, _, _| store.collect(Default::default()).map(drop)),
        ("lock", |store, _, _| store.fork("a", "c", Default::default())),
    ];
    for (number, (method, call)) in calls.into_iter().enumerate() {
        let memory = Memory::locked();
        let store = Store::over(memory.clone(), &format!("memory {number}")).unwrap();
        put(&store, &mut session, "a").unwrap();
        put(&store, &mut session_of(&model, &some_tokens(90, 7)), "gone").unwrap();
        store.remove("gone", Default::default()).unwrap();

        memory.set(Some((method, Broken::Error)));
        let error = call(&store, &model, &mut session).unwrap_err();
        assert_eq!(error.status(), Status::Io);
        assert_eq!(error.io().expect("the memory's").to_string(), "of the memory");
        memory.set(Some((method, Broken::Timeout)));
        assert_eq!(status(call(&store, &model, &mut session)), Status::Timeout);
        memory.set(Some((method, Broken::Panic)));
        let panicked = catch_unwind(AssertUnwindSafe(|| call(&store, &model, &mut session)));
        let payload = panicked.expect_err("a panic");
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"the memory is broken"));
        memory.set(None);
        assert_eq!(Arc::strong_count(&memory.held), 2, "locks are held"); // here and in the store
        assert_eq!(get(&store, &model, "a").digest().unwrap(), session.digest().unwrap());

        let snapshot = store.snapshot("a", Default::default()).unwrap();
        memory.set(Some(("read", Broken::Error)));
        let error = snapshot.verify(&model, Default::default()).unwrap_err();
        assert!(error.io().is_some(), "{error}");
        memory.set(None);
        assert!(snapshot.verify(&model, Default::default()).is_ok());
    }
}

#[test]
fn a_backend_is_dropped_after_its_last_use() {
    let model = tiny();
    let memory = Memory::locked();
    let mut session = session_of(&model, &some_tokens(90, 1));
    let store = Store::over(memory.clone(), "of one test").unwrap();
    put(&store, &mut session, "a").unwrap();
    store.collect(Default::default()).unwrap();
    assert_eq!(memory.contents.lock().unwrap().alone, 1);
    memory.contents.lock().unwrap().wrong_mark = true;
    let error = put(&store, &mut session, "b").unwrap_err();
    assert!(error.io().expect("a mark").to_string().contains("mark is \"\""), "{error}");
    let snapshot = store.snapshot("a", Default::default()).unwrap();
    drop(store);
    assert_eq!(Arc::strong_count(&memory.contents), 2);
    drop(snapshot);
    assert_eq!(Arc::strong_count(&memory.contents), 1);
    assert_eq!(status(Store::over(memory.clone(), "")), Status::InvalidArgument);
    assert_eq!(Arc::strong_count(&memory.contents), 1);
}

#[test]
fn without_locks_ages_decide() {
    let model = tiny();
    let store = Store::over(Memory::default(), "without locks").unwrap();
    put(&store, &mut session_of(&model, &some_tokens(90, 1)), "a").unwrap();
    store.remove("a", Default::default()).unwrap();
    let collect = |grace: Option<u64>| {
        let grace = grace.map(Duration::from_secs);
        let options = StoreCallOptions { grace, ..Default::default() };
        store.collect(options).unwrap().removed_objects
    };
    assert_eq!((collect(None), collect(Some(61))), (0, 0));
    assert!(collect(Some(59)) > 0);
}

#[test]
fn what_is_no_store_is_refused() {
    let folder = Folder::new();
    let uri = format!("dir:{}", folder.file("none").display());
    assert_eq!(status(Store::open("ftp:x", Default::default())), Status::Unsupported);
    assert_eq!(status(Store::open(&uri, StoreOptions { existing: true })), Status::NotFound);
    assert_eq!(status(Store::open("dir:a\0b", Default::default())), Status::InvalidArgument);
    let store = Store::open(&uri, Default::default()).unwrap();
    let mut session = alone(&tiny());
    for name in ["", "a\0b", &"x".repeat(256)] {
        assert_eq!(status(put(&store, &mut session, name)), Status::InvalidArgument);
    }
    assert_eq!(format!("{store:?}"), "Store");
}
