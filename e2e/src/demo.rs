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

use anyhow::{Result, bail};
use ringside_runtime::shutdown::Shutdown;

pub use self::arguments::Arguments;
use self::{screen::Screen, story::Story};
use crate::{
    system::{Settings, System},
    toolchain::{self, Environment, Need, Operator, built},
};

/// What a shell reports for a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Runs the demo. Success is the verdict that all promises were kept.
pub async fn run(arguments: Arguments) -> Result<ExitCode> {
    if let Some(minor) = &arguments.kubernetes {
        toolchain::choose(minor);
    }
    let shutdown = Shutdown::on_signals()?;
    tokio::select! {
        outcome = perform(&arguments, &shutdown) => outcome,
        () = shutdown.wait() => Ok(ExitCode::from(INTERRUPTED)),
    }
}

async fn perform(arguments: &Arguments, shutdown: &Shutdown) -> Result<ExitCode> {
    let (screen, operator) = (Screen::new(arguments.clone()), arguments.operator);
    if let Some(obstacle) = Need::from(operator).obstacle(&Environment::of_process()) {
        bail!("can't run the operator: {obstacle}");
    }
    let began = began();
    let version = toolchain::minor().map_or_else(String::new, |minor| format!(" {minor}"));
    screen.say(&format!("cargo demo: step 2, etcd, kube-apiserver{version} and the sample operator"));
    let step = Instant::now();
    let kubectl = match arguments.keep {
        true => built(toolchain::kubectl).await?,
        false => PathBuf::new(),
    };
    built(toolchain::control_plane).await?;
    tokio::task::spawn_blocking(move || Need::from(operator).prepare(&Environment::of_process())).await??;
    screen.say(&format!("cargo demo: step 2 took {} s", step.elapsed().as_secs()));
    screen.say("cargo demo: step 3, the demo, about 80 s; it begins with a Kubernetes control plane on loopback");
    let step = Instant::now();
    let mut system = System::start(settings(operator)).await?;
    let monitor = system.monitor().clone();
    let mut story = Story::new(arguments, &screen);
    let report = tokio::select! {
        report = story.tell(&mut system) => report,
        never = screen.follow(&monitor) => match never {},
    };
    let (contrast, report, writes) = match report {
        Ok(verdicts) => verdicts,
        Err(error) => {
            screen.say(&kept_logs(&system));
            return Err(error);
        }
    };
    screen.say(&summary::table(arguments, &contrast, &report, &writes));
    let whole = began.and_then(|began| began.elapsed().ok()).unwrap_or_else(|| step.elapsed());
    screen.say(&format!("\ncargo demo: step 3 took {} s, all of it {} s", step.elapsed().as_secs(), whole.as_secs()));
    let is_clean = summary::is_clean(&report, &writes);
    if !is_clean {
        screen.say(&kept_logs(&system));
    }
    if arguments.keep {
        screen.say(&summary::look_around(&system, &kubectl));
        shutdown.wait().await;
    }
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The children of an operator that does not mark its owner references are left out of the ring. Handlers of kopf are silent while
/// they wait for a thread.
fn settings(operator: Operator) -> Settings {
    let usual = Settings::with_short_leases();
    let drain_grace = match operator {
        Operator::Python => Duration::from_secs(4),
        _ => usual.drain_grace,
    };
    Settings { operator, drain_grace, children_in_ring: operator.marks_controllers(), ..usual }
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
