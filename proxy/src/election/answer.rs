//! What is answered about an election's lock, in the form that the client asked for.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

use super::{
    codec,
    object::{Kind, Object},
};
use crate::{
    body::{Body, full},
    request::representation::Encoding,
};

/// What an answer has in its body.
#[derive(Debug)]
pub(super) enum Said {
    /// The lock.
    Object(Object),
    /// That it is gone, by a `Status`: client libraries take an object for one that is still being deleted.
    Deleted(Object),
    /// A list of it, or of nothing, in this version.
    List(Kind, Option<Object>, u64),
}

impl Said {
    fn encode(&self, encoding: Encoding) -> Bytes {
        match self {
            Self::Object(object) => codec::encode(object, encoding),
            Self::Deleted(object) => codec::encode_deleted(object, encoding),
            Self::List(kind, object, version) => codec::encode_list(*kind, object.as_ref(), *version, encoding),
        }
    }
}

/// The answer to a request with these headers.
pub(super) fn respond(code: StatusCode, said: &Said, asked_with: &HeaderMap) -> Response<Body> {
    let encoding = Encoding::negotiated(asked_with);
    let mut response = Response::new(full(said.encode(encoding)));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(encoding.media_type()));
    // As on every answer of the API server.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}
