//! What can be asked of `ringside`.

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::{
    check, cleanup, cluster::Global, completion, drain, inject, output::Said, owner, pause, plan, rbac, ring, status,
    version,
};

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "ringside", version, about = "Shares the work of a Kubernetes controller among its replicas")]
pub struct Line {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// The commands, each in a module of its own.
#[derive(Debug, Subcommand)]
enum Command {
    /// Says whether a controller can be shared, and what to do before. Ends with 2 when it can't be as it is.
    Check(check::Arguments),
    /// Takes a ring off the cluster: the ring itself, what was made for it, and the labels of its objects. Says how many, and
    /// which templates and selectors hold the labels: those stay. May be repeated.
    Cleanup(cleanup::Arguments),
    /// Prints what a shell completes the commands with.
    Completion(completion::Arguments),
    /// Moves the objects of a replica to others; its Pod stays, and gets none.
    Drain(drain::Drain),
    /// Adds the proxy to a workload.
    Inject(Box<inject::Arguments>),
    /// Says which replica works on an object, since when, why, and what a move waits for.
    Owner(owner::Arguments),
    /// Keeps the objects of a ring where they are: no move between replicas that work begins.
    Pause(pause::Arguments),
    /// Says which objects of a ring would move, and writes nothing.
    Plan(plan::Arguments),
    /// Prints the permissions that a ring needs, as YAML for `kubectl apply`.
    Rbac(rbac::Arguments),
    /// Moves the objects of a paused ring again.
    Resume(pause::Arguments),
    /// Works with ClusterRings.
    Ring(ring::Arguments),
    /// Shows how rings are, and the replicas of one. Ends with 2 when a ring is unhealthy.
    Status(status::Arguments),
    /// Gives objects to a drained replica again.
    Undrain(drain::Undrain),
    /// Takes the proxy off a workload again.
    Uninject(inject::UninjectArguments),
    /// Says which versions are at work. Ends with 2 where they are too far apart.
    Version(version::Arguments),
}

impl Line {
    /// Runs the command.
    ///
    /// # Errors
    /// When it could not be done.
    pub async fn run(self) -> anyhow::Result<Said> {
        let Self { global, command } = self;
        match command {
            Command::Check(arguments) => check::run(&arguments, &global).await,
            Command::Cleanup(arguments) => cleanup::run(&global, arguments).await,
            Command::Completion(arguments) => Ok(completion::run(&arguments, &mut Line::command())),
            Command::Drain(arguments) => drain::drain(&global, &arguments).await,
            Command::Inject(arguments) => inject::run(&global, *arguments).await,
            Command::Owner(arguments) => owner::run(&global, arguments).await,
            Command::Pause(arguments) => pause::pause(&global, &arguments).await,
            Command::Plan(arguments) => plan::run(&global, arguments).await,
            Command::Rbac(arguments) => rbac::run(&global, arguments).await,
            Command::Resume(arguments) => pause::resume(&global, &arguments).await,
            Command::Ring(arguments) => ring::run(&arguments, &global).await,
            Command::Status(arguments) => status::run(&global, arguments).await,
            Command::Undrain(arguments) => drain::undrain(&global, &arguments).await,
            Command::Uninject(arguments) => inject::run_uninject(&global, arguments).await,
            Command::Version(arguments) => version::run(&global, &arguments).await,
        }
    }
}
