//! What API servers and proxies count.

use http::Request;
use kube::Client;

/// The sum of a counter, of the lines with all of these texts.
pub(crate) fn sum(metrics: &str, counter: &str, texts: &[&str]) -> u64 {
    let lines = metrics.lines().filter(|line| line.split('{').next() == Some(counter));
    let lines = lines.filter(|line| texts.iter().all(|text| line.contains(text)));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

async fn of_api_server(client: &Client, counter: &str, texts: &[&str]) -> u64 {
    let request = Request::get("/metrics").body(Vec::new()).unwrap();
    sum(&client.request_text(request).await.unwrap(), counter, texts)
}

/// How often the API server has asked rings' webhooks about such a write, or tried to.
pub(crate) async fn calls(client: &Client, operation: &str) -> u64 {
    let counter = "apiserver_admission_webhook_admission_duration_seconds_count";
    of_api_server(client, counter, &["\"sharder.sharding.timebertt.dev\"", operation]).await
}

/// How many calls of rings' webhooks have failed, so that the write passed.
pub(crate) async fn failed_open(client: &Client) -> u64 {
    let counter = "apiserver_admission_webhook_fail_open_count";
    of_api_server(client, counter, &["sharder.sharding.timebertt.dev"]).await
}
