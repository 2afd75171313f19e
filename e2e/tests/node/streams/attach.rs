//! The terminal of a container that runs already.

use std::sync::Arc;

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    time::timeout,
};

use super::{DEADLINE, Way, start_pod};
use crate::Shared;

pub(crate) async fn input_reaches_it_and_its_output_comes_back(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    start_pod(&shared.node, "attached", "stdin: true", "[echo]").await.unwrap();
    let ways = streams.ways().await;
    // One after the other, or all would see the answers of all.
    for way in &ways {
        attach(way, "attached").await;
    }
    streams.assert_alike(&ways).await;
}

async fn attach(way: &Way, pod: &str) {
    let mut child = way.start(&["attach", "-i", pod]);
    let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut stdout = BufReader::new(stdout).lines();
    for word in ["one", "two", "three"] {
        stdin.write_all(format!("{word}\n").as_bytes()).await.unwrap();
        let line = timeout(DEADLINE, stdout.next_line()).await.unwrap_or_else(|_| panic!("{}: no answer", way.name));
        assert_eq!(line.unwrap().as_deref(), Some(format!("heard {word}").as_str()), "{}", way.name);
    }
    child.kill().await.unwrap();
}
