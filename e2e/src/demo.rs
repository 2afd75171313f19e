//! The demo: an ordinary controller with and without Ringside, on a real control plane, with a verdict.

mod arguments;
mod frame;
mod screen;
mod story;
mod summary;

use std::{
    env,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant, SystemTime},
};

use anyhow::Result;
use ringside_runtime::shutdown::Shutdown;

pub use self::arguments::Arguments;
use self::{screen::Screen, story::Story};
use crate::{
    system::{Settings, System},
    toolchain::{self, built},
};

/// What a shell reports for a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Runs the demo. Success is the verdict that all promises were kept.
pub async fn run(arguments: Arguments) -> Result<ExitCode> {
    let shutdown = Shutdown::on_signals()?;
    tokio::select! {
        outcome = perform(&arguments, &shutdown) => outcome,
        () = shutdown.wait() => Ok(ExitCode::from(INTERRUPTED)),
    }
}

async fn perform(arguments: &Arguments, shutdown: &Shutdown) -> Result<ExitCode> {
    let screen = Screen::new(arguments.clone());
    let began = began();
    screen.say("cargo demo: step 2, etcd, kube-apiserver and the sample operator");
    let step = Instant::now();
    let kubectl = match arguments.keep {
        true => built(toolchain::kubectl).await?,
        false => PathBuf::new(),
    };
    built(toolchain::control_plane).await?;
    built(toolchain::operator).await?;
    screen.say(&format!("cargo demo: step 2 took {} s", step.elapsed().as_secs()));
    screen.say("cargo demo: step 3, the demo, about 80 s; it begins with a Kubernetes control plane on loopback");
    let step = Instant::now();
    let mut system = System::start(Settings::with_short_leases()).await?;
    let monitor = system.monitor().clone();
    let mut story = Story::new(arguments, &screen);
    let report = tokio::select! {
        report = story.tell(&mut system) => report,
        never = screen.follow(&monitor) => match never {},
    };
    let (contrast, report) = match report {
        Ok(reports) => reports,
        Err(error) => {
            screen.say(&kept_logs(&system));
            return Err(error);
        }
    };
    screen.say(&summary::table(arguments, &contrast, &report));
    let whole = began.and_then(|began| began.elapsed().ok()).unwrap_or_else(|| step.elapsed());
    screen.say(&format!("\ncargo demo: step 3 took {} s, all of it {} s", step.elapsed().as_secs(), whole.as_secs()));
    if !report.is_clean() {
        screen.say(&kept_logs(&system));
    }
    if arguments.keep {
        screen.say(&summary::look_around(&system, &kubectl));
        shutdown.wait().await;
    }
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// When the launcher began, where it started this program.
fn began() -> Option<SystemTime> {
    let seconds = env::var("RINGSIDE_DEMO_BEGAN").ok()?.parse().ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

/// What happened has to be looked for in the logs, and the system takes its folders with it.
fn kept_logs(system: &System) -> String {
    match system.keep_logs() {
        Ok(Some(folder)) => format!("\nThe logs are in {}.", folder.display()),
        Ok(None) => "\nThere are no logs.".to_owned(),
        Err(error) => format!("\nThe logs could not be kept: {error}"),
    }
}
