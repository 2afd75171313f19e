//! `ringside-sharder`: assigns the objects of rings to shards.

use std::process::ExitCode;

use ringside_sharder::{Command, CommandError, run};

#[tokio::main]
#[allow(clippy::print_stdout, clippy::print_stderr, reason = "what a command says, and faults before a log")]
async fn main() -> ExitCode {
    let said = match Command::parse(std::env::args_os()) {
        Ok(Command::Run(config)) => run(*config).await.map(|()| None).map_err(anyhow::Error::from),
        Ok(Command::Cleanup(cleanup)) => cleanup.run().await.map(|report| Some(report.said())).map_err(Into::into),
        Ok(Command::Plan(plan)) => plan.run().await.map(|forecast| Some(forecast.said(&plan))).map_err(Into::into),
        Ok(Command::Rights(rights)) => rights.print().map(|yaml| Some((yaml, 0))).map_err(Into::into),
        Err(CommandError::Usage(usage)) => usage.exit(),
        Err(faults) => Err(faults.into()),
    };
    match said {
        Ok(None) => return ExitCode::SUCCESS,
        Ok(Some((text, code))) => {
            println!("{text}");
            return ExitCode::from(code);
        }
        Err(error) => eprintln!("ringside-sharder: {error}"),
    }
    ExitCode::FAILURE
}
