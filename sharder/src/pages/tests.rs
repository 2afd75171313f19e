#![allow(clippy::unwrap_used)]

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{Request, Response, header::ACCEPT};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, client::Body, discovery::ApiResource};
use serde_json::json;

use super::*;
use crate::lock::Mutex;

#[test]
fn size_follows_the_bytes_of_the_last_page() {
    for (objects, bytes, next) in [
        (500, 500 * 1_000, 500),
        (500, 8 << 20, 500),
        (500, 16 << 20, 250),
        (62, 62 * (200 << 10), 40),
        (1, 20 << 20, 1),
        (0, 100, 500),
    ] {
        assert_eq!(PageSize::after(objects, bytes), PageSize(next), "{objects} {bytes}");
    }
}

#[test]
fn page_that_was_given_up_is_asked_for_with_fewer_objects_until_it_has_one() {
    let mut sizes = vec![500];
    let mut size = PageSize::default();
    while let Some(fewer) = size.fewer() {
        size = fewer;
        sizes.push(size.0);
    }
    assert_eq!(sizes, [500, 62, 7, 1]);
}

/// What was asked of an API server: how many objects, and how many bytes of the answer were read.
type Pages = Arc<Mutex<Vec<(usize, usize)>>>;

/// An API server with objects of so many bytes each, which sends what is read and no more.
fn server(weights: Vec<usize>) -> (Client, Pages) {
    let pages = Pages::default();
    let asked = Arc::clone(&pages);
    let service = tower::service_fn(move |request: Request<Body>| {
        let accepts = request.headers()[ACCEPT].to_str().unwrap();
        assert!(accepts.contains("as=PartialObjectMetadataList"), "the whole objects would be read: {accepts}");
        let query = request.uri().query().unwrap().to_owned();
        let number = |key: &str| {
            let value = query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
            value.and_then(|value| value.parse::<usize>().ok())
        };
        let (from, limit) = (number("continue").unwrap_or(0), number("limit").unwrap());
        let to = weights.len().min(from + limit);
        let continues = if to < weights.len() { to.to_string() } else { String::new() };
        let head = format!(r#"{{"metadata":{{"resourceVersion":"7","continue":"{continues}"}},"items":["#);
        let items: Vec<_> = weights[from..to].iter().copied().enumerate().collect();
        let (asked, this) = (Arc::clone(&asked), asked.lock().len());
        asked.lock().push((to - from, 0));
        let items = items.into_iter().map(move |(at, weight)| {
            let object =
                json!({"metadata": {"name": format!("o{}", from + at), "annotations": {"a": "x".repeat(weight)}}});
            format!("{}{object}", if at == 0 { "" } else { "," })
        });
        let frames = std::iter::once(head).chain(items).chain(["]}".to_owned()]).map(move |text| {
            asked.lock()[this].1 += text.len();
            Ok::<_, Infallible>(Frame::data(Bytes::from(text)))
        });
        let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
        std::future::ready(Ok::<_, Infallible>(Response::new(body)))
    });
    (Client::new(service, "default"), pages)
}

/// Lists all objects of such a server.
async fn list(weights: Vec<usize>) -> (usize, Vec<(usize, usize)>) {
    let (client, pages) = server(weights);
    let api: Api<Object> = Api::all_with(client, &ApiResource::erase::<ConfigMap>(&()));
    let mut all = pin!(pages_with(api, ListParams::default(), |object| object.name.clone()));
    let mut names = Vec::new();
    while let Some(page) = futures::StreamExt::next(&mut all).await {
        names.extend(page.unwrap().into_iter().flatten());
    }
    let expected: Vec<_> = (0..names.len()).map(|number| format!("o{number}")).collect();
    assert_eq!(names, expected, "each once, in order");
    let pages = pages.lock().clone();
    (names.len(), pages)
}

/// Of metadata with 200 KiB of annotations, 500 objects would be 100 MB.
#[tokio::test]
async fn heavy_objects_come_in_pages_of_a_few_megabytes() {
    let (count, pages) = list(vec![200 << 10; 300]).await;
    assert_eq!(count, 300);
    assert_eq!(pages[..2].iter().map(|(objects, _)| *objects).collect::<Vec<_>>(), [300, 62]);
    let most = pages.iter().map(|(_, bytes)| *bytes as u64).max().unwrap();
    assert!(most <= MAX_BYTES + (1 << 20), "{most}");
    assert!(pages[3..].iter().all(|(_, bytes)| *bytes as u64 <= AIM + (1 << 20)), "{pages:?}");
}

#[tokio::test]
async fn light_objects_come_in_full_pages_and_again_after_heavy_ones() {
    let weights = [vec![100; 500], vec![1 << 20; 20], vec![100; 1_000]].concat();
    let (count, pages) = list(weights).await;
    assert_eq!((count, pages[0].0), (1_520, 500));
    assert!(pages.iter().all(|(_, bytes)| *bytes as u64 <= MAX_BYTES + (2 << 20)), "{pages:?}");
    assert!(pages.len() < 20 && pages[pages.len() - 2..].iter().any(|(objects, _)| *objects >= 300), "{pages:?}");
}
