//! One leg of a relay: `relay MODEL FILE TEXT` resumes the session in FILE, or begins one, says
//! TEXT, saves, and prints the session's digest and then the reply.
use stasis::{GenerateOptions, Model, Reply, SaveOptions, Session};
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (model, file, text) = match arguments.as_slice() {
        [model, file, text] => (model, Path::new(file), text),
        _ => return Err("usage: relay MODEL FILE TEXT".into()),
    };
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
    Ok(())
}
