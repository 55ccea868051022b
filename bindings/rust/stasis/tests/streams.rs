//! Readers and writers: their errors are returned as they are, and their panics are resumed.
mod fixture;
use fixture::*;
use stasis::*;
use std::error::Error as _;
use std::io::{self, Read, Write};

/// Takes so many bytes, then fails with an error of its own kind.
struct Limited(usize);

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::Error::new(io::ErrorKind::ConnectionReset, "the line is dead"));
        }
        let count = self.0.min(bytes.len());
        self.0 -= count;
        Ok(count)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn errors_of_writers_are_themselves() {
    let model = tiny();
    let mut session = session_of(&model, &some_tokens(100, 1));
    let before = session.digest().unwrap();
    for room in [0, 1, 5000] {
        let error = session.write(Limited(room), Default::default()).unwrap_err();
        assert_eq!(error.status(), Status::Io);
        assert_eq!(error.io().unwrap().kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(error.source().unwrap().to_string(), "the line is dead");
        assert_eq!(io::Error::from(error).to_string(), "the line is dead");
    }
    assert_eq!(session.digest().unwrap(), before);
    let mut full = [0u8; 100];
    let error = session.write(&mut full[..], Default::default()).unwrap_err();
    assert_eq!(error.io().unwrap().kind(), io::ErrorKind::WriteZero);
    struct Unflushed;
    impl Write for Unflushed {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(io::Error::new(io::ErrorKind::BrokenPipe, "not flushed"))
        }
    }
    let error = session.write(Unflushed, Default::default()).unwrap_err();
    assert_eq!(error.io().unwrap().kind(), io::ErrorKind::BrokenPipe);
}

/// Gives a byte at a time, is interrupted now and then, and fails at the end of what it has.
struct Halting<'a> {
    bytes: &'a [u8],
    calls: usize,
}

impl Read for Halting<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.calls += 1;
        match self.bytes.split_first() {
            _ if self.calls % 3 == 0 => Err(io::ErrorKind::Interrupted.into()),
            None => Err(io::Error::new(io::ErrorKind::TimedOut, "nothing more")),
            Some((first, rest)) => {
                to[0] = *first;
                self.bytes = rest;
                Ok(1)
            }
        }
    }
}

#[test]
fn errors_of_readers_are_themselves() {
    let model = tiny();
    let mut session = session_of(&model, &some_tokens(10, 1));
    let mut bytes = Vec::new();
    session.write(&mut bytes, Default::default()).unwrap();
    let whole = Halting { bytes: &bytes, calls: 0 };
    let read = Session::read(&model, whole, Default::default()).unwrap();
    assert_eq!(read.digest().unwrap(), session.digest().unwrap());
    for bytes in [&bytes[..0], &bytes[..bytes.len() - 1]] {
        let error = Session::read(&model, Halting { bytes, calls: 0 }, Default::default());
        let error = error.unwrap_err();
        assert_eq!(error.status(), Status::Io);
        assert_eq!(error.io().unwrap().kind(), io::ErrorKind::TimedOut);
        let error = Snapshot::read(Halting { bytes, calls: 0 }).unwrap_err();
        assert_eq!(error.io().unwrap().to_string(), "nothing more");
    }
    // One that only ends is not the reader's fault.
    let error = Session::read(&model, &bytes[..50], Default::default()).unwrap_err();
    assert!(error.io().is_none());
    assert_eq!(error.status(), Status::Corrupt);
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidData);
}

/// No failed call reports an error kind that `io::copy` and similar functions retry, so that they
/// end.
#[test]
fn copying_from_a_cancelled_call_ends() {
    struct Computes<'a> {
        session: &'a mut Session,
        cancel: &'a Cancel,
        calls: usize,
    }
    impl Read for Computes<'_> {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            self.calls += 1;
            assert!(self.calls < 10, "asked again and again");
            let options = RunOptions { cancel: Some(self.cancel), ..Default::default() };
            Ok(self.session.append(&some_tokens(100, 1), options).map(|_| 0)?)
        }
    }
    let model = tiny();
    let (mut session, cancel) = (alone(&model), Cancel::new().unwrap());
    cancel.request();
    let mut reader = Computes { session: &mut session, cancel: &cancel, calls: 0 };
    let error = io::copy(&mut reader, &mut io::sink()).unwrap_err();
    assert_eq!(reader.calls, 1);
    let inner = error.get_ref().unwrap().downcast_ref::<Error>().unwrap();
    assert_eq!(inner.status(), Status::Cancelled);

    struct Interrupted(u32);
    impl Write for Interrupted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            self.0 += 1;
            if self.0 < 3 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            Ok(())
        }
    }
    let mut flushed = Interrupted(0);
    session.write(&mut flushed, Default::default()).unwrap();
    assert_eq!(flushed.0, 3);
}

#[test]
fn panics_of_streams_come_through() {
    struct Panics;
    impl Write for Panics {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            panic!("in write")
        }
        fn flush(&mut self) -> io::Result<()> {
            panic!("in flush")
        }
    }
    impl Read for Panics {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            panic!("in read")
        }
    }
    let model = tiny();
    let mut session = session_of(&model, &[1]);
    let said = |payload: Box<dyn std::any::Any + Send>| *payload.downcast_ref::<&str>().unwrap();
    let caught = |call: &mut dyn FnMut()| {
        said(std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).unwrap_err())
    };
    assert_eq!(caught(&mut || drop(session.write(Panics, Default::default()))), "in write");
    assert_eq!(caught(&mut || drop(Session::read(&model, Panics, Default::default()))), "in read");
    assert_eq!(caught(&mut || drop(Snapshot::read(Panics))), "in read");
    session.write(&mut Vec::new(), Default::default()).unwrap();
}
