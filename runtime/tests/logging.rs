//! What becomes of a program that logs when no process reads its standard error.
#![allow(clippy::unwrap_used)]

use std::{
    env,
    io::{BufRead, BufReader, Read, Write, stdin, stdout},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use ringside_runtime::logging::{Format, init, parse_filter};
use serde_json::Value;

/// Marks the program that logs.
const LOGS: &str = "RINGSIDE_TEST_LOGS";
/// More than pipe and queue take.
const LINES: u64 = 40_000;
const DEADLINE: Duration = Duration::from_secs(60);

fn log() {
    let flushed = init(Format::Json, parse_filter("info").unwrap());
    for number in 0..LINES {
        tracing::info!(number, "a line as long as most lines of a log are, which is some hundred bytes");
    }
    stdout().write_all(b"logged\n").unwrap();
    stdin().read_exact(&mut [0]).unwrap();
    tracing::info!("the last line");
    drop(flushed);
    // As a program that ends without any ceremony.
    std::process::exit(0);
}

/// The lines that come, as they come.
fn lines(from: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || BufReader::new(from).lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    lines
}

#[test]
fn who_logs_goes_on_while_nobody_reads_and_what_was_dropped_is_told() {
    if env::var_os(LOGS).is_some() {
        log();
    }
    let name = "who_logs_goes_on_while_nobody_reads_and_what_was_dropped_is_told";
    let mut program = Command::new(env::current_exe().unwrap());
    program.args(["--exact", name, "--nocapture"]).env(LOGS, "1");
    let mut program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let said = lines(program.stdout.take().unwrap());
    while let Ok(line) = said.recv_timeout(DEADLINE).inspect_err(|_| program.kill().unwrap()) {
        if line == "logged" {
            break;
        }
    }
    assert!(program.try_wait().unwrap().is_none(), "it stood still, and was ended");
    let (mut logged, mut dropped, mut last) = (0, 0, String::new());
    for line in lines(program.stderr.take().unwrap()) {
        let read: Value = serde_json::from_str(&line).unwrap();
        logged += u64::from(read["number"].is_u64());
        if let Some(more) = read["dropped"].as_u64() {
            dropped += more;
            program.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        }
        last = line;
    }
    assert!(program.wait().unwrap().success());
    assert!(dropped > 0 && last.contains("the last line"), "{dropped} dropped, {last}");
    assert_eq!(logged + dropped, LINES);
}
