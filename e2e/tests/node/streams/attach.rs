//! The terminal of a container that runs already.

use std::sync::Arc;

use futures::future::join_all;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    time::timeout,
};

use super::{DEADLINE, Way, protocols::TELL, start_pod};
use crate::Shared;

pub(crate) async fn input_reaches_it_and_its_output_comes_back(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    // Each its own, or all would see the answers of all.
    let each = streams.ways().into_iter().enumerate().map(|(number, way)| {
        let shared = Arc::clone(&shared);
        async move {
            let pod = format!("attach-{number}");
            start_pod(&shared.node, &pod, "stdin: true", "[echo]").await.unwrap();
            attach(&way, &pod).await;
        }
    });
    join_all(each).await;
}

async fn attach(way: &Way, pod: &str) {
    let mut child = way.start(&["attach", TELL, "-i", pod]);
    let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut stdout = BufReader::new(stdout).lines();
    for word in ["one", "two", "three"] {
        stdin.write_all(format!("{word}\n").as_bytes()).await.unwrap();
        let line = timeout(DEADLINE, stdout.next_line()).await.unwrap_or_else(|_| panic!("{}: no answer", way.name));
        assert_eq!(line.unwrap().as_deref(), Some(format!("heard {word}").as_str()), "{}", way.name);
    }
    child.start_kill().unwrap();
    way.assert_spoken(&child.wait_with_output().await.unwrap().stderr, pod, "attach");
}
