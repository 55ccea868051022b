//! Models whose files are not at a path.
mod fixture;
use fixture::*;
use stasis::*;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;

/// Files in memory, of which one may fail.
struct InMemory {
    files: HashMap<String, Vec<u8>>,
    broken: &'static str,
}

impl InMemory {
    fn of(name: &str) -> InMemory {
        let entries = fs::read_dir(data(name)).unwrap().map(|entry| entry.unwrap());
        let files = entries
            .map(|entry| {
                (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
            })
            .collect();
        InMemory { files, broken: "" }
    }
}

impl ModelFiles for InMemory {
    fn size(&mut self, name: &str) -> io::Result<Option<u64>> {
        Ok(self.files.get(name).map(|file| file.len() as u64))
    }
    fn read_at(&mut self, name: &str, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        if name == self.broken {
            return Err(io::Error::new(io::ErrorKind::Other, "a broken disk"));
        }
        let rest = &self.files[name][offset as usize..];
        let count = rest.len().min(buffer.len()).min(100_000);
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

fn digest_of(model: &Model) -> Digest {
    session_of(model, &some_tokens(90, 1)).digest().unwrap()
}

#[test]
fn a_model_from_memory_is_that_of_the_path() {
    let model = Model::open_files(&mut InMemory::of("recall-gemma3"), None, Default::default());
    let model = model.unwrap();
    assert_eq!(model.info().unwrap().model, gemma().info().unwrap().model);
    assert_eq!(digest_of(&model), digest_of(&gemma()));
}

#[test]
fn a_gguf_file_needs_no_name() {
    let folder = Folder::new();
    let path = folder.file("a.gguf");
    quantize(data("recall-gemma3"), &path, Default::default()).unwrap();
    let expected = digest_of(&Model::open(&path, Default::default()).unwrap());
    let mut files = InMemory { files: HashMap::new(), broken: "" };
    files.files.insert("b.gguf".into(), fs::read(&path).unwrap());
    let model = Model::open_files(&mut files, Some("b.gguf"), Default::default()).unwrap();
    assert_eq!(digest_of(&model), expected);
    let file = File::open(&path).unwrap();
    let model = Model::open_file(&file, Default::default()).unwrap();
    drop(file);
    fs::remove_file(&path).unwrap();
    assert_eq!(digest_of(&model), expected);
}

#[test]
fn errors_of_the_files_come_back() {
    for broken in ["config.json", "model.safetensors", "tokenizer.model"] {
        let mut files = InMemory { broken, ..InMemory::of("recall-gemma3") };
        let error = Model::open_files(&mut files, None, Default::default()).map(drop).unwrap_err();
        assert_eq!(error.status(), Status::Io);
        assert!(error.message().contains(broken), "{error}");
        assert_eq!(error.io().unwrap().to_string(), "a broken disk");
    }
    let mut none = InMemory { files: HashMap::new(), broken: "" };
    let missing = Model::open_files(&mut none, None, Default::default()).map(drop);
    assert_eq!(status(missing), Status::NotFound);
}

#[test]
fn a_panic_of_the_files_continues_in_the_caller() {
    struct Panics;
    impl ModelFiles for Panics {
        fn size(&mut self, _: &str) -> io::Result<Option<u64>> {
            panic!("no disk")
        }
        fn read_at(&mut self, _: &str, _: u64, _: &mut [u8]) -> io::Result<usize> {
            unreachable!()
        }
    }
    let opening = || Model::open_files(&mut Panics, None, Default::default()).map(drop);
    let panic = std::panic::catch_unwind(opening).unwrap_err();
    assert_eq!(*panic.downcast_ref::<&str>().unwrap(), "no disk");
}
