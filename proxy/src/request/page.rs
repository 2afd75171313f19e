//! Of which state of a resource a later page of a list is, by its `continue` token.
//!
//! The token's form is public (`continueToken` in k8s.io/apiserver, storage/continue.go: "a public API struct and cannot
//! change"): base64 of JSON with the resourceVersion that the list began at.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use ringside_ring::ResourceVersion;
use serde::Deserialize;

/// The API server's continue token, without its start key, which the proxy does not need.
#[derive(Deserialize)]
struct ContinueToken {
    v: String,
    rv: i64,
}

/// Of a token as it stands in a query, after percent-decoding. `None` when it is not one of kube-apiserver's, or one
/// without a state: -1 stands for the newest, whatever the pages before were of, and is what the API server offers whose
/// list took too long.
pub(crate) fn start_of_list(token: &str) -> Option<ResourceVersion> {
    let ContinueToken { v, rv } = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    (v == "meta.k8s.io/v1" && rv > 0).then(|| rv.to_string().parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(json: &str) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(json)
    }

    #[test]
    fn a_token_says_where_its_list_began() {
        // As kube-apiserver v1.37.0 writes it.
        let real = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6Miwic3RhcnQiOiJhXHUwMDAwIn0";
        assert_eq!(start_of_list(real), Some("2".parse().expect("a number")));
        for bad in [
            "x".to_owned(),
            token("{}"),
            token(r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"a"}"#),
            token(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#),
            token(r#"{"v":"meta.k8s.io/v2","rv":2,"start":"a"}"#),
            token(r#"{"v":"meta.k8s.io/v1","rv":"2","start":"a"}"#),
        ] {
            assert_eq!(start_of_list(&bad), None, "{bad}");
        }
    }
}
