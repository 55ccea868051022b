//! One leg of a relay: `relay MODEL FILE TEXT` resumes the session in FILE, or begins one, says
//! TEXT, saves, and prints the session's digest and then the reply.
use stasis::{GenerateOptions, Model, Reply, SaveOptions, Session};
use std::path::Path;
use std::process::ExitCode;

fn relay(model: &str, file: &Path, text: &str) -> stasis::Result<()> {
    let model = Model::open(model, Default::default())?;
    let mut session = match file.exists() {
        true => Session::load(&model, file, Default::default())?,
        false => Session::create(&model, Default::default())?,
    };
    session.append_message("user", text, Reply::Prompt, Default::default())?;
    let mut reply = String::new();
    for generated in session.generate(GenerateOptions { tokens_max: 40, ..Default::default() }) {
        reply += &generated?.text;
    }
    session.save(file, SaveOptions::default())?;
    println!("{}\n{reply}", session.digest()?);
    let mut legs = session.data("legs")?.unwrap_or_default(); // letters of the programs before
    legs.push(b'R');
    session.set_data("legs", &legs)?;
    session.save(file, SaveOptions::default())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, file, text] = arguments.as_slice() else {
        eprintln!("usage: relay MODEL FILE TEXT");
        return ExitCode::from(2);
    };
    match relay(model, Path::new(file), text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("relay: {error}");
            ExitCode::FAILURE
        }
    }
}
