//! Checks the model: each scene exhaustively with all guards, and then with one guard taken away at a time. With a folder, it
//! replays the traces in the folder instead. README.md explains the model.
//! It prints tables, and fails if an invariant is violated with all guards, or if no state violates a guard's invariant without
//! the guard.

mod explore;
mod guard;
mod model;
mod relay;
mod trace;

use explore::Scene;
use guard::{Guard, Guards};
use std::process::ExitCode;

fn main() -> ExitCode {
    let failed = match std::env::args().nth(1) {
        Some(folder) => trace::replay_all(folder.as_ref()),
        None => check_all(),
    };
    ExitCode::from(u8::from(failed))
}

/// Checks all scenes, and reports whether a check has failed.
fn check_all() -> bool {
    let mut failed = false;
    println!("| scene | states | some state has all messages delivered | violated |\n| --- | --: | --- | --- |");
    for scene in explore::scenes(Guards::all()) {
        let (name, about) = (scene.name, scene.about);
        let found = explore::check(scene);
        let violated = found.violation.map_or("none", |(broken, path)| {
            eprintln!("{name}: {path:#?}");
            broken.text()
        });
        failed |= violated != "none" || !found.delivers || !found.complete;
        println!("| {name}: {about} | {} | {} | {violated} |", found.states, if found.delivers { "yes" } else { "no" });
    }
    println!("\n| without this guard | this invariant is violated | scene | actions | states |\n| --- | --- | --- | --: | --: |");
    for guard in Guard::ALL {
        let (name, invariant) = guard.shown();
        let scene = explore::scenes(Guards::without(*guard)).into_iter().find(|scene| scene.name == name).expect("a scene of this name");
        let found = explore::check(Scene { seeks: Some(invariant), ..scene });
        match found.violation {
            Some((_, path)) => println!("| {} | {} | {name} | {} | {} |", guard.text(), invariant.text(), path.len(), found.states),
            None => {
                failed = true;
                println!("| {} | **nothing**, not even: {} | {name} | | {} |", guard.text(), invariant.text(), found.states);
            }
        }
    }
    failed
}
