//! Objects that are dropped return their memory, and memory that is still needed stays.
mod fixture;
use fixture::*;
use stasis::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::Arc;

#[test]
fn sessions_give_their_pages_back() {
    let model = gemma();
    assert_eq!(model.stats().unwrap().kv_used, 0);
    assert_eq!(model.stats().unwrap().kv_budget, None);
    let session = session_of(&model, &some_tokens(300, 1));
    let used = model.stats().unwrap().kv_used;
    assert_eq!(used, session.info().unwrap().kv_bytes);
    let child = session.fork().unwrap();
    assert_eq!(model.stats().unwrap().kv_used, used);
    drop(session);
    assert_eq!(model.stats().unwrap().kv_used, used);
    drop(child);
    assert_eq!(model.stats().unwrap().kv_used, 0);
}

#[test]
fn sessions_keep_the_model() {
    let model = gemma();
    let mut session = asked(&model);
    let draft = gemma();
    session.set_draft(Draft::Model { model: &draft, tokens_min: 0, tokens_max: 0 }).unwrap();
    drop((model, draft));
    let text: String =
        session.generate(Default::default()).map(|generated| generated.unwrap().text).collect();
    assert_eq!(text, "k is 5.");
    assert_eq!(session.model().info().unwrap().architecture, "gemma3");
    drop(session.generate(Default::default()));
}

/// Counts bytes; refuses on demand.
#[derive(Default)]
struct Counted {
    bytes: AtomicUsize,
    refuses: AtomicBool,
    dropped: AtomicBool,
}

struct Counting(Arc<Counted>);

// SAFETY: the system's, and a counter.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if self.0.refuses.load(SeqCst) {
            return std::ptr::null_mut();
        }
        self.0.bytes.fetch_add(layout.size(), SeqCst);
        System.alloc(layout)
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        self.0.bytes.fetch_sub(layout.size(), SeqCst);
        System.dealloc(memory, layout)
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        assert_eq!(self.0.bytes.load(SeqCst), 0);
        self.0.dropped.store(true, SeqCst);
    }
}

#[test]
fn an_allocator_of_the_hosts() {
    let counted = Arc::new(Counted::default());
    let options = |counted: &Arc<Counted>| ModelOptions {
        threads: 1,
        allocator: Some(Box::new(Counting(counted.clone()))),
        ..Default::default()
    };
    let model = Model::open(data("recall-gemma3"), options(&counted)).unwrap();
    let mut session = asked(&model);
    assert!(counted.bytes.load(SeqCst) > 0);
    let before = session.digest().unwrap();
    counted.refuses.store(true, SeqCst);
    let refused = session.append(&some_tokens(500, 1), Default::default());
    assert_eq!(status(refused), Status::NoMemory);
    assert_eq!(session.digest().unwrap(), before);
    counted.refuses.store(false, SeqCst);
    session.append(&some_tokens(500, 1), Default::default()).unwrap();
    drop(model);
    assert!(!counted.dropped.load(SeqCst));
    drop(session);
    assert!(counted.dropped.load(SeqCst));

    let counted = Arc::new(Counted::default());
    assert_eq!(status(Model::open("/nowhere", options(&counted))), Status::NotFound);
    assert!(counted.dropped.load(SeqCst));
}

/// A cancel handle may be dropped while a call runs with it.
#[test]
fn handles_outlive_their_calls() {
    let model = tiny();
    let cancel = Cancel::new().unwrap();
    let mut clone = Some(cancel.clone());
    let mut drops = |_, _| {
        drop(clone.take());
        std::ops::ControlFlow::Continue(())
    };
    let options =
        RunOptions { cancel: Some(&cancel), progress: Some(&mut drops), ..Default::default() };
    alone(&model).append(&some_tokens(70, 1), options).unwrap();
    assert_eq!(cancel.progress(), (70, 70));
}
