//! What comes by HTTP/2 before an answer (RFC 9113, section 8.1). Clients other than this one pass it over.

use std::future::poll_fn;

use anyhow::Result;
use http::{Request, StatusCode, header};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::task::AbortOnDropHandle;

use super::client::{Ask, Endpoint, Http};

/// The statuses of all heads that come for a request without a body, the answer's own last.
pub async fn statuses(endpoint: &Endpoint, ask: &Ask, mark: &str) -> Result<Vec<StatusCode>> {
    let uri = format!("https://{}{}", endpoint.address(), ask.target);
    let mut request = Request::builder().method(ask.method.clone()).uri(uri).body(())?;
    *request.headers_mut() = ask.sent(mark)?;
    request.headers_mut().insert(header::AUTHORIZATION, format!("Bearer {}", endpoint.token()).parse()?);
    all(endpoint.connect(Http::Two).await?, request).await
}

async fn all(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<()>,
) -> Result<Vec<StatusCode>> {
    let (sender, connection) = h2::client::handshake(stream).await?;
    // An error of the connection is one of the answer as well.
    let _connection = AbortOnDropHandle::new(tokio::spawn(async move { drop(connection.await) }));
    let (mut answer, _) = sender.ready().await?.send_request(request, true)?;
    let mut statuses = Vec::new();
    while let Some(interim) = poll_fn(|context| answer.poll_informational(context)).await {
        statuses.push(interim?.status());
    }
    statuses.push(answer.await?.status());
    Ok(statuses)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::Response;

    use super::*;

    #[tokio::test]
    async fn what_comes_before_an_answer_is_seen() {
        let (ours, theirs) = tokio::io::duplex(1 << 10);
        let server = async {
            let mut connection = h2::server::handshake(theirs).await.unwrap();
            let (_, mut answer) = connection.accept().await.unwrap().unwrap();
            let hint = Response::builder().status(StatusCode::EARLY_HINTS).body(()).unwrap();
            answer.send_informational(hint).unwrap();
            answer.send_response(Response::new(()), true).unwrap();
            // Until the client has left.
            while connection.accept().await.is_some_and(|it| it.is_ok()) {}
        };
        let asking = async { all(ours, Request::new(())).await.unwrap() };
        let (statuses, ()) = tokio::join!(asking, server);
        assert_eq!(statuses, [StatusCode::EARLY_HINTS, StatusCode::OK]);
    }
}
