//! Pools of threads that models share.
mod fixture;
use fixture::*;
use stasis::*;

fn names(prefix: &str) -> usize {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with(prefix))
        .count()
}

/// A thread takes its name when it first runs, and leaves after it was joined.
fn becomes(prefix: &str, count: usize) -> bool {
    let pause = std::time::Duration::from_millis(2);
    (0..5000).any(|_| {
        names(prefix) == count || {
            std::thread::sleep(pause);
            false
        }
    })
}

fn converse(model: &Model) -> Digest {
    let mut session = Session::create(model, Default::default()).unwrap();
    session.append_message("user", "What is k?", Reply::Prompt, Default::default()).unwrap();
    let options = GenerateOptions { tokens_max: 8, ..Default::default() };
    session.generate(options).for_each(|generated| drop(generated.unwrap()));
    session.digest().unwrap()
}

#[test]
fn models_share_a_pool_and_keep_it() {
    let expected = converse(&open("recall-gemma3"));
    let options = ThreadsOptions { count: 3, name: Some("rust-pool"), ..Default::default() };
    let threads = Threads::create(options).unwrap();
    let shared = || {
        let options = ModelOptions { thread_pool: Some(&threads), ..Default::default() };
        Model::open(data("recall-gemma3"), options).unwrap()
    };
    let models = [shared(), shared()];
    assert!(becomes("rust-pool", 2));
    std::thread::scope(|scope| {
        for model in &models {
            scope.spawn(move || assert_eq!(converse(model), expected));
        }
    });
    assert_eq!(models[1].info().unwrap().threads, 3);
    drop(threads);
    assert_eq!(converse(&models[0]), expected);
    assert!(becomes("rust-pool", 2));
    drop(models);
    assert!(becomes("rust-pool", 0));
}

#[test]
fn what_cannot_be_is_refused() {
    let create = |options| Threads::create(options);
    let long =
        ThreadsOptions { count: 2, name: Some("a name that is too long"), ..Default::default() };
    assert_eq!(status(create(long)), Status::InvalidArgument);
    let cpus = ThreadsOptions { cpus: &[65535], ..Default::default() };
    assert!(create(cpus).unwrap_err().message().contains("CPU 65535"));
    let threads = create(ThreadsOptions { count: 1, ..Default::default() }).unwrap();
    let both = ModelOptions { threads: 2, thread_pool: Some(&threads), ..Default::default() };
    assert_eq!(status(Model::open(data("recall-gemma3"), both)), Status::InvalidArgument);
}
