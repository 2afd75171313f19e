//! The alerts of `deploy/prometheus-rules.yaml`, judged by Prometheus's own tool. Without it this is ignored, and says what to
//! install.

use std::{io::ErrorKind, path::Path, process::Command, process::ExitCode};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

const MISSING: &str = "promtool is not found on this machine: apt-get install --no-install-recommends prometheus";

fn main() -> ExitCode {
    let trial = Trial::ignorable_test("the_alerts_come_when_they_should_and_not_otherwise", judge);
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

fn judge() -> Result<Completion, Failed> {
    let test = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/prometheus-rules.test.yaml");
    let output = match Command::new("promtool").args(["test", "rules"]).arg(test).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Completion::ignored_with(MISSING)),
        output => output?,
    };
    if output.status.success() {
        return Ok(Completion::Completed);
    }
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    Err(Failed::from(said))
}
